"""Test cases for operators that gather, scatter, rearrange or create elements by position.

There are also cases for layers that encode or scale their inputs, and for losses. `add` and `add_ops` add cases to the
table. `feed`, `fill` and `feed_rows` return input makers, which `grids.py` describes.
"""

from functools import partial

import numpy as np
from keras import layers, ops

from .grids import DTYPES, FLOAT32, FLOATS, INT32, INTEGERS, NUMBERS, SIGNED_INTEGERS, feed, fill, make_array
from .table import add, add_ops

IDS = np.array([[0, -1, 2], [3, 5, -2], [7, -(2**31), 2**31 - 1]], "int32")
REPEATED_INDICES = np.int32([[0], [3], [0], [1], [3], [0]])
UNIQUE_INDICES = np.int32([[0], [3], [2], [1], [5], [4]])
ROWS = np.arange(18.0).reshape(6, 3) - 7.5
NON_FINITE_ROWS = np.where(ROWS == 2.5, np.inf, np.where(ROWS == -5.5, np.nan, ROWS))
SORTED_IDS, UNSORTED_IDS = np.int32([0, 0, 1, 1, 3, 3]), np.int32([2, -1, 0, 2, -5, 0])
make_3d_array, make_matrix = fill((2, 3, 4)), fill((3, 4))


def feed_rows(*arguments, **rows_by_special_kind):
    """Return an input maker that returns `ROWS`, followed by `arguments`.

    The rows are cast to the dtype of the case. If it is uint8, they are the absolute values of `ROWS`. A keyword is a
    kind of special values, such as `nan`. Its value replaces `ROWS` for this kind.
    """

    def make_inputs(kind: str, dtype: str):
        inputs_by_kind = {keyword: (rows, *arguments) for keyword, rows in rows_by_special_kind.items()}
        inputs = feed(ROWS, *arguments, **inputs_by_kind)(kind, dtype)
        return inputs and (np.abs(ROWS).astype(dtype) if dtype == "uint8" else inputs[0].astype(dtype), *inputs[1:])

    return make_inputs


# Encoding of ids, tables, and scaling
for axis in (-1, 0, 1):
    add_ops(ops, "one_hot", feed(IDS), INT32, variant=f"axis {axis}", num_classes=4, axis=axis)
add_ops(ops, "one_hot", make_array, INTEGERS, num_classes=3)
for dtype in ("float16", "int32", "uint8", "bool"):
    add_ops(ops, "one_hot", feed(IDS), INT32, variant=dtype, num_classes=4, dtype=dtype)
add_ops(ops, "multi_hot", feed(IDS), INT32, num_classes=4)
encoding = layers.CategoryEncoding(3, output_mode="one_hot")
add("keras.layers.CategoryEncoding", encoding, feed(IDS[:, 1:2]), INT32, "ids out of range", is_static=True)
# `negative_ids` is an input maker.
negative_ids = feed(np.int32([[0, 7, -1], [-8, 3, 3]]))
add("keras.layers.Embedding", layers.Embedding(8, 3), negative_ids, INT32, "negative ids")
for layer in (
    layers.Discretization(bin_boundaries=[-1.0, 0.0, 2.0]),
    layers.Rescaling(1 / 255, -0.5),
    layers.Normalization(mean=1.0, variance=0.0),
):
    add(f"keras.layers.{type(layer).__name__}", layer, make_array, FLOAT32)
TOKENS = np.int64([[5, -3], [2**40, 7], [-1, 0]])
for variant, options in {
    "": {},
    "num_oov_indices=3": {"num_oov_indices": 3},
    "multi_hot": {"output_mode": "multi_hot"},
    "invert": {"invert": True},
    "mask_token": {"mask_token": 0},
}.items():
    layer = layers.IntegerLookup(vocabulary=[5, 7, -3, 2**40], **options)
    tokens = np.abs(TOKENS) % 4 if variant == "invert" else TOKENS
    add("keras.layers.IntegerLookup", layer, feed(tokens), ("int64",), variant)

# Gathering
for axis in (0, 1, None):
    add_ops(ops, "take", feed_rows(np.int32([[0, -1], [2, -3]])), NUMBERS, variant=f"axis {axis}", axis=axis)
