"""Operators of `keras.ops` that take, put, move or make numbers by place."""

from functools import partial

import numpy as np
from keras import layers, ops

from .grids import ALL, FLOATS, INTEGERS, NUMBERS, SIGNED, each, fixed, ordinary
from .table import add, rows_of

IDS = np.array([[0, -1, 2], [3, 5, -2], [7, -(2**31), 2**31 - 1]], "int32")
PLACES = np.array([[0], [3], [0], [1], [3], [0]], "int32")  # of which some are given twice
ONCE = np.array([[0], [3], [2], [1], [5], [4]], "int32")
ROWS = np.arange(18.0).reshape(6, 3) - 7.5
SPECIAL = np.where(ROWS == 2.5, np.inf, np.where(ROWS == -5.5, np.nan, ROWS))
SORTED, LOOSE = np.array([0, 0, 1, 1, 3, 3], "int32"), np.array([2, -1, 0, 2, -5, 0], "int32")
GRID, MATRIX = ordinary((2, 3, 4)), ordinary((3, 4))


def with_rows(*others, **kinds):
    """Rows of a dtype, with what else is given."""

    def given(kind: str, dtype: str):
        found = fixed(ROWS, *others, **{word: (rows, *others) for word, rows in kinds.items()})(kind, dtype)
        return found and (np.abs(ROWS).astype(dtype) if dtype == "uint8" else found[0].astype(dtype), *found[1:])

    return given


# one-hot vectors and tables
for axis in (-1, 0, 1):
    rows_of(ops, "one_hot", fixed(IDS), ("int32",), how=f"axis {axis}", num_classes=4, axis=axis)
rows_of(ops, "one_hot", each, INTEGERS, num_classes=3)
for dtype in ("float16", "int32", "uint8", "bool"):
    rows_of(ops, "one_hot", fixed(IDS), ("int32",), how=dtype, num_classes=4, dtype=dtype)
rows_of(ops, "multi_hot", fixed(IDS), ("int32",), num_classes=4)
add(
    "keras.layers.CategoryEncoding",
    layers.CategoryEncoding(3, output_mode="one_hot"),
    fixed(IDS[:, 1:2]),
    ("int32",),
    "ids out of range",
    known=True,
)
FROM_END = fixed(np.array([[0, 7, -1], [-8, 3, 3]], "int32"))
add("keras.layers.Embedding", layers.Embedding(8, 3), FROM_END, ("int32",), "negative ids")
for layer in (
    layers.Discretization(bin_boundaries=[-1.0, 0.0, 2.0]),
    layers.Rescaling(1 / 255, -0.5),
    layers.Normalization(mean=1.0, variance=0.0),
):
    add(f"keras.layers.{type(layer).__name__}", layer, each, ("float32",))
WORDS = np.array([[5, -3], [2**40, 7], [-1, 0]], "int64")
for name, options in {
    "": {},
    "num_oov_indices=3": {"num_oov_indices": 3},
    "multi_hot": {"output_mode": "multi_hot"},
    "invert": {"invert": True},
    "mask_token": {"mask_token": 0},
}.items():
    layer = layers.IntegerLookup(vocabulary=[5, 7, -3, 2**40], **options)
    add("keras.layers.IntegerLookup", layer, fixed(np.abs(WORDS) % 4 if name == "invert" else WORDS), ("int64",), name)

# taking
for axis in (0, 1, None):
    rows_of(ops, "take", with_rows(np.array([[0, -1], [2, -3]], "int32")), NUMBERS, how=f"axis {axis}", axis=axis)
AT = np.array([[0, -1, 2], [1, -3, 0]], "int32")
rows_of(ops, "take_along_axis", with_rows(AT), NUMBERS, how="axis 0", axis=0)
rows_of(ops, "take_along_axis", with_rows(np.tile(AT[:1], (6, 1))), NUMBERS, how="axis -1", axis=-1)
add("keras.ops.get_item", lambda x: ops.get_item(x, (slice(None, None, -2), -2)), with_rows(), NUMBERS)
add("keras.ops.slice", lambda x: ops.slice(x, (1, 1), (2, -1)), with_rows(), NUMBERS)
add(
    "keras.ops.unravel_index",
    lambda x: ops.unravel_index(x, (3, 4)),
    fixed(np.array([0, 5, 11, -1], "int64")),
    ("int64",),
)
add("keras.ops.select", lambda x: ops.select([x > 3, x < 0], [x, -x], 1), with_rows(), FLOATS)

