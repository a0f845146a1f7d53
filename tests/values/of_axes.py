"""Operators of `keras.ops` that look along an axis: reductions, sorting, running sums, statistics."""

from functools import partial

import numpy as np
from keras import ops

from .grids import ALL, EMPTY, FLOATS, INFINITE, INTEGERS, NAN, NUMBERS, fixed, ordinary, rows
from .table import add, rows_of

ORDINARY = ordinary((3, 4))
NAN_BY_PLACE = (NAN,)
# A softmax of float16 with one NaN is NaN throughout, but 0 beside it where TensorFlow has a kernel for the processor.
NAN_GOES_ON = bool(np.isnan(ops.convert_to_numpy(ops.softmax(np.array([[np.nan, 0, 1, 2]], "float16")))).all())
# where integers overflow onnxruntime saturates
SMALL = fixed(np.array([[3, -1, 2, 7], [2**24 + 1, 1, 2**24, -3], [0, 0, 0, 0]], "int64"))

for axis in (-1, 0):
    along = partial(rows_of, ops, given=rows, how=f"axis={axis}", axis=axis)
    along("max min amax amin argmax argmin sort argsort ptp", dtypes=FLOATS, deviates=NAN_BY_PLACE)
    along("max min amax amin argmax argmin sort argsort ptp", dtypes=INTEGERS)
    along("count_nonzero nanargmax nanargmin nanmax nanmin flip diff", dtypes=NUMBERS)
    along(
        "sum mean prod var std cumsum cumprod nansum nanmean nanprod nanvar nanstd average", dtypes=FLOATS, limit=5e-6
    )
    along("nancumprod log_softmax", dtypes=FLOATS, limit=5e-6)
    along("median logsumexp", dtypes=FLOATS, limit=5e-6, deviates=(EMPTY,) if axis == 0 else ())
    along("nancumsum", dtypes=("float32",))
    along("softmax", dtypes=("float32",), deviates=(INFINITE, NAN))
    along("softmax", dtypes=("float16",), deviates=() if NAN_GOES_ON else (INFINITE, NAN))
    along("sparsemax", dtypes=FLOATS, deviates=NAN_BY_PLACE)
    along("all any", dtypes=ALL)
    rows_of(ops, "sum prod cumsum cumprod", SMALL, ("int64",), how=f"of integers, axis={axis}", axis=axis)
rows_of(ops, "sum mean prod cumsum cumprod", ORDINARY, ("int32", "uint8"), how="all")
rows_of(ops, "sum mean var max min", rows, FLOATS, how="all", limit=5e-6)
rows_of(ops, "argmax argmin", rows, FLOATS, how="all", deviates=NAN_BY_PLACE)
rows_of(ops, "sum", rows, FLOATS, how="keepdims", axis=-1, keepdims=True, limit=5e-6)
rows_of(ops, "max argmin", rows, FLOATS, how="keepdims", axis=-1, keepdims=True, deviates=NAN_BY_PLACE)
rows_of(ops, "sum max mean", ordinary((2, 3, 4)), FLOATS, how="two axes", axis=(0, 2))
rows_of(ops, "max min", rows, FLOATS, how="initial", axis=-1, initial=2.0, deviates=NAN_BY_PLACE)
rows_of(ops, "glu", ORDINARY, FLOATS, known=True)
for order in (1, 2, 3):
    rows_of(ops, "normalize", rows, ("float32",), how=f"order {order}", axis=-1, order=order, limit=5e-6)
rows_of(ops, "moments", rows, FLOATS, axes=[-1], limit=5e-6)

for method in ("linear", "lower", "higher", "midpoint", "nearest"):
    rows_of(ops, "quantile", rows, FLOATS, how=method, q=[0.1, 0.5], axis=-1, method=method, limit=5e-6)
