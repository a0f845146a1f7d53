"""Operators of TensorFlow on numbers, rows and places, with arguments that `keras.ops` does not have."""

from functools import partial

import numpy as np
import tensorflow as tf

from .grids import ALL, FLOATS, INTEGERS, NUMBERS, REALS, SIGNED, each, fixed, ordinary, pairs, quotients, rows
from .of_axes import NAN_BY_PLACE
from .of_places import IDS, LOOSE, ONCE, PLACES, SORTED, with_rows
from .of_tensorflow import ONLY, public, raw
from .table import add, rows_of

MATRIX = ordinary((3, 4))
OPTIONS = {
    "exclusive": {"exclusive": True},
    "reverse": {"reverse": True},
    "exclusive reverse": {"exclusive": True, "reverse": True},
}

# onnxruntime computes float16 in float32, of which a quotient may be below a whole number
rows_of(tf, "math.floordiv math.floormod truncatediv truncatemod", quotients, ("float32", "int32", "int64"))
rows_of(tf, "math.less math.less_equal math.greater math.greater_equal math.equal math.not_equal", pairs, NUMBERS)
rows_of(tf, "math.squared_difference math.divide_no_nan math.atan2", pairs, FLOATS)
rows_of(tf, "math.rint", each, ("float32",))
rows_of(tf, "math.is_finite math.is_inf math.is_nan math.sign nn.softplus", each, FLOATS)
rows_of(tf, "bitwise.invert", each, INTEGERS)
rows_of(tf, "clip_by_value", each, (*FLOATS, "int32"), clip_value_min=2, clip_value_max=7)
for options in OPTIONS.items():
    rows_of(tf, "math.cumsum math.cumprod", rows, FLOATS, how=options[0], axis=-1, **options[1])
for kind in ("sum", "mean", "prod", "max", "min"):
    rows_of(tf, f"math.reduce_{kind}", MATRIX, NUMBERS, axis=1)
    rows_of(tf, f"math.reduce_{kind}", MATRIX, FLOATS, how="negative axis, keepdims", axis=-2, keepdims=True)
rows_of(tf, "math.reduce_any math.reduce_all", rows, ("bool",), axis=1)
for dtypes, deviates in ((FLOATS, NAN_BY_PLACE), (INTEGERS, ())):
    rows_of(tf, "math.argmax math.argmin", rows, dtypes, axis=1, output_type=tf.int32, deviates=deviates)
    rows_of(tf, "sort argsort", rows, dtypes, how="descending", direction="DESCENDING", deviates=deviates)
    rows_of(tf, "math.top_k", rows, dtypes, k=2, deviates=deviates)
add("tensorflow.unique_with_counts", lambda x: tf.unique_with_counts(tf.reshape(x, [-1])), MATRIX, SIGNED)

values = {"float values": (5.0, -1.0), "integer values": (5, -1), "boolean values": (False, True)}
for how, (on, off) in values.items():
    add("tensorflow.one_hot", partial(tf.one_hot, depth=4, on_value=on, off_value=off), fixed(IDS), ("int32",), how)
add("tensorflow.one_hot", lambda x: tf.one_hot(x, tf.shape(x)[1]), fixed(IDS), ("int32",), "depth from a shape")
for lower, upper in ((-1, 0), (1, 0), (0, 0), (-1, -1)):
    rows_of(tf, "linalg.band_part", MATRIX, ALL, how=f"{lower}, {upper}", num_lower=lower, num_upper=upper)

RATHER = np.array([[0, 2]] * 6, "int32")
for batch, axis in ((1, 1), (-1, None), (-1, -1)):
    options = {"batch_dims": batch, "axis": axis}
    add("tensorflow.gather", partial(tf.gather, **options), with_rows(RATHER), NUMBERS, f"batch_dims={batch}, {axis}")
