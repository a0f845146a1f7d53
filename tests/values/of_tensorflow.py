"""Operators of TensorFlow, as in models whose layers call `tf.` functions directly."""

from functools import partial

import numpy as np
import tensorflow as tf

from .grids import (
    DTYPES,
    FLOAT32,
    FLOATS,
    INFINITIES,
    NAN,
    NUMBERS,
    REALS,
    feed,
    fill,
    make_array,
    make_pairs,
    make_rows,
)
from .table import FIELDS, add

CUBE, IMAGES = fill((2, 3, 4)), fill((2, 4, 6, 8))


def add_raw(names, arguments, make_inputs=make_array, dtypes=FLOATS, variant="", is_static=False, **options):
    """Add a case for each of the named functions of `tf.raw_ops`; `arguments` are the names of its tensors.

    Options that are no fields of `OperatorCase` become attributes of the operators.
    """
    fields = {name: options.pop(name) for name in [*options] if name in FIELDS}
    for name in names.split():
        operator = partial(getattr(tf.raw_ops, name), **options)
        function = partial(lambda f, *tensors: f(**dict(zip(arguments.split(), tensors, strict=True))), operator)
        add(f"tf.raw_ops.{name}", function, make_inputs, dtypes, variant, is_static, **fields)


def add_tf(name, function, make_inputs=CUBE, dtypes=FLOAT32, variant="", **fields):
    """Add a case for a public function of TensorFlow."""
    add(f"tf.{name}", function, make_inputs, dtypes, variant, **fields)


# Elementwise
add_raw("Abs Neg Sign Square", "x", dtypes=REALS)
add_raw("Ceil Floor Round Exp Expm1 Log Log1p Sqrt Rsqrt Reciprocal Inv Erf Tanh", "x")
add_raw("Rint", "x", dtypes=FLOAT32)
add_raw("Erfc", "x", limit=2e-3)  # 1 - erf has few digits in the tail
add_raw("Sigmoid", "x", limit=1e-4)  # onnxruntime's sigmoid has few digits in the tail
add_raw("TruncateDiv MulNoNan Xdivy Xlogy", "x y", make_pairs, dtypes=FLOAT32)
add_raw("Acos Acosh Asin Asinh Atan Atanh Cosh Sinh", "x")
add_raw("Cos Sin Tan", "x", fill((3, 5)))
add_raw("IsFinite IsInf IsNan", "x", dtypes=FLOAT32)
add_raw("Elu Relu Relu6 Selu Softplus Softsign LeakyRelu", "features")
add_raw("Softmax", "logits", make_rows, FLOAT32, limit=1e-5, deviations=(INFINITIES, NAN))
add_raw("LogSoftmax", "logits", make_rows, limit=1e-5)
add_raw("Atan2 SquaredDifference DivNoNan RealDiv", "y x", make_pairs, variant="y, x")
add_raw("Identity Snapshot StopGradient PreventGradient", "input", dtypes=DTYPES)
add_raw("ZerosLike OnesLike", "x", dtypes=DTYPES)
add_raw("LogicalNot", "x", dtypes=("bool",))
add_raw("LogicalAnd LogicalOr", "x y", make_pairs, dtypes=("bool",))
add_tf("add_n", lambda a, b: tf.add_n([a, b, a]), fill((2, 3), (2, 3)), REALS)
add_tf("clip_by_value", lambda x: tf.clip_by_value(x, -2, 2), make_array, REALS)

# Positions
SLICES = {
    "negative steps": lambda x: x[:, ::-1, -1:-4:-2],
    "an end of 0": lambda x: x[:, -2:0],
    "beyond both ends": lambda x: x[:, -9:2, 1:99],
    "an ellipsis and new axes": lambda x: x[1:, ..., None, 2],
    "single indices": lambda x: x[-1, :, 1][None],
    "an empty slice": lambda x: x[:, 2:1],
}
for variant, function in SLICES.items():
    add_tf("strided_slice", function, CUBE, DTYPES, variant)