# putting
add("keras.ops.scatter", lambda x, at: ops.scatter(at, x, (5, 3)), with_rows(PLACES, nan=SPECIAL), NUMBERS)
add("keras.ops.scatter", lambda x: ops.scatter(PLACES, x, (5, 3)), with_rows(), FLOATS, "known indices")
add("keras.ops.scatter", lambda x: ops.scatter(ONCE, x, (6, 3)), with_rows(), FLOATS, "known indices without repeats")
add("keras.ops.scatter_update", lambda x, at: ops.scatter_update(x, at, x[::-1]), with_rows(ONCE), NUMBERS)
for how in ("add", "max", "min", "mul"):
    put = partial(lambda how, x, at: ops.scatter_update(x, at, x[::-1], reduction=how), how)
    add("keras.ops.scatter_update", put, with_rows(PLACES), NUMBERS, how)
add("keras.ops.slice_update", lambda x: ops.slice_update(x, (1, 1), x[:2, :2]), with_rows(), NUMBERS)
for kind in ("sum", "max", "min", "prod"):
    name, function = f"keras.ops.segment_{kind}", getattr(ops, f"segment_{kind}")
    add(name, partial(function, sorted=True), with_rows(SORTED, nan=SPECIAL), NUMBERS, "sorted", limit=5e-6)
    add(
        name,
        partial(function, num_segments=4),
        with_rows(LOOSE, nan=SPECIAL),
        NUMBERS,
        "ids of -1 and empty segments",
        limit=5e-6,
    )
    add(name, function, with_rows(np.array([2, 1, 0, 2, 1, 0], "int32")), FLOATS, limit=5e-6)
COUNTED = np.array([0, 3, 3, 7], "int32")
rows_of(ops, "bincount", fixed(COUNTED), SIGNED)
rows_of(ops, "bincount", fixed(COUNTED), ("int32",), how="minlength=10", minlength=10)
rows_of(ops, "bincount", fixed(COUNTED.reshape(2, 2)), ("int32",), how="rows")
add(
    "keras.ops.bincount",
    lambda x, of: ops.bincount(x, of),
    fixed(COUNTED, np.array([0.5, 1, 2, -1])),
    ("float32",),
    "weights",
)

# moving
rows_of(ops, "tril triu diag diagonal trace ravel transpose flipud fliplr rot90", MATRIX, ALL)
for k in (1, -1):
    for name in ("tril", "triu", "diag", "diagonal"):
        add(f"keras.ops.{name}", partial(lambda f, k, x: f(x, k), getattr(ops, name), k), MATRIX, ALL, f"{k}")
add("keras.ops.tril", lambda x: ops.tril(ops.log(ops.relu(x))), GRID, FLOATS, "infinite")
rows_of(ops, "diag diagflat", ordinary((4,)), NUMBERS, how="1D input")
for shift in (0, 1, -1, 7, 2**20 + 1):
    rows_of(ops, "roll", MATRIX, NUMBERS, how=f"{shift}", shift=shift, axis=1)
rows_of(ops, "roll", MATRIX, FLOATS, how="all", shift=5)
rows_of(ops, "repeat", MATRIX, ALL, repeats=2, axis=1)
rows_of(ops, "repeat", MATRIX, FLOATS, how="all", repeats=2)
rows_of(ops, "repeat", MATRIX, FLOATS, how="a number of repeats for each", repeats=[0, 1, 2, 3], axis=1, known=True)
rows_of(ops, "tile", MATRIX, ALL, repeats=[2, 1, 3])
for mode in ("constant", "reflect", "symmetric"):
    rows_of(ops, "pad", MATRIX, NUMBERS, how=mode, pad_width=((1, 2), (2, 1)), mode=mode)
