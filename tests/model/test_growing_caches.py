"""A cache that grows is empty at first, and a golden case shows what the step does then."""

import keras
import numpy as np
import pytest
from golden import cases_of, sequence
from keras import ops

from keras_attn_export._model.growing_caches import EMPTY_CACHE, growing_axes
from keras_attn_export._standalone.verify import Case

PAST = np.arange(12.0).reshape(2, 3, 2)
LONGER = np.concatenate([PAST, np.ones((2, 1, 2))], axis=1)


@pytest.mark.parametrize(
    ("output", "grows"),
    [
        (LONGER, True),
        (np.concatenate([LONGER, np.full((2, 1, 2), np.nan)], axis=1), True),
        (np.concatenate([PAST, PAST + 1], axis=1), False),  # two inputs of one length
        (PAST, False),
        (LONGER[:, ::-1], False),
        (LONGER.astype("float32"), False),
        (LONGER[..., np.newaxis], False),
        (np.concatenate([PAST, np.ones((2, 3, 1))], axis=2), False),  # longer, but along the features
        (np.concatenate([PAST, PAST[:1]], axis=0), False),  # along the batch
    ],
    ids=["one more", "some more", "as much again", "as it is", "turned around", "dtype", "rank", "features", "batch"],
)
def test_cache_grows_if_an_output_appends_to_an_input(output, grows):
    shapes = {"past": ("batch", "past_length", 2)}
    case, short = (Case("case", {"past": PAST}, {"out": out}) for out in (output, PAST))
    assert growing_axes(shapes, [case]) == ({"past_length"} if grows else set())
    assert not growing_axes(shapes, [case, short])  # it must in every case


def test_caches_of_one_length_are_empty_in_one_case():
    keys, values, new = (keras.Input((2, size, 4), name=name) for name, size in (("k", None), ("v", None), ("new", 1)))
    k, v = (ops.concatenate([each, new], axis=2) for each in (keys, values))
    product = ops.matmul(ops.transpose(k, (0, 1, 3, 2)), v)
    found = cases_of(keras.Model([keys, values, new], {"longer k": k, "longer v": v, "product": product}))
    is_empty = {each.name: [each.inputs[name].shape[2] == 0 for name in ("k", "v")] for each in found.cases}
    assert is_empty == {each.name: [each.name == EMPTY_CACHE] * 2 for each in found.cases}
    assert not found.refused
    empty = next(each for each in found.cases if each.name == EMPTY_CACHE)
    assert empty.inputs["new"].shape[0] > 1
    for name in ("longer k", "longer v"):
        np.testing.assert_array_equal(empty.outputs[name], empty.inputs["new"])


def test_empty_cache_is_left_out_if_keras_cannot_run_it():
    past, new = sequence("past"), keras.Input((1, 4), name="new")
    present = ops.concatenate([past, new], axis=1)
    largest = ops.max(past, axis=1)  # of no step there is none
    found = cases_of(keras.Model([past, new], {"present": present, "largest": largest}))
    assert EMPTY_CACHE in found.refused
    assert len(found.cases) > 3
