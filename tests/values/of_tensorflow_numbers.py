"""Operators of TensorFlow on numbers, rows and positions, with arguments that `keras.ops` does not have."""

from functools import partial

import numpy as np
import tensorflow as tf

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
    make_rows,
)
from .of_axes import NAN_BY_POSITION
from .of_places import IDS, REPEATED_INDICES, SORTED_IDS, UNIQUE_INDICES, UNSORTED_IDS, feed_rows
from .of_tensorflow import add_raw, add_tf
from .table import add, add_ops

MATRIX = fill((3, 4))

# Without float16: onnxruntime computes float16 in float32, and the floor of such a quotient may differ by 1.
add_ops(tf, "math.floordiv math.floormod truncatediv truncatemod", make_quotients, ("float32", "int32", "int64"))
add_ops(tf, "math.less math.less_equal math.greater math.greater_equal math.equal math.not_equal", make_pairs, NUMBERS)
add_ops(tf, "math.squared_difference math.divide_no_nan math.atan2", make_pairs, FLOATS)
add_ops(tf, "math.rint", make_array, FLOAT32)
add_ops(tf, "math.is_finite math.is_inf math.is_nan math.sign nn.softplus", make_array, FLOATS)
add_ops(tf, "bitwise.invert", make_array, INTEGERS)
add_ops(tf, "clip_by_value", make_array, (*FLOATS, "int32"), clip_value_min=2, clip_value_max=7)
for variant in ("exclusive", "reverse", "exclusive reverse"):
    options = dict.fromkeys(variant.split(), True)
    add_ops(tf, "math.cumsum math.cumprod", make_rows, FLOATS, variant=variant, axis=-1, **options)
for reduction in ("sum", "mean", "prod", "max", "min"):
    add_ops(tf, f"math.reduce_{reduction}", MATRIX, NUMBERS, axis=1)
    add_ops(tf, f"math.reduce_{reduction}", MATRIX, FLOATS, variant="negative axis, keepdims", axis=-2, keepdims=True)
add_ops(tf, "math.reduce_any math.reduce_all", make_rows, ("bool",), axis=1)
for dtypes, deviations in ((FLOATS, NAN_BY_POSITION), (INTEGERS, ())):
    add_ops(tf, "math.argmax math.argmin", make_rows, dtypes, axis=1, output_type=tf.int32, deviations=deviations)
    add_ops(tf, "sort argsort", make_rows, dtypes, variant="descending", direction="DESCENDING", deviations=deviations)
    add_ops(tf, "math.top_k", make_rows, dtypes, k=2, deviations=deviations)
add("tensorflow.unique_with_counts", lambda x: tf.unique_with_counts(tf.reshape(x, [-1])), MATRIX, SIGNED_INTEGERS)

values = {"float values": (5.0, -1.0), "integer values": (5, -1), "boolean values": (False, True)}
for variant, (on_value, off_value) in values.items():
    one_hot = partial(tf.one_hot, depth=4, on_value=on_value, off_value=off_value)
    add("tensorflow.one_hot", one_hot, feed(IDS), INT32, variant)
add("tensorflow.one_hot", lambda x: tf.one_hot(x, tf.shape(x)[1]), feed(IDS), INT32, "depth from a shape")
for lower, upper in ((-1, 0), (1, 0), (0, 0), (-1, -1)):
    add_ops(tf, "linalg.band_part", MATRIX, DTYPES, variant=f"{lower}, {upper}", num_lower=lower, num_upper=upper)

batch_indices = feed_rows(np.int32([[0, 2]] * 6))
for batch_dims, axis in ((1, 1), (-1, None), (-1, -1)):
    gather = partial(tf.gather, batch_dims=batch_dims, axis=axis)
    add("tensorflow.gather", gather, batch_indices, NUMBERS, f"{batch_dims=}, {axis}")