for begin, end in ((1, 2), (-1, 3), (0, -1), (-2, 9), (2, -9), (0, 2**31 - 1)):
    make_inputs = feed(np.arange(24.0).reshape(2, 3, 4), np.int32(begin), np.int32(end))
    function, variant = lambda x, i, j: (x[:, i:j], x[..., j:i:-1], x[:, :, i]), f"from {begin} to {end}"
    add_tf("strided_slice", function, make_inputs, variant=variant)
add_tf("slice", lambda x: tf.slice(x, [0, 1, 2], [-1, 2, -1]), CUBE, DTYPES)
for shift, axis in ((1, 0), (-7, 2), ([1, 2], [1, -1]), ([1, 1], [1, 1])):
    add_tf("roll", partial(tf.roll, shift=shift, axis=axis), CUBE, DTYPES, f"{shift} along {axis}")
add_tf("roll", lambda x: tf.roll(x[:, :0], 1, 1), CUBE, variant="an axis of 0")
for axes in ([0], [1], [-1], [0, 2], [0, 1, 2]):
    add_tf("reverse", partial(tf.reverse, axis=axes), CUBE, DTYPES, f"axes {axes}")
LENGTHS = {(1, 0): [2, 3], (0, 1): [2, 1, 0], (2, 0): [0, 4], (2, 1): [4, 2, 1], (0, 2): [2, 1, 1, 2]}
for (time, batch), lengths in LENGTHS.items():
    reverse = partial(tf.reverse_sequence, seq_lengths=lengths, seq_axis=time, batch_axis=batch)
    add_tf("reverse_sequence", reverse, CUBE, NUMBERS, f"time {time}, batch {batch}")
add_raw("InvertPermutation", "x", feed(np.int32([2, 0, 3, 1]), empty=(np.int32([]),)), ("int32",))
add_raw("InvertPermutation", "x", feed(np.int64([2, 0, 3, 1])), ("int64",))
for sizes in ([1, 3], [0, 4], [-1, 1], [1, -1]):
    add_tf("split", partial(tf.split, num_or_size_splits=sizes, axis=2), CUBE, DTYPES, f"sizes {sizes}")
add_tf("split", lambda x: tf.split(x, 2, -1), CUBE, DTYPES, "into halves", is_static=True)
for axis in (0, -1, 1):
    add_tf("stack", lambda x, axis=axis: tf.stack([x, x], axis), CUBE, DTYPES, f"axis {axis}")
    concat = (lambda x: tf.concat([x, x[:, :0], x], 1)) if axis == 1 else lambda x, axis=axis: tf.concat([x, x], axis)
    add_tf("concat", concat, CUBE, DTYPES, f"axis {axis}")
add_tf("unstack", lambda x: tf.unstack(x, 3, 1), CUBE, DTYPES)
add_tf("transpose", lambda x: tf.transpose(x, [2, 0, 1]), CUBE, DTYPES)
add_tf("transpose", lambda x: tf.transpose(x, [-1, 0, 1]), CUBE, DTYPES, "axes from the end")
add_tf("tile", lambda x: tf.tile(x, [2, 1, 3]), CUBE, DTYPES)
add_tf("broadcast_to", lambda x: tf.broadcast_to(x[:, :1], [2, 2, 3, 4]), CUBE, DTYPES)

PADDINGS = [[0, 0], [1, 2], [2, 0]]
for mode in ("REFLECT", "SYMMETRIC"):
    add_tf("pad", partial(tf.pad, paddings=PADDINGS, mode=mode), CUBE, DTYPES, mode.lower())
