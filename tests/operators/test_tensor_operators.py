"""Slice updates, paddings, complex tensors and einsum in ONNX against TensorFlow."""

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from converted_functions import ConvertedFunction

X, PART = np.arange(24, dtype="float32").reshape(2, 3, 4), -np.ones((2, 1, 2), "float32")


def update_slice(x, part, start):
    return keras.ops.slice_update(x, start, part)


@pytest.mark.parametrize("start", [(0, 0, 0), (0, 2, 1), (0, 9, 3), (-1, 1, 0)])
def test_slice_update_beyond_the_end_is_shifted_to_fit(start):
    converted = ConvertedFunction(update_slice, x=X, part=PART, start=np.zeros(3, "int32"))
    output = converted.assert_parity(start=np.array(start, "int32"))
    assert (output == -1).sum() == PART.size


@pytest.mark.parametrize(
    "x",
    [*map(X.astype, ("int32", "int64", "float64")), np.where(X > 20, np.inf, np.where(X < 3, np.nan, X)).astype("f")],
    ids=["int32", "int64", "float64", "infinities"],
)
def test_slice_update_keeps_elements_outside_the_slice(x):
    ConvertedFunction(update_slice, x=x, part=PART.astype(x.dtype), start=np.array([0, 1, 1], "int64")).assert_parity()


def test_reshape_to_a_size_of_zero_is_empty():
    converted = ConvertedFunction(lambda x: keras.ops.reshape(x[..., :0], (keras.ops.shape(x)[0], 0, 7)), x=X)
    assert converted.assert_parity().shape == (2, 0, 7)


PADDINGS = [[0, 0], [1, 2], [0, 1], [0, 0]]
IMAGES = np.random.default_rng(0).integers(-9, 9, (2, 7, 6, 4))


@pytest.mark.parametrize(
    ("dtype", "stride", "channels", "pads"),
    [("float32", 1, 4, 0), ("float32", 2, 2, 0), ("int32", 1, 4, 1)],  # a kernel of 2 channels: two groups
)
def test_float_padding_becomes_part_of_the_convolution(dtype, stride, channels, pads):
    kernel = np.random.default_rng(1).integers(-3, 4, (3, 2, channels, 6)).astype(dtype)
    converted = ConvertedFunction(
        lambda x: tf.nn.conv2d(tf.pad(tf.ensure_shape(x, (None, None, None, 4)), PADDINGS), kernel, stride, "VALID"),
        x=IMAGES.astype(dtype),
    )
    converted.assert_parity()
    assert [node.op_type for node in converted.model.graph.node].count("Pad") == pads


A, B = np.random.default_rng(0).standard_normal((2, 2, 3, 4)).astype("float32")
FACTOR = tf.constant(2 + 3j, tf.complex64)
COMPLEX_OPERATIONS = (
    lambda z: tf.transpose(z, [0, 2, 1]),
    lambda z: tf.expand_dims(z, 1)[..., None],
    lambda z: tf.reshape(z, [-1, tf.shape(z)[2]]),
    lambda z: z[:, 1:, ::-2],
    lambda z: tf.concat([z, z], -1),
    lambda z: tf.stack(tf.unstack(z, 3, 1), 2),
    lambda z: tf.gather(z, [2, 0], axis=1),
    lambda z: tf.pad(z, [[0, 0], [1, 0], [0, 2]]),
    lambda z: tf.reduce_sum(z, 1) - tf.reduce_mean(z, 1),
    lambda z: z * FACTOR + tf.math.conj(z),
    lambda z: z / FACTOR + 1.0 / (z + 3.0),
    lambda z: tf.matmul(z, z, adjoint_b=True),
    lambda z: tf.matmul(tf.linalg.adjoint(z), z),
    lambda z: tf.einsum("bij,bkj->bik", z, z),
    lambda z: tf.exp(z) + tf.math.log(z) + tf.square(z),
    lambda z: tf.where(tf.math.real(z) > 0, z, -z),
    lambda z: tf.cast(tf.abs(z), tf.complex64) * tf.complex(tf.cast(z, tf.float32), 1.0),
    lambda z: tf.complex(tf.math.angle(z), tf.reshape(tf.math.imag(z), tf.shape(z))),
)


SELECTIONS = {
    "diagonals": lambda x: tf.linalg.diag_part(x, k=(-1, 1)),
    "pooling": lambda x: tf.nn.max_pool2d(x[..., None], 2, 1, "VALID"),
}