INDICES = np.int32([[0, -1, 2], [1, -3, 0]])
add_ops(ops, "take_along_axis", feed_rows(INDICES), NUMBERS, variant="axis 0", axis=0)
add_ops(ops, "take_along_axis", feed_rows(np.tile(INDICES[:1], (6, 1))), NUMBERS, variant="axis -1", axis=-1)
add("keras.ops.get_item", lambda x: ops.get_item(x, (slice(None, None, -2), -2)), feed_rows(), NUMBERS)
add("keras.ops.slice", lambda x: ops.slice(x, (1, 1), (2, -1)), feed_rows(), NUMBERS)
add("keras.ops.unravel_index", lambda x: ops.unravel_index(x, (3, 4)), feed(np.int64([0, 5, 11, -1])), ("int64",))
add("keras.ops.select", lambda x: ops.select([x > 3, x < 0], [x, -x], 1), feed_rows(), FLOATS)

# Scattering
add(
    "keras.ops.scatter",
    lambda x, i: ops.scatter(i, x, (5, 3)),
    feed_rows(REPEATED_INDICES, nan=NON_FINITE_ROWS),
    NUMBERS,
)
for variant, indices, shape in (
    ("known indices", REPEATED_INDICES, (5, 3)),
    ("known indices without repeats", UNIQUE_INDICES, (6, 3)),
):
    scatter = partial(lambda indices, shape, x: ops.scatter(indices, x, shape), indices, shape)
    add("keras.ops.scatter", scatter, feed_rows(), FLOATS, variant)
add("keras.ops.scatter_update", lambda x, i: ops.scatter_update(x, i, x[::-1]), feed_rows(UNIQUE_INDICES), NUMBERS)
for reduction in ("add", "max", "min", "mul"):
    update = partial(lambda reduction, x, i: ops.scatter_update(x, i, x[::-1], reduction=reduction), reduction)
    add("keras.ops.scatter_update", update, feed_rows(REPEATED_INDICES), NUMBERS, reduction)
add("keras.ops.slice_update", lambda x: ops.slice_update(x, (1, 1), x[:2, :2]), feed_rows(), NUMBERS)
for reduction in ("sum", "max", "min", "prod"):
    name, function = f"keras.ops.segment_{reduction}", getattr(ops, f"segment_{reduction}")
    add(name, partial(function, sorted=True), feed_rows(SORTED_IDS, nan=NON_FINITE_ROWS), NUMBERS, "sorted", limit=5e-6)
    reduce_unsorted, make_inputs = partial(function, num_segments=4), feed_rows(UNSORTED_IDS, nan=NON_FINITE_ROWS)
    add(name, reduce_unsorted, make_inputs, NUMBERS, "ids of -1 and empty segments", limit=5e-6)
    add(name, function, feed_rows(np.int32([2, 1, 0, 2, 1, 0])), FLOATS, limit=5e-6)
COUNTS = np.int32([0, 3, 3, 7])
add_ops(ops, "bincount", feed(COUNTS), SIGNED_INTEGERS)
add_ops(ops, "bincount", feed(COUNTS), INT32, variant="minlength=10", minlength=10)
add_ops(ops, "bincount", feed(COUNTS.reshape(2, 2)), INT32, variant="rows")
add("keras.ops.bincount", lambda x, w: ops.bincount(x, w), feed(COUNTS, np.array([0.5, 1, 2, -1])), FLOAT32, "weights")

# Rearranging
add_ops(ops, "tril triu diag diagonal trace ravel transpose flipud fliplr rot90", make_matrix, DTYPES)
for k in (1, -1):
    for name in ("tril", "triu", "diag", "diagonal"):
        add(f"keras.ops.{name}", partial(lambda f, k, x: f(x, k), getattr(ops, name), k), make_matrix, DTYPES, f"{k}")
add("keras.ops.tril", lambda x: ops.tril(ops.log(ops.relu(x))), make_3d_array, FLOATS, "infinite")
add_ops(ops, "diag diagflat", fill((4,)), NUMBERS, variant="1D input")
for shift in (0, 1, -1, 7, 2**20 + 1):
    add_ops(ops, "roll", make_matrix, NUMBERS, variant=f"{shift}", shift=shift, axis=1)
add_ops(ops, "roll", make_matrix, FLOATS, variant="flattened", shift=5)
add_ops(ops, "repeat", make_matrix, DTYPES, repeats=2, axis=1)
add_ops(ops, "repeat", make_matrix, FLOATS, variant="flattened", repeats=2)
variant = "repeats for each column"
add_ops(ops, "repeat", make_matrix, FLOATS, variant=variant, repeats=[0, 1, 2, 3], axis=1, is_static=True)
add_ops(ops, "tile", make_matrix, DTYPES, repeats=[2, 1, 3])
for mode in ("constant", "reflect", "symmetric"):
    add_ops(ops, "pad", make_matrix, NUMBERS, variant=mode, pad_width=((1, 2), (2, 1)), mode=mode)
