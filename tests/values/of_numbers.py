"""Elementwise operators of `keras.ops`."""

from functools import partial

import numpy as np
from keras import ops

from .grids import (
    DTYPES,
    FLOAT32,
    FLOATS,
    INT32,
    INTEGERS,
    NUMBERS,
    REALS,
    SIGNED_INTEGERS,
    feed,
    fill,
    make_array,
    make_pairs,
    make_quotients,
)
from .table import add, add_ops

add_ops(ops, "abs absolute negative square floor ceil trunc", make_array, REALS)
add_ops(ops, "fabs", make_array, FLOATS)
add_ops(ops, "sign relu isposinf isneginf signbit nan_to_num", make_array, NUMBERS)
add_ops(ops, "isfinite isinf isnan", make_array, FLOATS)
add_ops(ops, "isfinite isinf isnan", fill((5,)), INTEGERS, variant="of integers", is_static=True)
add_ops(ops, "exp expm1 sqrt rsqrt tanh sin cos tan sinh cosh arctan arcsinh erf", make_array, FLOATS)
add_ops(ops, "exp2", make_array, FLOAT32)
add_ops(ops, "log log10 log2 log1p arcsin arccos arccosh arctanh reciprocal deg2rad rad2deg", make_array, FLOATS)
# A larger limit: these operators subtract nearly equal numbers.
add_ops(ops, "erfc gelu squareplus tanh_shrink", make_array, FLOATS, limit=1e-4)
add_ops(ops, "erfinv", make_array, FLOAT32, refusal="Op `Erfinv`")
add_ops(ops, "gelu", make_array, FLOATS, variant="exact", approximate=False, limit=1e-4)
add_ops(ops, "sigmoid silu i0", make_array, FLOATS, limit=1e-5)
add_ops(ops, "sinc", make_array, FLOAT32)
add_ops(ops, "softplus elu selu celu relu6 leaky_relu softsign log_sigmoid", make_array, FLOATS)
add_ops(ops, "hard_sigmoid hard_silu hard_tanh hard_shrink soft_shrink", make_array, FLOATS)
add_ops(ops, "sparse_plus sparse_sigmoid cbrt", make_array, FLOATS)
add_ops(ops, "threshold", make_array, FLOATS, variant="0.5, -1", threshold=0.5, default_value=-1)
add_ops(ops, "nan_to_num", make_array, FLOATS, variant="1, 2, 3", nan=1.0, posinf=2.0, neginf=3.0)
add_ops(ops, "logical_not zeros_like ones_like copy isreal imag", make_array, DTYPES)
add_ops(ops, "real conj", make_array, NUMBERS)
add_ops(ops, "bitwise_not bitwise_invert", make_array, INTEGERS)
add_ops(ops, "full_like", make_array, NUMBERS, fill_value=2)
add_ops(ops, "stop_gradient", make_array, FLOATS)
add_ops(ops, "angle", make_array, FLOATS)
add_ops(ops, "heaviside", make_array, FLOATS, x2=0.5)
for decimals in (0, 2, -1):
    dtypes, variant = FLOAT32 if decimals else FLOATS, f"{decimals} decimals"
    add_ops(ops, "round", make_array, dtypes, variant=variant, decimals=decimals)
add_ops(ops, "round", make_array, SIGNED_INTEGERS)

add_ops(ops, "add subtract multiply maximum minimum fmax fmin", make_pairs, NUMBERS)
add_ops(ops, "divide true_divide", make_pairs, NUMBERS)
add_ops(ops, "divide_no_nan logaddexp hypot arctan2 isclose", make_pairs, FLOATS)
add_ops(ops, "nextafter", make_pairs, FLOAT32, refusal="`NextAfter`")
add_ops(ops, "logaddexp2", make_pairs, FLOAT32)
# Without float16: TensorFlow rounds the quotient to float16 before the floor, onnxruntime computes both in float32.
add_ops(ops, "floor_divide", make_quotients, ("float32", *INTEGERS))
add_ops(ops, "mod fmod", make_quotients, NUMBERS)
add_ops(ops, "equal not_equal logical_and logical_or logical_xor", make_pairs, DTYPES)
add_ops(ops, "less less_equal greater greater_equal", make_pairs, NUMBERS)
add_ops(ops, "bitwise_and bitwise_or bitwise_xor left_shift right_shift", make_pairs, INTEGERS)
add_ops(ops, "bitwise_left_shift bitwise_right_shift", make_pairs, INTEGERS)
add_ops(ops, "power", make_pairs, FLOATS)
add("keras.ops.power", lambda x: ops.power(x, 3), feed(np.arange(-9, 9, dtype="int32")), INT32, "3")
add("keras.ops.where", lambda x, y: ops.where(x > y, x, y), make_pairs, NUMBERS)
add("keras.ops.where", lambda x, y: ops.where(x, y, ops.logical_not(y)), make_pairs, ("bool",), "booleans")
add_ops(ops, "clip", make_array, (*FLOATS, *INTEGERS), x_min=2, x_max=7)
add_ops(ops, "gcd lcm", feed(np.int32([0, 4, -6, 12, 7]), np.int32([3, 6, 4, 0, 7])), INT32, is_static=True)
add_ops(ops, "ldexp", feed(np.array([1.5, -2.0, 0.0]), np.int32([3, -2, 5])), FLOAT32)

for divisor in (3, 4, -3, 1):
    floor_divide, mod = (
        partial(lambda divisor, x: x // divisor, divisor),
        partial(lambda divisor, x: x % divisor, divisor),
    )
    add("keras.ops.floor_divide", floor_divide, make_array, ("float32", *SIGNED_INTEGERS), f"by {divisor}")
    add("keras.ops.mod", mod, make_array, REALS, f"by {divisor}")
add("keras.ops.floor_divide", lambda x: -(-x // 2), make_array, SIGNED_INTEGERS, "rounded up")


def make_castable(target: str):
    """Return an input maker of the values in the range of a target dtype: casts of other floats are undefined."""

    def make_inputs(kind: str, dtype: str):
        inputs = make_array(kind, dtype)
        if inputs is None or not (np.issubdtype(dtype, np.floating) and np.issubdtype(target, np.integer)):
            return inputs
        limits = np.iinfo(target)
        castable_values = inputs[0][(inputs[0] > limits.min) & (inputs[0] < limits.max)]
        return (castable_values,) if kind not in ("infinities", "NaN") else None

    return make_inputs


for dtype in ("float32", "float16", "int8", "int32", "int64", "uint8", "bool"):
    cast, saturate_cast = partial(ops.cast, dtype=dtype), partial(ops.saturate_cast, dtype=dtype)
    add("keras.ops.cast", cast, make_castable(dtype), DTYPES, f"to {dtype}")
    add("keras.ops.saturate_cast", saturate_cast, make_array, DTYPES, f"to {dtype}")
add("keras.ops.view", lambda x: ops.view(x, "int32"), make_array, FLOAT32, refusal="cannot be traced")
