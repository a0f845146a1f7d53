"""Loops, branches, arrays, tables, ragged and sparse tensors, matrices and transforms of TensorFlow itself."""

from functools import cache, partial

import numpy as np
import tensorflow as tf

from .grids import fixed, ordinary, pairs
from .of_linear_algebra import square
from .of_loops import beside_the_largest
from .of_tensorflow import ONLY, public, raw
from .table import add

BOTH = ("float32", "int32")
X, SIX = ordinary((4, 3)), fixed(np.arange(18.0).reshape(6, 3), np.int64([2, 0, 3, 1]))


# Loops and branches
def checked(x, then):
    """Something that TensorFlow does beside what it computes, so that loops and branches have a state."""
    with tf.control_dependencies([tf.debugging.assert_greater(x, tf.cast(-99, x.dtype))]):
        return then(x)


def branches(x, then=lambda x: x + x):
    return tf.cond(tf.reduce_sum(x) > 0, lambda: then(x), lambda: x - 1)


def steps(x, then=lambda a: a + 1):
    return tf.while_loop(lambda i, _: i < 3, lambda i, a: (i + 1, then(a)), (0, x))


STATE = partial(checked, then=lambda a: a * 2)
for how, then in {"": {}, "with a state": {"then": STATE}}.items():
    public("cond", partial(branches, **then), X, BOTH, how)
    public("while_loop", partial(steps, **then), X, BOTH, how)
public("map_fn", lambda x: tf.map_fn(lambda row: row * row[0], x), X, BOTH)
public("scan", lambda x: tf.scan(lambda a, row: a + row, x, reverse=True), X, BOTH)
public("foldr", lambda x: tf.foldr(lambda a, row: a - row, x), X, BOTH)
WEIGHTS = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")
for options in ({}, {"use_peephole": True}, {"cell_clip": 0.3, "forget_bias": 0.0}):
    cell = partial(tf.raw_ops.LSTMBlockCell, w=WEIGHTS, b=WEIGHTS[3], **options)
    cell = partial(cell, **{f"wc{gate}": WEIGHTS[place, :2] for place, gate in enumerate("ifo")})
    after = partial(lambda x, of: of(x=x, cs_prev=x[:, :2], h_prev=x[:, 1:])[1::5], of=cell)
    add("tf.raw_ops.LSTMBlockCell", after, X, ONLY, str(options or ""), limit=1e-5)


# Arrays
def backwards(x):
    last = tf.shape(x)[0] - 1
    array = tf.TensorArray(x.dtype, last + 1)
    array = tf.while_loop(lambda i, _: i <= last, lambda i, a: (i + 1, a.write(last - i, x[i])), (0, array))[1]
    return array.stack(), array.size()


def growing(x, size=0):
    array = tf.TensorArray(x.dtype, size, dynamic_size=True, element_shape=[3])
    array = array.write(0, x[0]).write(2, x[1])
    return array.stack(), array.size()


def given(x):
    array = tf.TensorArray(x.dtype, 4, clear_after_read=False, infer_shape=False, element_shape=[3]).unstack(x)
    return array.gather([2, 0]), array.read(1), array.concat()


for how, array in {"written backwards": backwards, "growing": growing, "from a tensor": given}.items():
    public("TensorArray", array, X, BOTH, how)


@cache
def table():
    with tf.init_scope():
        words = tf.lookup.KeyValueTensorInitializer(np.int64([5, -3, 2**40]), np.int64([1, 2, 3]))
        return tf.lookup.StaticHashTable(words, -1)


KEYS = fixed(np.int64([[5, 0], [-3, 2**40]]))
public("lookup.StaticHashTable", lambda x: table().lookup(x), KEYS, ("int64",))
public("lookup.StaticHashTable", lambda x: x + table().size(), KEYS, ("int64",), "size", refused="`LookupTableSizeV2`")


# Ragged and sparse tensors
def ragged(x, lengths, then=lambda z: z, **options):
    return then(tf.RaggedTensor.from_row_lengths(x, lengths, validate=False)).to_tensor(**options)


SHAPES = ([None, 2, None], [None, 5, 3], [2, None, None], [6, None, None])
for options in ({}, *({"shape": shape} for shape in SHAPES), {"default_value": 7.0}):
    public("RaggedTensor.to_tensor", partial(ragged, **options), SIX, ONLY, str(options or ""))
