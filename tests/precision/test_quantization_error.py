"""Quantization errors: differences from float32, equal classes, and layers that stay float32 because of their error.

The errors of an output have these keys:

    largest, mean   the largest and the mean absolute difference
    scale           the largest magnitude
    share           the largest difference divided by the scale
    noise           the relative RMS error: the root of (sum of squared differences / sum of squared float32 values)
    differ          only for integers: the share of unequal elements. The other errors are equal to it; the scale is 1.
    same_choices    the share of rows whose most likely class is the same
"""

import numpy as np
import pytest

from keras_attn_export._format.names import Case
from keras_attn_export._precision.conversion_gains import measure_top1_agreement
from keras_attn_export._precision.quantization_error import measure_quantization_error
from keras_attn_export._precision.sensitive_layers import choose_float32_layers


def measure_error(float32, int8):
    expected, actual = ([{"y": np.asarray(batch)} for batch in batches] for batches in (float32, int8))
    (error,) = measure_quantization_error(expected, actual).values()
    return error


def test_errors_of_floats_include_all_batches():
    error = measure_error([[[1.0, -4.0]], [[2.0, 0.0]]], [[[1.5, -4.0]], [[2.0, 1.0]]])
    assert error == {"largest": 1.0, "mean": 0.375, "scale": 4.0, "share": 0.25, "noise": (1.25 / 21) ** 0.5}


def test_scale_ignores_replaced_masked_scores_and_infinities():
    error = measure_error([[[1.0, -1e9, -1e9]]], [[[1.1, -1e9, -1e9]]])
    assert error["scale"] == 1
    assert error["share"] == pytest.approx(0.1)
    assert measure_error([[np.inf, 2.0]], [[np.inf, 2.0]])["largest"] == 0


def test_errors_of_integers_are_the_share_of_unequal_elements():
    errors = dict.fromkeys(("largest", "mean", "share", "noise", "differ"), 0.25)
    assert measure_error([[1, 2, 3, 4]], [[1, 2, 3, 5]]) == {**errors, "scale": 1.0}


def test_error_of_class_probabilities_has_the_share_of_equal_classes():
    float32 = [[[0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5]]]
    assert measure_error(float32, [[[0.8, 0.2], [0.6, 0.4]], [[0.5, 0.5]]])["same_choices"] == pytest.approx(2 / 3)
    assert "same_choices" not in measure_error([[[1.0, 2.0]]], [[[1.0, 2.0]]]), (
        "rows that do not sum to 1 are no class probabilities"
    )


@pytest.mark.parametrize(
    ("float32", "int8"),
    [([[1.0]], [[1.0, 2.0]]), ([[1.0]], [[np.nan]]), ([[0.0]], [[0.5]])],
    ids=["shape", "NaN", "zeros"],
)
def test_share_of_incomparable_outputs_is_1(float32, int8):
    assert measure_error(float32, int8)["share"] == 1


def draw_probabilities(*shape, seed=0):
    exponentials = np.exp(np.random.default_rng(seed).standard_normal(shape))
    return (exponentials / exponentials.sum(-1, keepdims=True)).astype("float32")


def measure_agreement(expected, actual):
    cases = [Case(f"case {index}", {}, {"out": array}) for index, array in enumerate(expected)]
    return measure_top1_agreement(cases, [{"out": array} for array in actual])


def test_top1_is_the_share_of_rows_with_the_same_class():
    expected = [draw_probabilities(2, 3), draw_probabilities(3, 3, seed=1)]
    actual = [expected[0], np.roll(expected[1], 1, axis=-1)]
    assert measure_agreement(expected, actual) == {"out": {"agreement": 0.4, "rows": 5}}


@pytest.mark.parametrize(
    "outputs",
    [
        [draw_probabilities(2, 3), draw_probabilities(2, 5)],
        [draw_probabilities(2, 1)],
        [np.ones((2, 3), "float32")],
        [np.array([[1.5, -0.5]], "float32")],
        [np.zeros((0, 3), "float32")],
        [np.array([[1, 0]])],
        [np.float32(1)],
    ],
    ids=["axis varies", "one entry", "sum is not 1", "negative", "no rows", "integers", "scalar"],
)
def test_outputs_that_are_no_class_probabilities_have_no_top1(outputs):
    assert measure_agreement(outputs, outputs) == {}


def select_float32_layers(noise_by_layer, limit):
    """Return the layers that stay float32 in a model to which each int8 layer adds its noise."""

    def measure(layers):
        total = sum(noise_by_layer[layer] ** 2 for layer in layers) ** 0.5
        return {"y": {"noise": total, "share": 10 * total}, "quiet": {"noise": 0.0, "share": 0.0}}

    return choose_float32_layers([*noise_by_layer], measure, limit)


@pytest.mark.parametrize(
    ("noise_by_layer", "limit", "float32_layers"),
    [
        ({"a": 0.001, "b": 0.019, "c": 0.001}, None, []),
        ({"a": 0.001, "b": 0.5, "c": 0.001}, None, ["b"]),
        ({"a": 0.3, "b": 0.001, "c": 0.01, "d": 0.5, **dict.fromkeys("efgh", 0.001)}, None, ["a", "d"]),
        ({"a": 0.001, "b": 0.019, "c": 0.001}, 0.1, ["b"]),
        ({"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.1}, None, []),
        ({"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.01}, None, ["c"]),
        ({"a": 0.5}, None, []),
    ],
    ids=[
        "little noise",
        "one",
        "two, in order",
        "limit",
        "equal noise",
        "at most a quarter stays float32",
        "single layer",
    ],
)
def test_layers_with_most_noise_stay_float32(noise_by_layer, limit, float32_layers):
    assert select_float32_layers(noise_by_layer, limit) == float32_layers