rows_of(ops, "percentile", rows, FLOATS, q=30, axis=-1, limit=5e-6)
rows_of(ops, "nanpercentile", rows, ("float32",), q=30, axis=-1, refused="cannot be traced")
rows_of(ops, "nanquantile", rows, ("float32",), q=0.3, axis=-1, refused="cannot be traced")
rows_of(ops, "nanmedian", rows, ("float32",), axis=-1, refused="cannot be traced")

for k in (1, 3):
    rows_of(ops, "top_k", rows, FLOATS, how=f"{k}", k=k, deviates=NAN_BY_PLACE)
    rows_of(ops, "top_k", rows, INTEGERS, how=f"{k}", k=k)
rows_of(ops, "argpartition", ORDINARY, ("int32",), kth=2)
in_top = partial(lambda k, x, ids: ops.in_top_k(ids, x, k), 2)
CLASSES = np.array([0, 1, 2, -1, 9], "int32")
add(
    "keras.ops.in_top_k",
    in_top,
    lambda kind, dtype: (*rows(kind, dtype), CLASSES[: len(rows(kind, dtype)[0])]) if kind != "an axis of 0" else None,
    ("float32",),
)
rows_of(ops, "unique", ORDINARY, ("int32", "int64", "float32"))
rows_of(ops, "nonzero", rows, ALL)
rows_of(ops, "isin", rows, ("int32",), x2=np.array([1, 3, 7]), refused="cannot be traced")
rows_of(ops, "allclose", lambda *of: None if rows(*of) is None else rows(*of) * 2, FLOATS)
rows_of(ops, "digitize", rows, (*FLOATS, *INTEGERS), bins=[-3.5, 0, 2])
add("keras.ops.searchsorted", lambda x: ops.searchsorted(ops.sort(x[0]), x[1]), ORDINARY, NUMBERS, known=True)
rows_of(
    ops,
    "searchsorted",
    fixed(np.array([-1.0, 0, 0, 2.5]), np.array([-2.0, 0, 2.5, 3])),
    FLOATS,
    how="right",
    side="right",
    known=True,
)
rows_of(ops, "histogram", ordinary((9,)), ("float32",), bins=5, limit=5e-6)
rows_of(ops, "histogram", ordinary((9,)), ("float32",), how="range", bins=5, range=(0.0, 2.0), limit=5e-6)

rows_of(ops, "trapezoid", rows, FLOATS, limit=5e-6)
rows_of(ops, "dot vdot outer", ordinary((4,), (4,)), NUMBERS)
rows_of(ops, "inner", ordinary((4,), (4,)), NUMBERS, known=True)
rows_of(ops, "kron", ordinary((4,), (4,)), ("float32",), known=True, refused="cannot be traced")
rows_of(ops, "matmul", ordinary((3, 4), (4, 2)), NUMBERS)
rows_of(ops, "tensordot", ordinary((3, 4), (4, 2)), FLOATS, axes=1)
add("keras.ops.einsum", partial(ops.einsum, "bij,bjk->bik"), ordinary((2, 3, 4), (2, 4, 5)), FLOATS)
rows_of(ops, "cross", ordinary((2, 3), (2, 3)), (*FLOATS, "int32"))
rows_of(ops, "cross", ordinary((5, 2), (5, 2)), FLOATS, how="two by two", known=True)
rows_of(ops, "correlate", ordinary((5,), (3,)), FLOATS, how="valid", mode="valid", limit=5e-6)
rows_of(ops, "correlate", ordinary((5,), (3,)), FLOATS, how="same", mode="same", known=True, limit=5e-6)
rows_of(ops, "corrcoef", ordinary((3, 4)), ("float32",), refused="cannot be traced")
rows_of(ops, "cdist", ordinary((3, 4), (2, 4)), FLOATS, limit=5e-6)
rows_of(ops, "vander", ordinary((4,)), FLOATS)
rows_of(ops, "vander", ordinary((4,)), FLOATS, how="increasing", N=3, increasing=True)