add("tensorflow.gather", lambda x: tf.gather(x, [2, 0, 1], batch_dims=-1), feed_rows(), FLOATS, "batch_dims=-1")
add("tensorflow.gather_nd", tf.gather_nd, feed_rows(np.int32([[0, 2], [5, 1]])), NUMBERS, is_static=True)
add("tensorflow.scatter_nd", lambda x, i: tf.scatter_nd(i, x, (5, 3)), feed_rows(REPEATED_INDICES), NUMBERS)
for name in ("add", "sub", "max", "min", "update"):
    indices = UNIQUE_INDICES if name == "update" else REPEATED_INDICES
    scatter = partial(lambda f, x, i: f(x, i, x[::-1]), getattr(tf, f"tensor_scatter_nd_{name}"))
    add(f"tensorflow.tensor_scatter_nd_{name}", scatter, feed_rows(indices), NUMBERS)
for reduction in ("sum", "mean", "sqrt_n", "prod", "max", "min"):
    name, dtypes = f"math.unsorted_segment_{reduction}", FLOATS if reduction in ("mean", "sqrt_n") else REALS
    add_ops(tf, name, feed_rows(UNSORTED_IDS), dtypes, num_segments=4, limit=5e-6)
add(
    "tensorflow.math.unsorted_segment_sum",
    lambda x: tf.math.unsorted_segment_sum(x, np.arange(18).reshape(6, 3) % 5 - 1, 4),
    feed_rows(),
    FLOATS,
    "2D ids",
)
add_ops(tf, "math.segment_mean", feed_rows(SORTED_IDS), FLOATS, limit=5e-6)
for reduction in ("sum", "mean", "sqrt_n"):
    for variant, options in {"": {}, "num_segments=6": {"num_segments": 6}}.items():
        segment = partial(getattr(tf.sparse, f"segment_{reduction}"), **options)
        reduce_rows = partial(lambda f, x, ids: f(x, [1, 0, 2, 3, 3, 5], ids), segment)
        add(f"tensorflow.sparse.segment_{reduction}", reduce_rows, feed_rows(SORTED_IDS), FLOATS, variant, limit=5e-6)
add_ops(tf, "math.bincount", feed(np.int32([0, 3, 3, 7])), INT32, variant="maxlength=5", maxlength=5)
counts = feed(np.int32([[0, 3], [3, 7]]))
add_ops(tf, "math.bincount", counts, INT32, variant="binary_output", axis=-1, binary_output=True)
add("tensorflow.dynamic_stitch", lambda x: tf.dynamic_stitch([[0, 2], [1, 2]], [x[:2], x[2:4]]), feed_rows(), NUMBERS)
partitions, partition = feed_rows(np.int32([0, 1, 2, 1, 0, 0])), partial(tf.dynamic_partition, num_partitions=3)
add("tensorflow.dynamic_partition", partition, partitions, NUMBERS)
add("tensorflow.boolean_mask", lambda x: tf.boolean_mask(x, x > 0), feed_rows(), NUMBERS)
add_ops(tf, "math.invert_permutation", feed(np.int32([2, 0, 1])), INT32)
add_ops(tf, "math.invert_permutation", feed(np.int64([2, 0, 1])), ("int64",))
add_ops(tf, "reverse_sequence", MATRIX, NUMBERS, seq_lengths=[0, 2, 4], seq_axis=1)
add_ops(tf, "reverse", MATRIX, DTYPES, axis=[-1])
add("tensorflow.range", lambda x: tf.range(x[0], 9, 2.5), fill((2,)), FLOATS)

# Two tensors
add_raw("Add Mul Sub", "x y", make_pairs, ("float32", "int32"))
add_raw("Div", "x y", make_quotients, ("float32", *SIGNED_INTEGERS))
add_raw("Pow", "x y", make_pairs, FLOATS)
add_raw("BitwiseAnd BitwiseOr BitwiseXor LeftShift RightShift", "x y", make_pairs, INTEGERS)
add_raw("BiasAddV1", "value bias", fill((2, 3, 4), (4,)), REALS)
for variant, size in {"NHWC": 5, "NCHW": 3}.items():
    add_raw("BiasAdd", "value bias", fill((2, 3, 4, 5), (size,)), REALS, variant, data_format=variant)
for transpose_a in (False, True):
    for transpose_b in (False, True):
        shapes = ((4, 3) if transpose_a else (3, 4), (5, 4) if transpose_b else (4, 5))
        variant = f"{transpose_a}, {transpose_b}"
        add_raw("MatMul", "a b", fill(*shapes), REALS, variant, transpose_a=transpose_a, transpose_b=transpose_b)
        make_inputs = fill(*((2, *shape) for shape in shapes))
        add_raw("BatchMatMul BatchMatMulV2", "x y", make_inputs, REALS, variant, adj_x=transpose_a, adj_y=transpose_b)
