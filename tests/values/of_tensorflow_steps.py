"""Loops, branches, arrays, tables, ragged and sparse tensors, matrices and transforms of TensorFlow."""

from functools import cache, partial

import numpy as np
import tensorflow as tf

from .grids import FLOAT32, INT32, feed, fill, make_pairs
from .of_linear_algebra import draw_matrices
from .of_loops import scale_by_largest
from .of_tensorflow import add_raw, add_tf
from .table import add

FLOAT32_INT32 = ("float32", "int32")
MATRIX, ROWS_AND_LENGTHS = fill((4, 3)), feed(np.arange(18.0).reshape(6, 3), np.int64([2, 0, 3, 1]))


# Loops and branches
def call_with_state(x, function):
    """Return `function(x)` with a control dependency on an assertion, so that loops and branches become stateful."""
    with tf.control_dependencies([tf.debugging.assert_greater(x, tf.cast(-99, x.dtype))]):
        return function(x)


def compute_cond(x, function=lambda x: x + x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: function(x), lambda: x - 1)


def compute_while(x, function=lambda a: a + 1):
    return tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, function(a)), (0, x))


double_with_state = partial(call_with_state, function=lambda x: x * 2)
for variant, options in {"": {}, "with a state": {"function": double_with_state}}.items():
    add_tf("cond", partial(compute_cond, **options), MATRIX, FLOAT32_INT32, variant)
    add_tf("while_loop", partial(compute_while, **options), MATRIX, FLOAT32_INT32, variant)
add_tf("map_fn", lambda x: tf.map_fn(lambda row: row * row[0], x), MATRIX, FLOAT32_INT32)
add_tf("scan", lambda x: tf.scan(lambda a, row: a + row, x, reverse=True), MATRIX, FLOAT32_INT32)
add_tf("foldr", lambda x: tf.foldr(lambda a, row: a - row, x), MATRIX, FLOAT32_INT32)
WEIGHTS = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
for options in ({}, {"use_peephole": True}, {"cell_clip": 0.3, "forget_bias": 0.0}):
    cell = partial(tf.raw_ops.LSTMBlockCell, w=WEIGHTS, b=WEIGHTS[3], **options)
    cell = partial(cell, **{f"wc{gate}": WEIGHTS[index, :2] for index, gate in enumerate("ifo")})
    # Outputs 1 and 6 are the new state of the cell and its output.
    run_step = partial(lambda cell, x: cell(x=x, cs_prev=x[:, :2], h_prev=x[:, 1:])[1::5], cell)
    add("tf.raw_ops.LSTMBlockCell", run_step, MATRIX, FLOAT32, str(options or ""), limit=1e-5)


# Arrays
def write_backwards(x):
    last_index = tf.shape(x)[0] - 1
    array = tf.TensorArray(x.dtype, last_index + 1)

    def write_element(i, array):
        return i + 1, array.write(last_index - i, x[i])

    _, array = tf.while_loop(lambda i, _: i <= last_index, write_element, (0, array))
    return array.stack(), array.size()


def write_to_growing_array(x, size=0):
    array = tf.TensorArray(x.dtype, size, dynamic_size=True, element_shape=[3])
    array = array.write(0, x[0]).write(2, x[1])
    return array.stack(), array.size()


def read_from_tensor(x):
    array = tf.TensorArray(x.dtype, 4, clear_after_read=False, infer_shape=False, element_shape=[3]).unstack(x)
    return array.gather([2, 0]), array.read(1), array.concat()


add_tf("TensorArray", write_backwards, MATRIX, FLOAT32_INT32, "written backwards")
add_tf("TensorArray", write_to_growing_array, MATRIX, FLOAT32_INT32, "growing")
add_tf("TensorArray", read_from_tensor, MATRIX, FLOAT32_INT32, "from a tensor")


@cache
def build_table():
    with tf.init_scope():
        initializer = tf.lookup.KeyValueTensorInitializer(np.int64([5, -3, 2**40]), np.int64([1, 2, 3]))
        return tf.lookup.StaticHashTable(initializer, -1)


KEYS = feed(np.int64([[5, 0], [-3, 2**40]]))
add_tf("lookup.StaticHashTable", lambda x: build_table().lookup(x), KEYS, ("int64",))
refusal = "`LookupTableSizeV2`"
add_tf("lookup.StaticHashTable", lambda x: x + build_table().size(), KEYS, ("int64",), "size", refusal=refusal)


# Ragged and sparse tensors
def convert_ragged(x, lengths, function=lambda ragged: ragged, **options):
    return function(tf.RaggedTensor.from_row_lengths(x, lengths, validate=False)).to_tensor(**options)


SHAPES = ([None, 2, None], [None, 5, 3], [2, None, None], [6, None, None])
for options in ({}, *({"shape": shape} for shape in SHAPES), {"default_value": 7.0}):
    add_tf("RaggedTensor.to_tensor", partial(convert_ragged, **options), ROWS_AND_LENGTHS, FLOAT32, str(options or ""))
