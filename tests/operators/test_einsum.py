"""Equations of two tensors become one product of matrices, and give what TensorFlow does."""

import numpy as np
import pytest
import tensorflow as tf
from traced_functions import Converted

SIZES = {"b": 2, "t": 5, "s": 3, "g": 2, "k": 2, "m": 4, "h": 3, "u": 2}


def numbers(letters, seed):
    return np.random.default_rng(seed).standard_normal([SIZES[each] for each in letters]).astype("float32")


def ops_of(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(
    ("equation", "reshapes"),
    [
        ("btm,muh->btuh", 1),  # projections to heads, and back
        ("btuh,uhm->btm", 1),
        ("bthu,uhm->btm", 1),
        ("uhm,btuh->btm", 1),
        ("btm,hm->bth", 0),
        ("btm,muh->bthu", 1),
        ("m,mh->h", 0),
        ("btm,m->bt", 1),
    ],
)
def test_einsum_with_a_kernel_is_one_product(equation, reshapes):
    terms = equation.partition("->")[0].split(",")
    place = 0 if terms[0] == "uhm" else 1
    kernel, other = numbers(terms[place], 0), terms[1 - place]

    def function(x):
        return tf.einsum(equation, *((kernel, x) if place == 0 else (x, kernel)))

    converted = Converted(function, x=numbers(other, 1))
    converted.assert_same()
    ops = ops_of(converted.model)
    assert (ops.count("MatMul"), ops.count("Shape"), ops.count("Einsum")) == (1, 0, 0)
    assert ops.count("Reshape") <= reshapes
    if "b" in other:
        converted.assert_same(x=numbers(other, 2)[:1])
        converted.assert_same(x=numbers(other, 2)[:0])


@pytest.mark.parametrize(
    "equation",
    [
        "btuh,bsuh->buts",  # scores, with the keys first too, and what they weigh
        "bsuh,btuh->buts",
        "buts,bsuh->btuh",
        "btkgh,bskh->bkgts",  # heads in groups
        "bkgts,bskh->btkgh",
        "bskh,btkgh->bkgts",
        "ts,sh->th",
        "ts,sh->ht",
    ],
)
def test_einsum_of_two_tensors_is_a_product_and_transposes(equation):
    terms = equation.partition("->")[0].split(",")
    converted = Converted(lambda x, y: tf.einsum(equation, x, y), x=numbers(terms[0], 0), y=numbers(terms[1], 1))
    converted.assert_same()
    assert {*ops_of(converted.model)} <= {"MatMul", "Transpose", "Unsqueeze"}


@pytest.mark.parametrize("equation", ["th,sk->ts", "ts,ts->ts", "ts,ts->", "tt,ts->ts", "bts,bsm->bm", "...s,sh->...h"])
def test_other_equations_equal_tensorflow(equation):
    terms = equation.replace("...", "b").partition("->")[0].split(",")
    size = {**SIZES, "s": 5} if equation.startswith("tt") else SIZES
    x, y = (np.random.default_rng(0).standard_normal([size[each] for each in term]).astype("float32") for term in terms)
    Converted(lambda x, y: tf.einsum(equation, x, y), x=x, y=y).assert_same()