add("tensorflow.gather", lambda x: tf.gather(x, [2, 0, 1], batch_dims=-1), with_rows(), FLOATS, "batch_dims=-1")
add("tensorflow.gather_nd", tf.gather_nd, with_rows(np.array([[0, 2], [5, 1]], "int32")), NUMBERS, known=True)
add("tensorflow.scatter_nd", lambda x, at: tf.scatter_nd(at, x, (5, 3)), with_rows(PLACES), NUMBERS)
for kind, places in {"add": PLACES, "sub": PLACES, "max": PLACES, "min": PLACES, "update": ONCE}.items():
    function = getattr(tf, f"tensor_scatter_nd_{kind}")
    add(
        f"tensorflow.tensor_scatter_nd_{kind}",
        partial(lambda f, x, at: f(x, at, x[::-1]), function),
        with_rows(places),
        NUMBERS,
    )
for kind in ("sum", "mean", "sqrt_n", "prod", "max", "min"):
    name = f"math.unsorted_segment_{kind}"
    rows_of(tf, name, with_rows(LOOSE), FLOATS if kind in ("mean", "sqrt_n") else REALS, num_segments=4, limit=5e-6)
add(
    "tensorflow.math.unsorted_segment_sum",
    lambda x: tf.math.unsorted_segment_sum(x, np.arange(18).reshape(6, 3) % 5 - 1, 4),
    with_rows(),
    FLOATS,
    "2D ids",
)
rows_of(tf, "math.segment_mean", with_rows(SORTED), FLOATS, limit=5e-6)
for kind in ("sum", "mean", "sqrt_n"):
    function = getattr(tf.sparse, f"segment_{kind}")
    for how, count in {"": None, "num_segments=6": 6}.items():
        rowed = partial(lambda f, count, x, ids: f(x, [1, 0, 2, 3, 3, 5], ids, num_segments=count), function, count)
        add(f"tensorflow.sparse.segment_{kind}", rowed, with_rows(SORTED), FLOATS, how, limit=5e-6)
rows_of(tf, "math.bincount", fixed(np.array([0, 3, 3, 7], "int32")), ("int32",), how="maxlength=5", maxlength=5)
rows_of(
    tf,
    "math.bincount",
    fixed(np.array([[0, 3], [3, 7]], "int32")),
    ("int32",),
    how="binary_output",
    axis=-1,
    binary_output=True,
)
add("tensorflow.dynamic_stitch", lambda x: tf.dynamic_stitch([[0, 2], [1, 2]], [x[:2], x[2:4]]), with_rows(), NUMBERS)
add(
    "tensorflow.dynamic_partition",
    partial(tf.dynamic_partition, num_partitions=3),
    with_rows(np.array([0, 1, 2, 1, 0, 0], "int32")),
    NUMBERS,
)
add("tensorflow.boolean_mask", lambda x: tf.boolean_mask(x, x > 0), with_rows(), NUMBERS)
rows_of(tf, "math.invert_permutation", fixed(np.array([2, 0, 1], "int32")), ("int32",))
rows_of(tf, "math.invert_permutation", fixed(np.array([2, 0, 1], "int64")), ("int64",))
rows_of(tf, "reverse_sequence", MATRIX, NUMBERS, seq_lengths=[0, 2, 4], seq_axis=1)
rows_of(tf, "reverse", MATRIX, ALL, axis=[-1])
add("tensorflow.range", lambda x: tf.range(x[0], 9, 2.5), ordinary((2,)), FLOATS)

# with two tensors
raw("Add Mul Sub", "x y", pairs, ("float32", "int32"))
raw("Div", "x y", quotients, ("float32", *SIGNED))
raw("Pow", "x y", pairs, FLOATS)
raw("BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift", "x y", pairs, INTEGERS)
raw("BiasAddV1", "value bias", ordinary((2, 3, 4), (4,)), REALS)
for how, size in {"NHWC": 5, "NCHW": 3}.items():
    raw("BiasAdd", "value bias", ordinary((2, 3, 4, 5), (size,)), REALS, how, data_format=how)
for first in (False, True):
    for second in (False, True):
        shapes, how = ((4, 3) if first else (3, 4), (5, 4) if second else (4, 5)), f"{first}, {second}"
        turned = {"transpose_a": first, "transpose_b": second}
        raw("MatMul", "a b", ordinary(*shapes), REALS, how, **turned)
        turned = {"adj_x": first, "adj_y": second}
        raw("BatchMatMul BatchMatMulV2", "x y", ordinary(*((2, *each) for each in shapes)), REALS, how, **turned)