make_inputs = ROWS_AND_LENGTHS
add_tf("RaggedTensor.to_tensor", lambda x, n: convert_ragged(x[:, 0], n), make_inputs, FLOAT32_INT32, "rows of numbers")
NESTED_IDS = [[0, 2, 2, 2], [0, 0, 2, 3, 3, 3]]
RAGGED_FUNCTIONS = {
    "from_value_rowids": lambda x, n: tf.RaggedTensor.from_value_rowids(x, [0, 0, 2, 3, 3, 3], 5),
    "two ragged axes": lambda x, n: tf.RaggedTensor.from_nested_row_lengths(x, [[1, 0, 3], n], validate=False),
    "two ragged axes, from_value_rowids": lambda x, n: tf.RaggedTensor.from_nested_value_rowids(x, NESTED_IDS, [3, 4]),
}
for variant, build in RAGGED_FUNCTIONS.items():
    function = partial(lambda build, x, n: build(x, n).to_tensor(), build)
    add_tf("RaggedTensor.to_tensor", function, make_inputs, FLOAT32, variant)
build = RAGGED_FUNCTIONS["two ragged axes"]
cut = partial(lambda build, x, n: build(x, n).to_tensor(7.0, shape=[2, 4, 2, 3]), build)
add_tf("RaggedTensor.to_tensor", cut, make_inputs, FLOAT32, "two ragged axes, cut to a shape")
gather = partial(convert_ragged, function=lambda ragged: tf.gather(ragged, [2, 0]))
gather_numbers = partial(lambda gather, x, n: gather(x[:, 0], n), gather)
add_tf("RaggedTensor.to_tensor", gather_numbers, make_inputs, FLOAT32, "after tf.gather, rows of numbers")
add_tf("RaggedTensor.to_tensor", gather, make_inputs, FLOAT32, "after tf.gather", refusal="`RaggedGather`")


def convert_to_sparse(x, lengths):
    return tf.sparse.to_dense(tf.RaggedTensor.from_row_lengths(x[:, 0], lengths).to_sparse())


add_tf("RaggedTensor.to_sparse", convert_to_sparse, make_inputs)
add_tf("ragged.range", lambda n: tf.ragged.range(n, n + 5, 2).to_tensor(), feed(np.int32([2, 0, 3])), INT32)
SPARSE_FUNCTIONS = {
    "sparse.to_dense": lambda z: z,
    "sparse.reshape": partial(tf.sparse.reshape, shape=[-1, 2]),
    "sparse.fill_empty_rows": lambda z: tf.sparse.fill_empty_rows(z, 9.0)[0],
}
for name, function in SPARSE_FUNCTIONS.items():
    function = partial(lambda f, x: tf.sparse.to_dense(f(tf.sparse.from_dense(x))), function)
    add_tf(name, function, feed(np.array([[1.0, 0], [0, 0], [0, 3], [2, 0]])), FLOAT32)
for name in ("intersection", "difference", "union"):
    function = partial(lambda f, x, y: tf.sparse.to_dense(f(x, y)), getattr(tf.sets, name))
    add_tf(f"sets.{name}", function, feed(np.int32([[1, 2, 3]]), np.int32([[3, 4, 1]])), INT32)
for variant, indices in {"": [[0, 1], [1, 3], [2, 0]], "int64 indices": np.int64([[0, 1], [1, 3], [2, 0]])}.items():
    options = {"sparse_indices": indices, "output_shape": np.asarray([3, 4], np.asarray(indices).dtype)}
    add_raw("SparseToDense", "sparse_values default_value", fill((3,), ()), FLOAT32_INT32, variant, **options)
options = {"sparse_indices": [0, 2, 5], "output_shape": [7]}
add_raw("SparseToDense", "sparse_values default_value", fill((), ()), FLOAT32, "scalars", **options)

# Matrices and transforms
add_tf("linalg.det", tf.linalg.det, feed(draw_matrices(2, 3, 3)), FLOAT32, limit=2e-4)
add_tf("linalg.inv", tf.linalg.inv, feed(draw_matrices(2, 3, 3)), FLOAT32, refusal="Op `MatrixInverse`")
COMPLEX = fill((2, 3, 4, 8), (2, 3, 4, 8))
for axes in ("", "2d", "3d"):
    for name in (f"fft{axes}", f"ifft{axes}", f"irfft{axes}"):
        function = getattr(tf.signal, name)
        transform = partial(lambda f, *z: scale_by_largest(*split_parts(f(tf.complex(*z)))), function)
        add_tf(f"signal.{name}", transform, COMPLEX, FLOAT32)
    transform = partial(lambda f, x: scale_by_largest(*split_parts(f(x))), getattr(tf.signal, f"rfft{axes}"))
    add_tf(f"signal.rfft{axes}", transform, fill((2, 3, 4, 8)), FLOAT32)


def split_parts(z):
    return (tf.math.real(z), tf.math.imag(z)) if z.dtype.is_complex else (z,)


add_tf("abs", lambda *z: tf.abs(tf.complex(*z)), make_pairs, FLOAT32, "of complex numbers")