rows_of(ops, "expand_dims", MATRIX, ALL, axis=1)
rows_of(ops, "squeeze", ordinary((3, 1, 4)), ALL, axis=1, known=True)
rows_of(ops, "swapaxes", GRID, ALL, axis1=0, axis2=2)
rows_of(ops, "moveaxis", GRID, ALL, source=0, destination=-1)
rows_of(ops, "reshape", MATRIX, ALL, newshape=(-1, 6))
rows_of(ops, "broadcast_to", ordinary((1, 4)), ALL, shape=(3, 4))
rows_of(ops, "split", MATRIX, ALL, indices_or_sections=[1, 3], axis=-1, known=True)
rows_of(ops, "array_split", MATRIX, ALL, indices_or_sections=3, axis=-1, known=True)
rows_of(ops, "hsplit", MATRIX, FLOATS, indices_or_sections=2, known=True)
rows_of(ops, "vsplit", MATRIX, FLOATS, indices_or_sections=3, known=True)
rows_of(ops, "dsplit", GRID, FLOATS, indices_or_sections=2, known=True)
rows_of(ops, "unstack", MATRIX, ALL, axis=-1, known=True)
for name in ("concatenate", "stack", "hstack", "vstack", "dstack"):
    add(f"keras.ops.{name}", partial(lambda f, x, y: f([x, y]), getattr(ops, name)), ordinary((3, 4), (3, 4)), ALL)
rows_of(ops, "append", ordinary((3, 4), (3, 4)), ALL, axis=0)
rows_of(ops, "meshgrid", ordinary((3,), (4,)), ALL)
add("keras.ops.rearrange", partial(ops.rearrange, pattern="b (h w) c -> b h w c", h=3, w=1), GRID, FLOATS, known=True)
rows_of(ops, "extract_sequences", MATRIX, FLOATS, sequence_length=2, sequence_stride=1, known=True)
add("keras.ops.shape", lambda x: ops.zeros(ops.shape(x)[1:]), GRID)
rows_of(ops, "size", GRID)

# making
for name, arguments in {
    "arange": (1, 10, 2.5),
    "linspace": (0.0, 2.0, 4),
    "logspace": (0, 2, 4),
    "geomspace": (1.0, 8.0, 4),
    "eye": (3, 4, 1),
    "identity": (4,),
    "tri": (3, 4, -1),
    "ones": ((3, 4),),
    "zeros": ((3, 4),),
    "full": ((3, 4), 2.5),
    "hanning": (4,),
    "hamming": (4,),
    "blackman": (4,),
    "kaiser": (4, 3.0),
    "array": ([1.0, 2],),
    "convert_to_tensor": ([1.0, 2],),
}.items():
    made = partial(lambda of, arguments, x: of(*arguments) + ops.sum(x), getattr(ops, name), arguments)
    add(f"keras.ops.{name}", made, ordinary((2,)), ("float32",))
add("keras.ops.empty", lambda x: ops.shape(ops.empty((3, 4)))[0] + x, ordinary((2,)), ("int32",))
rows_of(ops, "empty_like", fixed(np.zeros((0, 3))), ("float32",))
add(
    "keras.ops.arange",
    lambda x: ops.arange(ops.shape(x)[0], 0, -2),
    ordinary((5,)),
    ("float32",),
    "length from a shape",
)
add("keras.ops.linspace", lambda x: ops.linspace(x[0], x[1], 5), MATRIX, FLOATS, "limits as tensors", limit=5e-6)

# losses
rows_of(
    ops,
    "categorical_crossentropy binary_crossentropy",
    fixed(np.array([[0.0, 1, 0], [0, 0, 1]]), np.array([[0.2, 0.5, 0.3], [1.0, 0, 0]])),
    FLOATS,
    limit=5e-6,
)
SCORES = np.array([[2.0, -1, 1], [-50, 100, 0]])
add(
    "keras.ops.sparse_categorical_crossentropy",
    lambda t, x: ops.sparse_categorical_crossentropy(t, x, from_logits=True),
    fixed(np.array([0, 2], "int32"), SCORES),
    FLOATS,
    limit=5e-6,
)
rows_of(ops, "psnr", fixed(SCORES, SCORES + 1), FLOATS, max_val=1.0, limit=5e-6)
rows_of(ops, "bartlett", fixed(np.array(4, "int32")), ("int32",), refused="cannot be traced")
