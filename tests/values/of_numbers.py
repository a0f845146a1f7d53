"""Operators of `keras.ops` that are computed number by number."""

from functools import partial

import numpy as np
from keras import ops

from .grids import ALL, FLOATS, INTEGERS, NUMBERS, REALS, SIGNED, each, fixed, ordinary, pairs, quotients
from .table import add, rows_of

rows_of(ops, "abs absolute negative square floor ceil trunc", each, REALS)
rows_of(ops, "fabs", each, FLOATS)
rows_of(ops, "sign relu isposinf isneginf signbit nan_to_num", each, NUMBERS)
rows_of(ops, "isfinite isinf isnan", each, FLOATS)
rows_of(ops, "isfinite isinf isnan", ordinary((5,)), INTEGERS, how="of integers", known=True)
rows_of(ops, "exp expm1 sqrt rsqrt tanh sin cos tan sinh cosh arctan arcsinh erf", each, FLOATS)
rows_of(ops, "exp2", each, ("float32",))
rows_of(ops, "log log10 log2 log1p arcsin arccos arccosh arctanh reciprocal deg2rad rad2deg", each, FLOATS)
# rounding of what nearly cancels
rows_of(ops, "erfc gelu squareplus tanh_shrink", each, FLOATS, limit=1e-4)
rows_of(ops, "erfinv", each, ("float32",), refused="Op `Erfinv`")
rows_of(ops, "gelu", each, FLOATS, how="exact", approximate=False, limit=1e-4)
rows_of(ops, "sigmoid silu i0", each, FLOATS, limit=1e-5)
rows_of(ops, "sinc", each, ("float32",))
rows_of(ops, "softplus elu selu celu relu6 leaky_relu softsign log_sigmoid", each, FLOATS)
rows_of(ops, "hard_sigmoid hard_silu hard_tanh hard_shrink soft_shrink", each, FLOATS)
rows_of(ops, "sparse_plus sparse_sigmoid cbrt", each, FLOATS)
rows_of(ops, "threshold", each, FLOATS, how="0.5, -1", threshold=0.5, default_value=-1)
rows_of(ops, "nan_to_num", each, FLOATS, how="1, 2, 3", nan=1.0, posinf=2.0, neginf=3.0)
rows_of(ops, "logical_not zeros_like ones_like copy isreal imag", each, ALL)
rows_of(ops, "real conj", each, NUMBERS)
rows_of(ops, "bitwise_not bitwise_invert", each, INTEGERS)
rows_of(ops, "full_like", each, NUMBERS, fill_value=2)
rows_of(ops, "stop_gradient", each, FLOATS)
rows_of(ops, "angle", each, FLOATS)
rows_of(ops, "heaviside", each, FLOATS, x2=0.5)
for decimals in (0, 2, -1):
    rows_of(ops, "round", each, FLOATS if not decimals else ("float32",), how=f"{decimals} decimals", decimals=decimals)
rows_of(ops, "round", each, SIGNED)

rows_of(ops, "add subtract multiply maximum minimum fmax fmin", pairs, NUMBERS)
rows_of(ops, "divide true_divide", pairs, NUMBERS)
rows_of(ops, "divide_no_nan logaddexp hypot arctan2 isclose", pairs, FLOATS)
rows_of(ops, "nextafter", pairs, ("float32",), refused="`NextAfter`")
rows_of(ops, "logaddexp2", pairs, ("float32",))
# a quotient of float16 is rounded in TensorFlow before it is floored, and float32 in onnxruntime
rows_of(ops, "floor_divide", quotients, ("float32", *INTEGERS))
rows_of(ops, "mod fmod", quotients, NUMBERS)
rows_of(ops, "equal not_equal logical_and logical_or logical_xor", pairs, ALL)
rows_of(ops, "less less_equal greater greater_equal", pairs, NUMBERS)
rows_of(ops, "bitwise_and bitwise_or bitwise_xor left_shift right_shift", pairs, INTEGERS)
rows_of(ops, "bitwise_left_shift bitwise_right_shift", pairs, INTEGERS)
rows_of(ops, "power", pairs, FLOATS)
add("keras.ops.power", lambda x: ops.power(x, 3), fixed(np.arange(-9, 9, dtype="int32")), ("int32",), "3")
add("keras.ops.where", lambda x, y: ops.where(x > y, x, y), pairs, NUMBERS)
add("keras.ops.where", lambda x, y: ops.where(x, y, ops.logical_not(y)), pairs, ("bool",), "booleans")
rows_of(ops, "clip", each, (*FLOATS, *INTEGERS), x_min=2, x_max=7)
BOTH = np.array([0, 4, -6, 12, 7], "int32"), np.array([3, 6, 4, 0, 7], "int32")
rows_of(ops, "gcd lcm", fixed(*BOTH), ("int32",), known=True)
rows_of(ops, "ldexp", fixed(np.array([1.5, -2.0, 0.0]), np.array([3, -2, 5], "int32")), ("float32",))

for divisor in (3, 4, -3, 1):
    given, how = partial(lambda kind, dtype: each(kind, dtype)), f"by {divisor}"
    add("keras.ops.floor_divide", partial(lambda by, x: x // by, divisor), given, ("float32", *SIGNED), how)
    add("keras.ops.mod", partial(lambda by, x: x % by, divisor), given, REALS, how)
add("keras.ops.floor_divide", lambda x: -(-x // 2), each, SIGNED, "rounded up")


def held(target: str):
    """What both dtypes hold: casts of other floats are undefined."""

    def given(kind: str, dtype: str):
        found = each(kind, dtype)
        if found is None or not (np.issubdtype(dtype, np.floating) and np.issubdtype(target, np.integer)):
            return found
        limits = np.iinfo(target)
        inside = found[0][(found[0] > limits.min) & (found[0] < limits.max)]
        return (inside,) if kind not in ("infinities", "NaN") else None

    return given


for dtype in ("float32", "float16", "int8", "int32", "int64", "uint8", "bool"):
    add("keras.ops.cast", partial(lambda to, x: ops.cast(x, to), dtype), held(dtype), ALL, f"to {dtype}")
    add("keras.ops.saturate_cast", partial(lambda to, x: ops.saturate_cast(x, to), dtype), each, ALL, f"to {dtype}")
add("keras.ops.view", lambda x: ops.view(x, "int32"), each, ("float32",), refused="cannot be traced")
