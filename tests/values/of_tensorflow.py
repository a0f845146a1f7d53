"""Operators of TensorFlow at their own level, as layers that call `tf.` directly trace to them."""

from functools import partial

import numpy as np
import tensorflow as tf

from .grids import ALL, FLOATS, INFINITE, NAN, NUMBERS, REALS, each, fixed, ordinary, pairs, rows
from .table import add

ONLY = ("float32",)
CUBE, SQUARES, IMAGES = ordinary((2, 3, 4)), ordinary((2, 4, 4)), ordinary((2, 4, 6, 8))


def raw(
    names, arguments, given=each, dtypes=FLOATS, how="", known=False, limit=2e-6, refused="", deviates=(), **options
):
    """Put raw operators on the list, which take tensors by these names, and what else is given."""
    for name in names.split():
        operator = getattr(tf.raw_ops, name)

        def called(*tensors, operator=operator):
            return operator(**dict(zip(arguments.split(), tensors, strict=True)), **options)

        add(f"tf.raw_ops.{name}", called, given, dtypes, how, known, limit, refused, deviates)


def public(name, function, given=CUBE, dtypes=ONLY, how="", **fields):
    """Put a public function on the list, called in some way."""
    add(f"tf.{name}", function, given, dtypes, how, **fields)


# Number by number
raw("Abs Neg Sign Square", "x", dtypes=REALS)
raw("Ceil Floor Round Exp Expm1 Log Log1p Sqrt Rsqrt Reciprocal Inv Erf Tanh", "x")
raw("Rint", "x", dtypes=ONLY)
raw("Erfc", "x", limit=2e-3)  # 1 - erf has few digits in the tail
raw("Sigmoid", "x", limit=1e-4)  # as has onnxruntime's
raw("TruncateDiv MulNoNan Xdivy Xlogy", "x y", pairs, dtypes=ONLY)
raw("Acos Acosh Asin Asinh Atan Atanh Cosh Sinh", "x")
raw("Cos Sin Tan", "x", ordinary((3, 5)))
raw("IsFinite IsInf IsNan", "x", dtypes=ONLY)
raw("Elu Relu Relu6 Selu Softplus Softsign LeakyRelu", "features")
raw("Softmax", "logits", rows, ONLY, limit=1e-5, deviates=(INFINITE, NAN))
raw("LogSoftmax", "logits", rows, limit=1e-5)
raw("Atan2 SquaredDifference DivNoNan RealDiv", "y x", pairs, how="y, x")
raw("Identity Snapshot StopGradient PreventGradient", "input", dtypes=ALL)
raw("ZerosLike OnesLike", "x", dtypes=ALL)
raw("LogicalNot", "x", dtypes=("bool",))
raw("LogicalAnd LogicalOr", "x y", pairs, dtypes=("bool",))
public("add_n", lambda a, b: tf.add_n([a, b, a]), ordinary((2, 3), (2, 3)), REALS)
public("clip_by_value", lambda x: tf.clip_by_value(x, -2, 2), each, REALS)

# Places
SLICES = {
    "negative steps": lambda x: x[:, ::-1, -1:-4:-2],
    "an end of 0": lambda x: x[:, -2:0],
    "beyond both ends": lambda x: x[:, -9:2, 1:99],
    "an ellipsis and new axes": lambda x: x[1:, ..., None, 2],
    "single indices": lambda x: x[-1, :, 1][None],
    "an empty slice": lambda x: x[:, 2:1],
}
for how, cut in SLICES.items():
    public("strided_slice", cut, CUBE, ALL, how)
for begin, end in ((1, 2), (-1, 3), (0, -1), (-2, 9), (2, -9), (0, 2**31 - 1)):
    limits = fixed(np.arange(24.0).reshape(2, 3, 4), np.int32(begin), np.int32(end))
    public(
        "strided_slice", lambda x, i, j: (x[:, i:j], x[..., j:i:-1], x[:, :, i]), limits, how=f"from {begin} to {end}"
    )
public("slice", lambda x: tf.slice(x, [0, 1, 2], [-1, 2, -1]), CUBE, ALL)
for shift, axis in ((1, 0), (-7, 2), ([1, 2], [1, -1]), ([1, 1], [1, 1])):
    public("roll", partial(tf.roll, shift=shift, axis=axis), CUBE, ALL, f"{shift} along {axis}")
public("roll", lambda x: tf.roll(x[:, :0], 1, 1), CUBE, how="an axis of 0")
for axes in ([0], [1], [-1], [0, 2], [0, 1, 2]):
    public("reverse", partial(tf.reverse, axis=axes), CUBE, ALL, f"axes {axes}")
LENGTHS = {(1, 0): [2, 3], (0, 1): [2, 1, 0], (2, 0): [0, 4], (2, 1): [4, 2, 1], (0, 2): [2, 1, 1, 2]}
for (time, batch), lengths in LENGTHS.items():
    turned = partial(tf.reverse_sequence, seq_lengths=lengths, seq_axis=time, batch_axis=batch)
    public("reverse_sequence", turned, CUBE, NUMBERS, f"time {time}, batch {batch}")