add_tf("pad", lambda x: tf.pad(x, PADDINGS, constant_values=tf.cast(1, x.dtype)), CUBE, DTYPES, "with ones")
add_tf("where", tf.where, make_rows, FLOAT32)
add_tf("unique", tf.unique, feed(np.array([3, 1, 3, 2, 1.0]), empty=(np.zeros(0),)), FLOATS)
add_tf("unique", tf.unique_with_counts, feed(np.int32([3, 1, 2**31 - 1, -(2**31), 1])), ("int32",), "counts")
add_tf("dynamic_partition", lambda x: tf.dynamic_partition(x, [[0, 2, 0], [1, 1, 2]], 4), CUBE, NUMBERS)
STITCHES = {
    "each index once": [[0, 3], [1, 2]],
    "repeated indices": [[0, 1], [1, 2]],
    "2D": [[[0], [3]], [[1], [2]]],
}
for variant, indices in STITCHES.items():
    shape = [*np.shape(indices[0]), 3]
    stitch = partial(lambda i, shape, *z: tf.dynamic_stitch(i, [tf.reshape(x, shape) for x in z]), indices, shape)
    add_tf("dynamic_stitch", stitch, fill((2, 3), (2, 3)), REALS, variant)
add_tf("fill", lambda x: tf.fill([2, 3], x[0]), make_array, DTYPES)
for dtype in (np.float32, np.int32):
    arguments = {"increasing": (0, 7, 2), "decreasing": (5, -3, -2), "empty": (0, 0, 1)}
    for variant, numbers in arguments.items():
        add_tf("range", tf.range, feed(*map(dtype, numbers)), (np.dtype(dtype).name,), variant)
add_tf("linspace", lambda a, b: tf.linspace(a, b, 5), feed(np.float32(-1), np.float32(2)), FLOAT32)
for exclusive in (False, True):
    for reverse in (False, True):
        cumsum = partial(tf.cumsum, axis=-1, exclusive=exclusive, reverse=reverse)
        add_tf("cumsum", cumsum, make_rows, REALS, f"{'exclusive ' * exclusive}{'reverse' * reverse}".strip())
for diagonal in (0, 1, -2, (-1, 1)):
    alignments = ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT")
    for align in alignments if isinstance(diagonal, tuple) else alignments[:1]:
        variant, options = f"{diagonal}, {align.lower()}", {"k": diagonal, "align": align}
        add_tf("linalg.diag_part", partial(tf.linalg.diag_part, **options), CUBE, DTYPES, variant)
        diagonals = fill((2, 3, 4) if isinstance(diagonal, tuple) else (2, 3))
        add_tf("linalg.diag", partial(tf.linalg.diag, **options), diagonals, DTYPES, variant, is_static=True)
        shape = {0: (2, 4), 1: (2, 3), -2: (2, 2)}.get(diagonal, (2, 3, 4))
        set_diag = partial(tf.linalg.set_diag, **options)
        add_tf("linalg.set_diag", set_diag, fill((2, 4, 4), shape), DTYPES, variant, is_static=True)
add_tf("linalg.diag", lambda x: tf.linalg.diag(x[:0]), fill((2, 3)), variant="empty")
add_tf("linalg.diag_part", lambda x: tf.linalg.diag_part(x[:, :0]), variant="empty")
add_tf("linalg.diag_part", tf.linalg.diag_part, make_rows, FLOAT32, "infinities and NaN")
IMAGE_DTYPES = ("float32", "float16", "int32", "uint8")
for block_shape in ([2, 2], [2, 3]):
    space_to_batch = partial(tf.space_to_batch, block_shape=block_shape, paddings=[[0, 0], [0, 0]])
    add_tf("space_to_batch", space_to_batch, IMAGES, IMAGE_DTYPES, f"{block_shape}")
