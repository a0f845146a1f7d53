"""Operators of `keras.ops` along an axis: reductions, sorting, cumulative sums, statistics."""

from functools import partial

import numpy as np
from keras import ops

from .grids import DTYPES, EMPTY_AXIS, FLOAT32, FLOATS, INFINITIES, INT32, INTEGERS, NAN, NUMBERS, feed, fill, make_rows
from .table import add, add_ops

MATRIX = fill((3, 4))
NAN_BY_POSITION = (NAN,)  # onnxruntime keeps or ignores a NaN, depending on its position
# A softmax of float16 with one NaN is all NaN, except if TensorFlow has a kernel of float16 for the processor.
SOFTMAX_SPREADS_NAN = bool(np.isnan(ops.convert_to_numpy(ops.softmax(np.float16([[np.nan, 0, 1, 2]])))).all())
# Sums and products that do not overflow: onnxruntime saturates.
SMALL_INTEGERS = feed(np.int64([[3, -1, 2, 7], [2**24 + 1, 1, 2**24, -3], [0, 0, 0, 0]]))

for axis in (-1, 0):
    add_along = partial(add_ops, ops, make_inputs=make_rows, variant=f"axis={axis}", axis=axis)
    add_along("max min amax amin argmax argmin sort argsort ptp", dtypes=FLOATS, deviations=NAN_BY_POSITION)
    add_along("max min amax amin argmax argmin sort argsort ptp", dtypes=INTEGERS)
    add_along("count_nonzero nanargmax nanargmin nanmax nanmin flip diff", dtypes=NUMBERS)
    add_along("sum mean prod var std cumsum cumprod nancumprod log_softmax", dtypes=FLOATS, limit=5e-6)
    add_along("nansum nanmean nanprod nanvar nanstd average", dtypes=FLOATS, limit=5e-6)
    add_along("median logsumexp", dtypes=FLOATS, limit=5e-6, deviations=(EMPTY_AXIS,) if axis == 0 else ())
    add_along("nancumsum", dtypes=FLOAT32)
    add_along("softmax", dtypes=FLOAT32, deviations=(INFINITIES, NAN))
    add_along("softmax", dtypes=("float16",), deviations=() if SOFTMAX_SPREADS_NAN else (INFINITIES, NAN))
    add_along("sparsemax", dtypes=FLOATS, deviations=NAN_BY_POSITION)
    add_along("all any", dtypes=DTYPES)
    variant = f"of integers, axis={axis}"
    add_ops(ops, "sum prod cumsum cumprod", SMALL_INTEGERS, ("int64",), variant=variant, axis=axis)
add_ops(ops, "sum mean prod cumsum cumprod", MATRIX, ("int32", "uint8"), variant="all")
add_ops(ops, "sum mean var max min", make_rows, FLOATS, variant="all", limit=5e-6)
add_ops(ops, "argmax argmin", make_rows, FLOATS, variant="all", deviations=NAN_BY_POSITION)
add_ops(ops, "sum", make_rows, FLOATS, variant="keepdims", axis=-1, keepdims=True, limit=5e-6)
add_ops(ops, "max argmin", make_rows, FLOATS, variant="keepdims", axis=-1, keepdims=True, deviations=NAN_BY_POSITION)
add_ops(ops, "sum max mean", fill((2, 3, 4)), FLOATS, variant="two axes", axis=(0, 2))
add_ops(ops, "max min", make_rows, FLOATS, variant="initial", axis=-1, initial=2.0, deviations=NAN_BY_POSITION)
add_ops(ops, "glu", MATRIX, FLOATS, is_static=True)
for order in (1, 2, 3):
    add_ops(ops, "normalize", make_rows, FLOAT32, variant=f"order {order}", axis=-1, order=order, limit=5e-6)
add_ops(ops, "moments", make_rows, FLOATS, axes=[-1], limit=5e-6)

for method in ("linear", "lower", "higher", "midpoint", "nearest"):
    add_ops(ops, "quantile", make_rows, FLOATS, variant=method, q=[0.1, 0.5], axis=-1, method=method, limit=5e-6)
