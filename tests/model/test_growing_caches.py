"""A cache that grows is empty at first, and a golden case shows what the step does then."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attn_export._model.golden_cases import golden_cases
from keras_attn_export._model.growing_caches import EMPTY_CACHE, growing_axes
from keras_attn_export._model.signature import model_signature
from keras_attn_export._standalone.verify import Case


def case(**outputs):
    return Case("case", {"past": np.arange(12.0).reshape(2, 3, 2)}, outputs)


SHAPES = {"past": ("batch", "past_length", 2)}
PAST = np.arange(12.0).reshape(2, 3, 2)
LONGER = np.concatenate([PAST, np.ones((2, 1, 2))], axis=1)


@pytest.mark.parametrize(
    ("output", "grows"),
    [
        (LONGER, True),
        (np.concatenate([LONGER, np.full((2, 2, 2), np.nan)], axis=1), True),
        (PAST, False),
        (LONGER[:, ::-1], False),
        (LONGER.astype("float32"), False),
        (LONGER[..., np.newaxis], False),
        (np.concatenate([PAST, np.ones((2, 3, 1))], axis=2), False),  # longer, but along the features
        (np.concatenate([PAST, PAST[:1]], axis=0), False),  # along the batch
    ],
    ids=["one more", "some more", "as it is", "turned around", "dtype", "rank", "features", "batch"],
)
def test_an_output_that_holds_an_input_and_more(output, grows):
    assert growing_axes(SHAPES, [case(out=output)]) == ({"past_length"} if grows else set())
    assert not growing_axes(SHAPES, [case(out=output), case(out=PAST)])  # it must in every case


def cases_of(model):
    return golden_cases(model, model_signature(model, None), None)


def test_a_case_of_nothing_yet():
    past, new = keras.Input((None, 4), name="past"), keras.Input((1, 4), name="new")
    present = ops.concatenate([past, new], axis=1)
    found = cases_of(keras.Model([past, new], {"present": present, "sum": ops.sum(present, axis=1)}))
    empty = next(each for each in found.cases if each.name == EMPTY_CACHE)
    assert empty.inputs["past"].shape[1] == 0
    assert empty.inputs["new"].shape[0] > 1
    np.testing.assert_array_equal(empty.outputs["present"], empty.inputs["new"])
    assert not any(each.inputs["past"].shape[1] == 0 for each in found.cases if each.name != EMPTY_CACHE)
    assert not found.refused


def test_two_caches_that_agree_are_empty_together():
    keys, values, new = (keras.Input((2, size, 4), name=name) for name, size in (("k", None), ("v", None), ("new", 1)))
    longer = [ops.concatenate([each, new], axis=2) for each in (keys, values)]
    product = ops.matmul(ops.transpose(longer[0], (0, 1, 3, 2)), longer[1])
    found = cases_of(
        keras.Model([keys, values, new], {"longer k": longer[0], "longer v": longer[1], "product": product})
    )
    empty = next(each for each in found.cases if each.name == EMPTY_CACHE)
    assert [empty.inputs[name].shape[2] for name in ("k", "v")] == [0, 0]


def test_a_model_that_keras_cannot_run_on_nothing():
    past, new = keras.Input((None, 4), name="past"), keras.Input((1, 4), name="new")
    present = ops.concatenate([past, new], axis=1)
    largest = ops.max(past, axis=1)  # of no step there is none
    found = cases_of(keras.Model([past, new], {"present": present, "largest": largest}))
    assert EMPTY_CACHE in found.refused
    assert len(found.cases) > 3


def test_other_models_have_no_such_case():
    x = keras.Input((None, 4), name="x")
    found = cases_of(keras.Model(x, layers.Dense(3)(x)))
    assert EMPTY_CACHE not in [each.name for each in found.cases]
    assert EMPTY_CACHE not in found.refused