batch_to_space = partial(tf.batch_to_space, block_shape=[2, 2], crops=[[1, 0], [0, 1]])
add_tf("batch_to_space", batch_to_space, fill((8, 2, 3, 2)), IMAGE_DTYPES)
add_tf("nn.depth_to_space", partial(tf.nn.depth_to_space, block_size=2), IMAGES, IMAGE_DTYPES)
add_tf("nn.space_to_depth", partial(tf.nn.space_to_depth, block_size=2), IMAGES, IMAGE_DTYPES)
for equation, shapes in {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bthd,bshd->bhts": ((2, 3, 4, 5), (2, 6, 4, 5)),
    "ij,ij->": ((2, 3),) * 2,
    "aB,BA->Aa": ((2, 3), (3, 4)),
}.items():
    add_tf("einsum", partial(tf.einsum, equation), fill(*shapes), variant=equation)

# Losses, boxes, quantization
CLASSES = np.int32([0, 4, 2])
INFINITE_LOGITS = np.array([[-np.inf, 0, 1, 2, 3], [0, 0, -np.inf, 2, 3], [1, np.inf, 1, 1, 1]])
make_inputs = feed(CLASSES, np.arange(15.0).reshape(3, 5) / 3, infinite=(CLASSES, INFINITE_LOGITS))
name = "nn.sparse_softmax_cross_entropy_with_logits"
add_tf(name, tf.nn.sparse_softmax_cross_entropy_with_logits, make_inputs, limit=1e-5)


def compute_cross_entropy(a, b):
    return tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(a), b)


add_tf("nn.softmax_cross_entropy_with_logits", compute_cross_entropy, fill((3, 5), (3, 5)), limit=1e-5)
BOXES = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [1, 11.1, 0, 10.1], [0, 9, 1, 10]])
SCORES = {"": [0.9, 0.75, 0.6, 0.95, 0.5, 0.3], "ties": [0.5] * 6, "negative": [-0.1, 0.2, -0.3, 0.1, 0.4, -0.6]}
for variant, scores in SCORES.items():
    select_boxes = partial(tf.image.non_max_suppression, max_output_size=4, iou_threshold=0.5)
    add_tf("image.non_max_suppression", select_boxes, feed(BOXES, np.array(scores)), FLOAT32, variant)
select_boxes = partial(tf.image.non_max_suppression_with_scores, max_output_size=4, soft_nms_sigma=0.5)
make_inputs, refusal = feed(BOXES, np.array(SCORES[""])), "Op `NonMaxSuppressionV5`"
add_tf("image.non_max_suppression_with_scores", select_boxes, make_inputs, FLOAT32, refusal=refusal)
make_inputs = feed(np.arange(48.0).reshape(2, 4, 6, 1), np.array([[0, 0, 1, 1], [0.9, 0.8, -0.3, 1.7]]))
for method, refusal in {"bilinear": "", "nearest": "Op `CropAndResize`"}.items():
    crop = partial(tf.image.crop_and_resize, box_indices=[0, 1], crop_size=[3, 4], method=method)
    add_tf("image.crop_and_resize", crop, make_inputs, FLOAT32, method, refusal=refusal)
# Halfway between two quantized numbers of 8 bits, and out of range.
HALFWAY_NUMBERS = feed(np.concatenate([(np.arange(-300, 300) + 0.5) * 12 / 255, [1e10, -1e10, 0]]))
for variant, options in {
    "": {},
    "4 bits": {"num_bits": 4},
    "narrow": {"narrow_range": True},
    "above 0": {"min": 1, "max": 7},
}.items():
    quantize = partial(tf.quantization.fake_quant_with_min_max_args, **options)
    add_tf("quantization.fake_quant_with_min_max_args", quantize, HALFWAY_NUMBERS, FLOAT32, variant)
make_inputs = feed(np.arange(-5.0, 5), np.float32(-2), np.float32(3))
quantize = tf.quantization.fake_quant_with_min_max_vars
add_tf("quantization.fake_quant_with_min_max_vars", quantize, make_inputs, FLOAT32)
quantize = partial(tf.quantization.fake_quant_with_min_max_vars_per_channel, min=[-1.0, -2, 0], max=[1.0, 3, 5])
add_tf("quantization.fake_quant_with_min_max_vars_per_channel", quantize, fill((4, 3)), FLOAT32)