add_ops(ops, "percentile", make_rows, FLOATS, q=30, axis=-1, limit=5e-6)
add_ops(ops, "nanpercentile", make_rows, FLOAT32, q=30, axis=-1, refusal="cannot be traced")
add_ops(ops, "nanquantile", make_rows, FLOAT32, q=0.3, axis=-1, refusal="cannot be traced")
add_ops(ops, "nanmedian", make_rows, FLOAT32, axis=-1, refusal="cannot be traced")

for k in (1, 3):
    add_ops(ops, "top_k", make_rows, FLOATS, variant=f"{k}", k=k, deviations=NAN_BY_POSITION)
    add_ops(ops, "top_k", make_rows, INTEGERS, variant=f"{k}", k=k)
add_ops(ops, "argpartition", MATRIX, INT32, kth=2)


def make_rows_and_classes(kind, dtype):
    """Return rows of scores, and the class of each row."""
    (rows,) = make_rows(kind, dtype)
    return (rows, np.int32([0, 1, 2, -1, 9])[: len(rows)]) if kind != EMPTY_AXIS else None


add("keras.ops.in_top_k", lambda x, classes: ops.in_top_k(classes, x, 2), make_rows_and_classes, FLOAT32)
add_ops(ops, "unique", MATRIX, ("int32", "int64", "float32"))
add_ops(ops, "nonzero", make_rows, DTYPES)
add_ops(ops, "isin", make_rows, INT32, x2=np.array([1, 3, 7]), refusal="cannot be traced")
add_ops(ops, "allclose", lambda kind, dtype: make_rows(kind, dtype) * 2, FLOATS)
add_ops(ops, "digitize", make_rows, (*FLOATS, *INTEGERS), bins=[-3.5, 0, 2])
add("keras.ops.searchsorted", lambda x: ops.searchsorted(ops.sort(x[0]), x[1]), MATRIX, NUMBERS, is_static=True)
make_inputs = feed(np.array([-1.0, 0, 0, 2.5]), np.array([-2.0, 0, 2.5, 3]))
add_ops(ops, "searchsorted", make_inputs, FLOATS, variant="right", side="right", is_static=True)
add_ops(ops, "histogram", fill((9,)), FLOAT32, bins=5, limit=5e-6)
add_ops(ops, "histogram", fill((9,)), FLOAT32, variant="range", bins=5, range=(0.0, 2.0), limit=5e-6)

add_ops(ops, "trapezoid", make_rows, FLOATS, limit=5e-6)
add_ops(ops, "dot vdot outer", fill((4,), (4,)), NUMBERS)
add_ops(ops, "inner", fill((4,), (4,)), NUMBERS, is_static=True)
add_ops(ops, "kron", fill((4,), (4,)), FLOAT32, is_static=True, refusal="cannot be traced")
add_ops(ops, "matmul", fill((3, 4), (4, 2)), NUMBERS)
add_ops(ops, "tensordot", fill((3, 4), (4, 2)), FLOATS, axes=1)
add("keras.ops.einsum", partial(ops.einsum, "bij,bjk->bik"), fill((2, 3, 4), (2, 4, 5)), FLOATS)
add_ops(ops, "cross", fill((2, 3), (2, 3)), (*FLOATS, "int32"))
add_ops(ops, "cross", fill((5, 2), (5, 2)), FLOATS, variant="two by two", is_static=True)
add_ops(ops, "correlate", fill((5,), (3,)), FLOATS, variant="valid", mode="valid", limit=5e-6)
add_ops(ops, "correlate", fill((5,), (3,)), FLOATS, variant="same", mode="same", is_static=True, limit=5e-6)
add_ops(ops, "corrcoef", fill((3, 4)), FLOAT32, refusal="cannot be traced")
add_ops(ops, "cdist", fill((3, 4), (2, 4)), FLOATS, limit=5e-6)
add_ops(ops, "vander", fill((4,)), FLOATS)
add_ops(ops, "vander", fill((4,)), FLOATS, variant="increasing", N=3, increasing=True)