raw("InvertPermutation", "x", fixed(np.int32([2, 0, 3, 1]), empty=(np.int32([]),)), ("int32",))
raw("InvertPermutation", "x", fixed(np.int64([2, 0, 3, 1])), ("int64",))
for sizes in ([1, 3], [0, 4], [-1, 1], [1, -1]):
    public("split", partial(tf.split, num_or_size_splits=sizes, axis=2), CUBE, ALL, f"sizes {sizes}")
public("split", lambda x: tf.split(x, 2, -1), CUBE, ALL, "into halves", known=True)
for axis in (0, -1, 1):
    public("stack", lambda x, axis=axis: tf.stack([x, x], axis), CUBE, ALL, f"axis {axis}")
    public(
        "concat",
        lambda x, axis=axis: tf.concat([x, x[:, :0], x], axis) if axis == 1 else tf.concat([x, x], axis),
        CUBE,
        ALL,
        f"axis {axis}",
    )
public("unstack", lambda x: tf.unstack(x, 3, 1), CUBE, ALL)
public("transpose", lambda x: tf.transpose(x, [2, 0, 1]), CUBE, ALL)
public("transpose", lambda x: tf.transpose(x, [-1, 0, 1]), CUBE, ALL, "axes from the end")
public("tile", lambda x: tf.tile(x, [2, 1, 3]), CUBE, ALL)
public("broadcast_to", lambda x: tf.broadcast_to(x[:, :1], [2, 2, 3, 4]), CUBE, ALL)
for mode in ("REFLECT", "SYMMETRIC"):
    public("pad", partial(tf.pad, paddings=[[0, 0], [1, 2], [2, 0]], mode=mode), CUBE, ALL, mode.lower())
public(
    "pad", lambda x: tf.pad(x, [[0, 0], [1, 2], [2, 0]], constant_values=tf.cast(1, x.dtype)), CUBE, ALL, "with ones"
)
public("where", tf.where, rows, ONLY)
public("unique", lambda x: tf.unique(x), fixed(np.array([3, 1, 3, 2, 1.0]), empty=(np.zeros(0),)), FLOATS)
public(
    "unique", lambda x: tf.unique_with_counts(x), fixed(np.int32([3, 1, 2**31 - 1, -(2**31), 1])), ("int32",), "counts"
)
public("dynamic_partition", lambda x: tf.dynamic_partition(x, [[0, 2, 0], [1, 1, 2]], 4), CUBE, NUMBERS)
STITCHED = {"each index once": [[0, 3], [1, 2]], "repeated indices": [[0, 1], [1, 2]], "2D": [[[0], [3]], [[1], [2]]]}
for how, indices in STITCHED.items():
    public(
        "dynamic_stitch",
        lambda x, y, of=indices: tf.dynamic_stitch(of, [tf.reshape(z, [*np.shape(of[0]), 3]) for z in (x, y)]),
        ordinary((2, 3), (2, 3)),
        REALS,
        how,
    )
public("fill", lambda x: tf.fill([2, 3], x[0]), each, ALL)
for dtype in (np.float32, np.int32):
    steps = {"increasing": (0, 7, 2), "decreasing": (5, -3, -2), "empty": (0, 0, 1)}
    for how, limits in steps.items():
        public("range", tf.range, fixed(*map(dtype, limits)), (np.dtype(dtype).name,), how)
public("linspace", lambda a, b: tf.linspace(a, b, 5), fixed(np.float32(-1), np.float32(2)), ONLY)
for exclusive in (False, True):
    for back in (False, True):
        of = partial(tf.cumsum, axis=-1, exclusive=exclusive, reverse=back)
        public("cumsum", of, rows, REALS, f"{'exclusive ' * exclusive}{'reverse' * back}".strip())
for diagonal in (0, 1, -2, (-1, 1)):
    for align in (
        ("RIGHT_LEFT", "LEFT_RIGHT", "LEFT_LEFT", "RIGHT_RIGHT") if isinstance(diagonal, tuple) else ("RIGHT_LEFT",)
    ):
        how, options = f"{diagonal}, {align.lower()}", {"k": diagonal, "align": align}
        public("linalg.diag_part", partial(tf.linalg.diag_part, **options), CUBE, ALL, how)
        numbers = ordinary((2, 3, 4)) if isinstance(diagonal, tuple) else ordinary((2, 3))
        public("linalg.diag", partial(tf.linalg.diag, **options), numbers, ALL, how, known=True)
        size = {0: (2, 4), 1: (2, 3), -2: (2, 2)}.get(diagonal, (2, 3, 4))
        both = ordinary((2, 4, 4), size)
        public("linalg.set_diag", partial(tf.linalg.set_diag, **options), both, ALL, how, known=True)