add_ops(ops, "expand_dims", make_matrix, DTYPES, axis=1)
add_ops(ops, "squeeze", fill((3, 1, 4)), DTYPES, axis=1, is_static=True)
add_ops(ops, "swapaxes", make_3d_array, DTYPES, axis1=0, axis2=2)
add_ops(ops, "moveaxis", make_3d_array, DTYPES, source=0, destination=-1)
add_ops(ops, "reshape", make_matrix, DTYPES, newshape=(-1, 6))
add_ops(ops, "broadcast_to", fill((1, 4)), DTYPES, shape=(3, 4))
add_ops(ops, "split", make_matrix, DTYPES, indices_or_sections=[1, 3], axis=-1, is_static=True)
add_ops(ops, "array_split", make_matrix, DTYPES, indices_or_sections=3, axis=-1, is_static=True)
add_ops(ops, "hsplit", make_matrix, FLOATS, indices_or_sections=2, is_static=True)
add_ops(ops, "vsplit", make_matrix, FLOATS, indices_or_sections=3, is_static=True)
add_ops(ops, "dsplit", make_3d_array, FLOATS, indices_or_sections=2, is_static=True)
add_ops(ops, "unstack", make_matrix, DTYPES, axis=-1, is_static=True)
for name in ("concatenate", "stack", "hstack", "vstack", "dstack"):
    add(f"keras.ops.{name}", partial(lambda f, x, y: f([x, y]), getattr(ops, name)), fill((3, 4), (3, 4)), DTYPES)
add_ops(ops, "append", fill((3, 4), (3, 4)), DTYPES, axis=0)
add_ops(ops, "meshgrid", fill((3,), (4,)), DTYPES)
rearrange = partial(ops.rearrange, pattern="b (h w) c -> b h w c", h=3, w=1)
add("keras.ops.rearrange", rearrange, make_3d_array, FLOATS, is_static=True)
add_ops(ops, "extract_sequences", make_matrix, FLOATS, sequence_length=2, sequence_stride=1, is_static=True)
add("keras.ops.shape", lambda x: ops.zeros(ops.shape(x)[1:]), make_3d_array)
add_ops(ops, "size", make_3d_array)

# Creating
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
    # These functions have no tensor argument. The sum of an input is added, so that the model has an input.
    create = partial(lambda function, arguments, x: function(*arguments) + ops.sum(x), getattr(ops, name), arguments)
    add(f"keras.ops.{name}", create, fill((2,)), FLOAT32)
add("keras.ops.empty", lambda x: ops.shape(ops.empty((3, 4)))[0] + x, fill((2,)), INT32)
add_ops(ops, "empty_like", feed(np.zeros((0, 3))), FLOAT32)
add("keras.ops.arange", lambda x: ops.arange(ops.shape(x)[0], 0, -2), fill((5,)), FLOAT32, "length from a shape")
add("keras.ops.linspace", lambda x: ops.linspace(x[0], x[1], 5), make_matrix, FLOATS, "limits as tensors", limit=5e-6)

# Losses, a measure of image quality and a window. `TARGETS_AND_OUTPUTS` is an input maker of both arrays.
TARGETS_AND_OUTPUTS = feed(np.array([[0.0, 1, 0], [0, 0, 1]]), np.array([[0.2, 0.5, 0.3], [1.0, 0, 0]]))
add_ops(ops, "categorical_crossentropy binary_crossentropy", TARGETS_AND_OUTPUTS, FLOATS, limit=5e-6)
LOGITS = np.array([[2.0, -1, 1], [-50, 100, 0]])
add(
    "keras.ops.sparse_categorical_crossentropy",
    lambda t, x: ops.sparse_categorical_crossentropy(t, x, from_logits=True),
    feed(np.int32([0, 2]), LOGITS),
    FLOATS,
    limit=5e-6,
)
add_ops(ops, "psnr", feed(LOGITS, LOGITS + 1), FLOATS, max_val=1.0, limit=5e-6)
add_ops(ops, "bartlett", feed(np.int32(4)), INT32, refusal="cannot be traced")
