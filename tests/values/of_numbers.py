"""Operators of `keras.ops` that are computed number by number."""

from functools import partial

from keras import ops

from .grids import ALL, FLOATS, INTEGERS, NUMBERS, REALS, SIGNED, each, pairs, quotients, rows
from .table import add, rows_of

rows_of(ops, "abs negative sign square floor ceil round trunc relu", each, REALS)
rows_of(ops, "exp log sqrt rsqrt reciprocal sigmoid tanh sin cos erf softplus silu gelu", each, FLOATS)
rows_of(ops, "add subtract multiply maximum minimum", pairs, NUMBERS)
rows_of(ops, "divide floor_divide mod", quotients, NUMBERS)
rows_of(ops, "power", pairs, FLOATS)
rows_of(ops, "equal less greater_equal", pairs, ALL)
rows_of(ops, "bitwise_and bitwise_or bitwise_xor left_shift right_shift", pairs, INTEGERS)
for axis in (-1, 0):
    along = partial(rows_of, ops, given=rows, how=f"axis={axis}", axis=axis)
    along("sum max min prod mean argmax argmin sort argsort cumsum cumprod", dtypes=NUMBERS)
    along("softmax logsumexp", dtypes=FLOATS)
add("keras.ops.one_hot", lambda x: ops.one_hot(x, 3), each, SIGNED, "3 classes")