add_raw("BatchMatMulV3", "x y", fill((2, 3, 4), (4, 5)), ("uint8",), Tout=tf.int32)

# Arguments as tensors
add_raw("ClipByValue", "t clip_value_min clip_value_max", fill((5,), (), ()), REALS)
add_raw("Bincount", "arr weights", feed(np.int32([0, 3, 3, 7]), np.array([1.0, 2, 3, -4])), FLOAT32, size=6)
add_raw("Select", "condition x y", feed(np.array([True, False, True]), np.arange(3.0), -np.arange(3.0)), FLOATS)
add_raw("PlaceholderWithDefault", "input", MATRIX, DTYPES, shape=[None, 4])
add_raw("CheckNumerics", "tensor", MATRIX, FLOATS, message="not finite")
add_raw("EnsureShape", "input", MATRIX, DTYPES, shape=[None, 4])
add_raw("DeepCopy", "x", MATRIX, FLOAT32)
add_raw("Pad", "input", MATRIX, DTYPES, paddings=[[1, 2], [0, 1]])
add_raw("ArgMax ArgMin", "input", make_rows, ("bool",), dimension=-1)
add_raw("Transpose", "x perm", feed(np.zeros((2, 3)), np.int32([1, 0])), FLOAT32, refusal="op `Transpose`")
add_raw("Gather", "params indices", feed_rows(np.int32([[0, 2], [5, 1]])), NUMBERS)
add_raw("SegmentSum SegmentProd SegmentMax SegmentMin", "data segment_ids", feed_rows(SORTED_IDS), REALS, limit=5e-6)
stitch = partial(tf.raw_ops.ParallelDynamicStitch, indices=[[0, 4, 2], [1, 5, 3]])
for name, function in {
    "identity_n": lambda x, y: tf.identity_n([x, y]),
    "raw_ops.Concat": lambda x, y: tf.raw_ops.Concat(concat_dim=-1, values=[x, y]),
    "raw_ops.ParallelDynamicStitch": lambda x, y: stitch(data=[x, y]),
}.items():
    add_tf(name, function, fill((3, 4), (3, 4)), REALS)


def add_after_no_op(x):
    with tf.control_dependencies([tf.no_op()]):
        return x + x


add_tf("no_op", add_after_no_op, MATRIX, REALS)
add_raw("BesselI0", "x", make_array, FLOATS, limit=1e-5)
add_raw("Bucketize", "input", make_array, ("float32", "int32"), boundaries=[-3.5, 0, 2])
add_raw("Cross", "a b", fill((2, 3), (2, 3)), REALS)
add_raw("LowerBound UpperBound", "sorted_inputs values", feed(np.array([[-1.0, 0, 0, 2]]), np.array([[-2.0, 0, 2, 3]])))
add_raw("InTopKV2", "predictions targets", feed(np.array([[1.0, 2, 3], [2, 2, 2]]), np.int32([2, 5])), FLOAT32, k=1)
paths = feed(np.random.default_rng(0).normal(size=(6, 2, 4)), np.int32([6, 3]))
refusal = "Op `CTCGreedyDecoder`"
add_raw("CTCGreedyDecoder", "inputs sequence_length", paths, FLOAT32, merge_repeated=True, refusal=refusal)

# Earlier versions of operators
add_raw("MatrixDiag", "diagonal", fill((2, 3)), DTYPES)
add_raw("MatrixDiagPart", "input", fill((2, 3, 4)), DTYPES)
add_raw("MatrixSetDiag", "input diagonal", fill((2, 3, 4), (2, 3)), DTYPES)
add_raw("MatrixDiagV2", "diagonal", fill((2, 3)), FLOAT32, k=1, num_rows=-1, num_cols=-1, padding_value=7.0)
add_raw("MatrixDiagPartV2", "input", fill((2, 3, 4)), FLOAT32, k=[-1, 1], padding_value=7.0)
add_raw("MatrixSetDiagV2", "input diagonal", fill((2, 4, 4), (2, 3)), FLOAT32, k=1)