raw("BatchMatMulV3", "x y", ordinary((2, 3, 4), (4, 5)), ("uint8",), Tout=tf.int32)

# with what is only known when it runs
raw("ClipByValue", "t clip_value_min clip_value_max", ordinary((5,), (), ()), REALS)
raw("Bincount", "arr weights", fixed(np.int32([0, 3, 3, 7]), np.array([1.0, 2, 3, -4])), ONLY, size=6)
raw("Select", "condition x y", fixed(np.array([True, False, True]), np.arange(3.0), -np.arange(3.0)), FLOATS)
raw("PlaceholderWithDefault", "input", MATRIX, ALL, shape=[None, 4])
raw("CheckNumerics", "tensor", MATRIX, FLOATS, message="not finite")
raw("EnsureShape", "input", MATRIX, ALL, shape=[None, 4])
raw("DeepCopy", "x", MATRIX, ("float32",))
raw("Pad", "input", MATRIX, ALL, paddings=[[1, 2], [0, 1]])
raw("ArgMax ArgMin", "input", rows, ("bool",), dimension=-1)
raw("Transpose", "x perm", fixed(np.zeros((2, 3)), np.int32([1, 0])), ONLY, refused="op `Transpose`")
raw("Gather", "params indices", with_rows(np.array([[0, 2], [5, 1]], "int32")), NUMBERS)
raw("SegmentSum SegmentProd SegmentMax SegmentMin", "data segment_ids", with_rows(SORTED), REALS, limit=5e-6)
for how, function in {
    "identity_n": lambda x, y: tf.identity_n([x, y]),
    "raw_ops.Concat": lambda x, y: tf.raw_ops.Concat(concat_dim=-1, values=[x, y]),
    "raw_ops.ParallelDynamicStitch": lambda x, y: tf.raw_ops.ParallelDynamicStitch(
        indices=[[0, 4, 2], [1, 5, 3]], data=[x, y]
    ),
}.items():
    public(how, function, ordinary((3, 4), (3, 4)), REALS)


def after_nothing(x):
    with tf.control_dependencies([tf.no_op()]):
        return x + x


public("no_op", after_nothing, MATRIX, REALS)
raw("BesselI0", "x", each, FLOATS, limit=1e-5)
raw("Bucketize", "input", each, ("float32", "int32"), boundaries=[-3.5, 0, 2])
raw("Cross", "a b", ordinary((2, 3), (2, 3)), REALS)
raw("LowerBound UpperBound", "sorted_inputs values", fixed(np.array([[-1.0, 0, 0, 2]]), np.array([[-2.0, 0, 2, 3]])))
raw("InTopKV2", "predictions targets", fixed(np.array([[1.0, 2, 3], [2, 2, 2]]), np.int32([2, 5])), ONLY, k=1)
paths = fixed(np.random.default_rng(0).normal(size=(6, 2, 4)), np.int32([6, 3]))
raw("CTCGreedyDecoder", "inputs sequence_length", paths, ONLY, merge_repeated=True, refused="Op `CTCGreedyDecoder`")

# of before
raw("MatrixDiag", "diagonal", ordinary((2, 3)), ALL)
raw("MatrixDiagPart", "input", ordinary((2, 3, 4)), ALL)
raw("MatrixSetDiag", "input diagonal", ordinary((2, 3, 4), (2, 3)), ALL)
numbered = {"k": 1, "num_rows": -1, "num_cols": -1, "padding_value": 7.0}
raw("MatrixDiagV2", "diagonal", ordinary((2, 3)), ONLY, **numbered)
raw("MatrixDiagPartV2", "input", ordinary((2, 3, 4)), ONLY, k=[-1, 1], padding_value=7.0)
raw("MatrixSetDiagV2", "input diagonal", ordinary((2, 4, 4), (2, 3)), ONLY, k=1)
