"""How far int8 is from float32, against numbers worked out by hand."""

import numpy as np
import pytest

from keras_attn_export._precision.apart import apart


def of(float32, int8):
    (found,) = apart([{"y": np.asarray(each)} for each in float32], [{"y": np.asarray(each)} for each in int8]).values()
    return found


def test_floats_over_batches():
    found = of([[[1.0, -4.0]], [[2.0, 0.0]]], [[[1.5, -4.0]], [[2.0, 1.0]]])
    assert found == {"largest": 1.0, "mean": 0.375, "scale": 4.0, "share": 0.25, "noise": (1.25 / 21) ** 0.5}


def test_what_fills_a_place_has_no_say_in_the_scale():
    found = of([[[1.0, -1e9, -1e9]]], [[[1.1, -1e9, -1e9]]])
    assert found["scale"] == 1
    assert found["share"] == pytest.approx(0.1)


def test_whole_numbers_count_how_many_differ():
    assert of([[1, 2, 3, 4]], [[1, 2, 3, 5]]) == {
        "largest": 0.25,
        "mean": 0.25,
        "scale": 1.0,
        "share": 0.25,
        "noise": 0.25,
        "differ": 0.25,
    }


def test_class_scores_count_equal_choices():
    float32 = [[[0.9, 0.1], [0.4, 0.6]], [[0.5, 0.5]]]
    assert of(float32, [[[0.8, 0.2], [0.6, 0.4]], [[0.5, 0.5]]])["same_choices"] == pytest.approx(2 / 3)
    assert "same_choices" not in of([[[1.0, 2.0]]], [[[1.0, 2.0]]]), "no scores"


@pytest.mark.parametrize(
    ("float32", "int8"),
    [([[1.0]], [[1.0, 2.0]]), ([[1.0]], [[np.nan]]), ([[0.0]], [[0.5]])],
    ids=["another shape", "NaN", "where there is nothing"],
)
def test_what_cannot_be_compared_is_all_of_it(float32, int8):
    assert of(float32, int8)["share"] == 1


def test_infinities_stay():
    assert of([[np.inf, 2.0]], [[np.inf, 2.0]])["largest"] == 0
