"""`keras.ops.slice_update` in ONNX: a part of a tensor replaced where numbers say that are known when it runs."""

import keras
import numpy as np
import pytest
from traced_functions import Converted

X, PART = np.arange(24, dtype="float32").reshape(2, 3, 4), -np.ones((2, 1, 2), "float32")


def updated(x, part, at):
    return keras.ops.slice_update(x, at, part)


@pytest.mark.parametrize("at", [(0, 0, 0), (0, 2, 1), (0, 9, 3), (-1, 1, 0)])
def test_update_beyond_the_end_is_moved_to_fit(at):
    converted = Converted(updated, x=X, part=PART, at=np.zeros(3, "int32"))
    found = converted.assert_same(at=np.array(at, "int32"))
    assert (found == -1).sum() == PART.size


@pytest.mark.parametrize(
    "x",
    [*map(X.astype, ("int32", "int64", "float64")), np.where(X > 20, np.inf, np.where(X < 3, np.nan, X)).astype("f")],
    ids=["int32", "int64", "float64", "infinities"],
)
def test_update_keeps_other_numbers_of_every_dtype(x):
    Converted(updated, x=x, part=PART.astype(x.dtype), at=np.array([0, 1, 1], "int64")).assert_same()


def test_reshape_to_a_size_of_zero_is_empty():
    converted = Converted(lambda x: keras.ops.reshape(x[..., :0], (keras.ops.shape(x)[0], 0, 7)), x=X)
    assert converted.assert_same().shape == (2, 0, 7)