public("linalg.diag", lambda x: tf.linalg.diag(x[:0]), ordinary((2, 3)), how="empty")
public("linalg.diag_part", lambda x: tf.linalg.diag_part(x[:, :0]), how="empty")
public("linalg.diag_part", tf.linalg.diag_part, rows, ONLY, "infinities and NaN")
HELD = ("float32", "float16", "int32", "uint8")
for blocks in ([2, 2], [2, 3]):
    of = partial(tf.space_to_batch, block_shape=blocks, paddings=[[0, 0], [0, 0]])
    public("space_to_batch", of, IMAGES, HELD, f"{blocks}")
of = partial(tf.batch_to_space, block_shape=[2, 2], crops=[[1, 0], [0, 1]])
public("batch_to_space", of, ordinary((8, 2, 3, 2)), HELD)
public("nn.depth_to_space", partial(tf.nn.depth_to_space, block_size=2), IMAGES, HELD)
public("nn.space_to_depth", partial(tf.nn.space_to_depth, block_size=2), IMAGES, HELD)
for equation, shapes in {
    "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)),
    "bthd,bshd->bhts": ((2, 3, 4, 5), (2, 6, 4, 5)),
    "ij,ij->": ((2, 3),) * 2,
    "aB,BA->Aa": ((2, 3), (3, 4)),
}.items():
    public("einsum", lambda x, y, of=equation: tf.einsum(of, x, y), ordinary(*shapes), how=equation)

# Losses, boxes, quantization
CLASSES = fixed(
    np.int32([0, 4, 2]),
    np.arange(15.0).reshape(3, 5) / 3,
    infinite=(np.int32([0, 4, 2]), np.array([[-np.inf, 0, 1, 2, 3], [0, 0, -np.inf, 2, 3], [1, np.inf, 1, 1, 1]])),
)
add(
    "tf.nn.sparse_softmax_cross_entropy_with_logits",
    tf.nn.sparse_softmax_cross_entropy_with_logits,
    CLASSES,
    ONLY,
    limit=1e-5,
)
SHARES = ordinary((3, 5), (3, 5))
add(
    "tf.nn.softmax_cross_entropy_with_logits",
    lambda a, b: tf.nn.softmax_cross_entropy_with_logits(tf.nn.softmax(a), b),
    SHARES,
    ONLY,
    limit=1e-5,
)
BOXES = np.array([[0, 0, 1, 1], [0, 0.1, 1, 1.1], [0, -0.1, 1, 0.9], [0, 10, 1, 11], [1, 11.1, 0, 10.1], [0, 9, 1, 10]])
SCORES = {"": [0.9, 0.75, 0.6, 0.95, 0.5, 0.3], "ties": [0.5] * 6, "negative": [-0.1, 0.2, -0.3, 0.1, 0.4, -0.6]}
for how, scores in SCORES.items():
    of = partial(tf.image.non_max_suppression, max_output_size=4, iou_threshold=0.5)
    public("image.non_max_suppression", of, fixed(BOXES, np.array(scores)), ONLY, how)
public(
    "image.non_max_suppression_with_scores",
    partial(tf.image.non_max_suppression_with_scores, max_output_size=4, soft_nms_sigma=0.5),
    fixed(BOXES, np.array(SCORES[""])),
    ONLY,
    refused="Op `NonMaxSuppressionV5`",
)
CROPPED = fixed(np.arange(48.0).reshape(2, 4, 6, 1), np.array([[0, 0, 1, 1], [0.9, 0.8, -0.3, 1.7]]))
for method, refused in {"bilinear": "", "nearest": "Op `CropAndResize`"}.items():
    of = partial(tf.image.crop_and_resize, box_indices=[0, 1], crop_size=[3, 4], method=method)
    public("image.crop_and_resize", of, CROPPED, ONLY, method, refused=refused)
NUMBERS_TO_ROUND = fixed(np.concatenate([(np.arange(-300, 300) + 0.5) * 12 / 255, [1e10, -1e10, 0]]))
for how, options in {
    "": {},
    "4 bits": {"num_bits": 4},
    "narrow": {"narrow_range": True},
    "above 0": {"min": 1, "max": 7},
}.items():
    of = partial(tf.quantization.fake_quant_with_min_max_args, **options)
    public("quantization.fake_quant_with_min_max_args", of, NUMBERS_TO_ROUND, ONLY, how)
public(
    "quantization.fake_quant_with_min_max_vars",
    tf.quantization.fake_quant_with_min_max_vars,
    fixed(np.arange(-5.0, 5), np.float32(-2), np.float32(3)),
    ONLY,
)
public(
    "quantization.fake_quant_with_min_max_vars_per_channel",
    lambda x: tf.quantization.fake_quant_with_min_max_vars_per_channel(x, [-1.0, -2, 0], [1.0, 3, 5]),
    ordinary((4, 3)),
    ONLY,
)