public("RaggedTensor.to_tensor", lambda x, n: ragged(x[:, 0], n), SIX, BOTH, "rows of numbers")
OTHERWISE = {
    "from_value_rowids": lambda x, n: tf.RaggedTensor.from_value_rowids(x, [0, 0, 2, 3, 3, 3], 5),
    "two ragged axes": lambda x, n: tf.RaggedTensor.from_nested_row_lengths(x, [[1, 0, 3], n], validate=False),
    "two ragged axes, from_value_rowids": lambda x, n: tf.RaggedTensor.from_nested_value_rowids(
        x, [[0, 2, 2, 2], [0, 0, 2, 3, 3, 3]], [3, 4]
    ),
}
for how, made in OTHERWISE.items():
    public("RaggedTensor.to_tensor", lambda x, n, made=made: made(x, n).to_tensor(), SIX, ONLY, how)
public(
    "RaggedTensor.to_tensor",
    lambda x, n: OTHERWISE["two ragged axes"](x, n).to_tensor(7.0, shape=[2, 4, 2, 3]),
    SIX,
    ONLY,
    "two ragged axes, cut to a shape",
)
taken = partial(ragged, then=lambda z: tf.gather(z, [2, 0]))
public("RaggedTensor.to_tensor", lambda x, n: taken(x[:, 0], n), SIX, ONLY, "after tf.gather, rows of numbers")
public("RaggedTensor.to_tensor", taken, SIX, ONLY, "after tf.gather", refused="`RaggedGather`")
public(
    "RaggedTensor.to_sparse",
    lambda x, n: tf.sparse.to_dense(tf.RaggedTensor.from_row_lengths(x[:, 0], n).to_sparse()),
    SIX,
)
public("ragged.range", lambda n: tf.ragged.range(n, n + 5, 2).to_tensor(), fixed(np.int32([2, 0, 3])), ("int32",))
SPARSE = {
    "sparse.to_dense": lambda z: z,
    "sparse.reshape": partial(tf.sparse.reshape, shape=[-1, 2]),
    "sparse.fill_empty_rows": lambda z: tf.sparse.fill_empty_rows(z, 9.0)[0],
}
for name, between in SPARSE.items():
    of = partial(lambda x, then: tf.sparse.to_dense(then(tf.sparse.from_dense(x))), then=between)
    public(name, of, fixed(np.array([[1.0, 0], [0, 0], [0, 3], [2, 0]])), ONLY)
for name in ("intersection", "difference", "union"):
    joined = partial(lambda x, y, of: tf.sparse.to_dense(of(x, y)), of=getattr(tf.sets, name))
    public(f"sets.{name}", joined, fixed(np.int32([[1, 2, 3]]), np.int32([[3, 4, 1]])), ("int32",))
for how, places in {"": [[0, 1], [1, 3], [2, 0]], "int64 indices": np.int64([[0, 1], [1, 3], [2, 0]])}.items():
    wide = {"sparse_indices": places, "output_shape": np.asarray([3, 4], np.asarray(places).dtype)}
    raw("SparseToDense", "sparse_values default_value", ordinary((3,), ()), BOTH, how, **wide)
ones = {"sparse_indices": [0, 2, 5], "output_shape": [7]}
raw("SparseToDense", "sparse_values default_value", ordinary((), ()), ONLY, "scalars", **ones)

# Matrices and transforms
public("linalg.det", tf.linalg.det, fixed(square(2, 3, 3)), ONLY, limit=2e-4)
public("linalg.inv", tf.linalg.inv, fixed(square(2, 3, 3)), ONLY, refused="Op `MatrixInverse`")
COMPLEX = ordinary((2, 3, 4, 8), (2, 3, 4, 8))
for axes in ("", "2d", "3d"):
    for name in (f"fft{axes}", f"ifft{axes}", f"irfft{axes}"):
        of = partial(lambda f, *z: f(tf.complex(*z)), getattr(tf.signal, name))
        back = partial(lambda of, *z: beside_the_largest(*_parts(of(*z))), of)
        public(f"signal.{name}", back, COMPLEX, ONLY)
    of = partial(lambda f, x: beside_the_largest(*_parts(f(x))), getattr(tf.signal, f"rfft{axes}"))
    public(f"signal.rfft{axes}", of, ordinary((2, 3, 4, 8)), ONLY)


def _parts(z):
    return (tf.math.real(z), tf.math.imag(z)) if z.dtype.is_complex else (z,)


public("abs", lambda *z: tf.abs(tf.complex(*z)), pairs, ONLY, "of complex numbers")