@pytest.mark.parametrize("function", SELECTIONS.values(), ids=SELECTIONS)
def test_small_integers_are_selected_in_32_bits(function):
    converted = ConvertedFunction(function, x=X.astype("int8"))
    converted.assert_parity()
    dtypes = {node.attribute[0].i for node in converted.model.graph.node if node.op_type == "Cast"}
    assert {onnx.TensorProto.INT32, onnx.TensorProto.INT8} <= dtypes


def concatenate_parts(tensors):
    return tf.concat([tf.reshape(part, [-1]) for z in tensors for part in (tf.math.real(z), tf.math.imag(z))], 0)


@pytest.mark.slow
def test_operations_on_complex_tensors_equal_tensorflow():
    converted = ConvertedFunction(
        lambda a, b: concatenate_parts(f(tf.complex(a, b)) for f in COMPLEX_OPERATIONS), a=A, b=B
    )
    converted.assert_parity()
    converted.assert_parity(a=B[:1], b=A[:1])


def test_magnitudes_neither_overflow_nor_underflow():
    converted = ConvertedFunction(lambda a, b: tf.abs(tf.complex(a, b)), a=A, b=B)
    assert np.isfinite(converted.assert_parity(a=A * 1e30, b=B * 1e30)).all()
    assert converted.assert_parity(a=A * 1e-25, b=B * 1e-25).all()


AXIS_SIZES = {"b": 2, "t": 5, "s": 3, "g": 2, "k": 2, "m": 4, "h": 3, "u": 2}


def draw_numbers(axes, seed, sizes=AXIS_SIZES):
    return np.random.default_rng(seed).standard_normal([sizes[axis] for axis in axes]).astype("float32")


def list_operators(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize(
    ("equation", "reshapes"),
    [
        ("btm,muh->btuh", 1),  # projection to heads; the next line projects back
        ("btuh,uhm->btm", 1),
        ("bthu,uhm->btm", 1),
        ("uhm,btuh->btm", 1),
        ("btm,hm->bth", 0),
        ("btm,muh->bthu", 1),
        ("m,mh->h", 0),
        ("btm,m->bt", 1),
    ],
)
def test_einsum_with_a_kernel_is_one_product(equation, reshapes):
    terms = equation.partition("->")[0].split(",")
    kernel_index = 0 if terms[0] == "uhm" else 1
    kernel, input_axes = draw_numbers(terms[kernel_index], 0), terms[1 - kernel_index]

    def function(x):
        return tf.einsum(equation, *((kernel, x) if kernel_index == 0 else (x, kernel)))

    converted = ConvertedFunction(function, x=draw_numbers(input_axes, 1))
    converted.assert_parity()
    operators = list_operators(converted.model)
    assert (operators.count("MatMul"), operators.count("Shape"), operators.count("Einsum")) == (1, 0, 0)
    assert operators.count("Reshape") <= reshapes
    for rows in (1, 0) if "b" in input_axes else ():
        converted.assert_parity(x=draw_numbers(input_axes, 2)[:rows])


@pytest.mark.parametrize(
    "equation",
    [
        "btuh,bsuh->buts",  # scores with either operand first; then weighted values
        "bsuh,btuh->buts",
        "buts,bsuh->btuh",
        "btkgh,bskh->bkgts",  # grouped heads
        "bkgts,bskh->btkgh",
        "bskh,btkgh->bkgts",
        "ts,sh->th",
        "ts,sh->ht",
    ],
)
def test_einsum_of_two_tensors_is_a_product_and_transposes(equation):
    terms = equation.partition("->")[0].split(",")
    x, y = (draw_numbers(term, seed) for seed, term in enumerate(terms))
    converted = ConvertedFunction(lambda x, y: tf.einsum(equation, x, y), x=x, y=y)
    converted.assert_parity()
    assert {*list_operators(converted.model)} <= {"MatMul", "Transpose", "Unsqueeze"}


@pytest.mark.parametrize("equation", ["th,sk->ts", "ts,ts->ts", "ts,ts->", "tt,ts->ts", "bts,bsm->bm", "...s,sh->...h"])
def test_other_equations_equal_tensorflow(equation):
    terms = equation.replace("...", "b").partition("->")[0].split(",")
    sizes = {**AXIS_SIZES, "s": 5} if equation.startswith("tt") else AXIS_SIZES
    x, y = (draw_numbers(term, 0, sizes) for term in terms)
    ConvertedFunction(lambda x, y: tf.einsum(equation, x, y), x=x, y=y).assert_parity()
