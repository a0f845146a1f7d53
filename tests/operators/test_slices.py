"""`keras.ops.slice_update` in ONNX: a part of a tensor replaced where numbers say that are known when it runs."""

import keras
import numpy as np
import pytest
from traced_functions import Converted

X, PART = np.arange(24, dtype="float32").reshape(2, 3, 4), -np.ones((2, 1, 2), "float32")


def updated(x, part, at):
    return keras.ops.slice_update(x, at, part)


@pytest.mark.parametrize("at", [(0, 0, 0), (0, 2, 1), (0, 9, 3), (-1, 1, 0)])
def test_a_part_is_replaced_and_moved_to_where_it_fits(at):
    converted = Converted(updated, x=X, part=PART, at=np.zeros(3, "int32"))
    found = converted.assert_same(at=np.array(at, "int32"))
    assert (found == -1).sum() == PART.size


@pytest.mark.parametrize(
    "x",
    [*map(X.astype, ("int32", "int64", "float64")), np.where(X > 20, np.inf, np.where(X < 3, np.nan, X)).astype("f")],
    ids=["int32", "int64", "float64", "infinities"],
)
def test_other_numbers_stay_where_they_are(x):
    Converted(updated, x=x, part=PART.astype(x.dtype), at=np.array([0, 1, 1], "int64")).assert_same()


def test_rows_pick_their_own_numbers():
    at = np.random.default_rng(0).integers(0, 4, (2, 3, 7))
    converted = Converted(lambda x, at: keras.ops.take_along_axis(x, at, axis=-1), x=X, at=at)
    assert "GatherElements" in {node.op_type for node in converted.model.graph.node}
    np.testing.assert_array_equal(converted.assert_same(), np.take_along_axis(X, at, -1))
    assert converted.assert_same(x=X[:0], at=at[:0]).shape == (0, 3, 7)


def test_reshape_to_a_size_of_zero_is_empty():
    converted = Converted(lambda x: keras.ops.reshape(x[..., :0], (keras.ops.shape(x)[0], 0, 7)), x=X)
    assert converted.assert_same().shape == (2, 0, 7)
