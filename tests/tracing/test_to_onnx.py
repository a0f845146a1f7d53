"""Tracing: ops with a wrong mapping in tf2onnx are replaced, and ops without a mapping are refused by name."""

import logging
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers, ops
from traced_models import run_traced_model, trace_model

from keras_attn_export import UnsupportedModelError
from keras_attn_export._signature.signature import build_signature

BRANCHES = ("first", "second")


def build_where_model(*dtypes):
    """Return a model with one `where` per dtype under a common condition."""
    inputs, outputs = [condition := keras.Input((3,), dtype="bool", name="condition")], {}
    for dtype in dtypes:
        pair = [keras.Input((3,), dtype=dtype, name=f"{branch}_{dtype}") for branch in BRANCHES]
        inputs += pair
        outputs[dtype] = ops.where(condition, *pair)
    return keras.Model(inputs, outputs)


def test_op_where_ignores_nan_in_the_other_branch(tmp_path):
    pairs = {dtype: np.array([[[1, 0, 0]], [[0, 1, 1]]], dtype) for dtype in ("bool", "int32", "int64", "float64")}
    pairs["float32"] = np.array([[[1, np.nan, 3]], [[np.inf, -2, np.nan]]], "float32")
    feeds = {f"{branch}_{dtype}": pair[i] for dtype, pair in pairs.items() for i, branch in enumerate(BRANCHES)}
    condition = np.array([[True, False, True]])
    actual = run_traced_model(build_where_model(*pairs), {"condition": condition, **feeds}, tmp_path)
    for dtype, pair in pairs.items():
        assert actual[dtype].dtype == dtype
        np.testing.assert_array_equal(actual[dtype], np.where(condition, *pair))


def test_jit_compiled_functions_equal_keras(tmp_path):
    x, array = keras.Input((3,), name="x"), np.array([[-1, 0, 2.5]], "float32")
    compiled = layers.Lambda(tf.function(lambda x: tf.nn.relu(x) * 2.0, jit_compile=True))
    model = keras.Model(x, {"out": layers.Dense(4, name="after")(compiled(x))})
    np.testing.assert_allclose(run_traced_model(model, {"x": array}, tmp_path)["out"], model(array)["out"], rtol=1e-6)


class AssignVariable(layers.Layer):
    """Layer that assigns a TensorFlow variable, which Keras does not notice."""

    def build(self, shape):
        self.total = self.add_weight(shape=(), trainable=False)

    def call(self, x):
        self.total.value.assign_add(0.0)
        return x


def build_lambda(function):
    return layers.Lambda(function, name="odd", output_shape=(3,))


def build_nested_model(function):
    x = keras.Input((3,), name="inner")
    return keras.Model(x, function(x), name="nested")


def repeat_in_loop(function):
    return lambda x: tf.while_loop(
        lambda i, _: i < 3, lambda i, y: (i + 1, tf.ensure_shape(function(y), y.shape)), (0, x)
    )[1]


def build_complex_op(function):
    return build_lambda(lambda x: tf.math.imag(function(tf.complex(x, x))))


@tf.function(autograph=False)
def loop_without_counter(x):
    """Run a loop whose first state is no step counter, as in `tf.nn.ctc_loss`."""
    specs = [tf.TensorSpec([], tf.int32), tf.TensorSpec([], tf.int32), tf.TensorSpec([None, 3])]
    condition = tf.function(lambda i, end, x: i < end).get_concrete_function(*specs)
    step = tf.function(lambda i, end, x: (i + 2, end, x * 2.0)).get_concrete_function(*specs)
    return tf.raw_ops.StatelessWhile(input=[0, 5, x], cond=condition, body=step)[2]


KERNEL = np.ones((3, 3, 2, 6), "int32")  # two groups of two channels
UNSUPPORTED = {
    "no mapping": (build_lambda(tf.math.bessel_i0e), None, "Op `BesselI0e` of layer `odd` has no mapping to ONNX"),
    "in a loop": (build_lambda(repeat_in_loop(tf.math.bessel_i0e)), None, "`BesselI0e`"),
    "bitcast": (
        build_nested_model(build_lambda(lambda x: tf.bitcast(x, tf.int32) + 1)),
        None,
        "Op `Bitcast` of layer `odd` has no mapping to ONNX: ONNX has bit casts from opset 26",
    ),
    "complex root": (build_complex_op(lambda z: tf.sqrt(tf.signal.fft(z))), None, "Op `ComplexSqrt` of layer `odd`"),
    "not a loop of TensorFlow": (
        build_lambda(loop_without_counter),
        None,
        "Op `StatelessWhile` of layer `odd` .+ iteration counter .+ Write that layer with `keras.ops.w",
    ),
    "inverses": (
        build_lambda(lambda x: tf.linalg.inv(x[:, None] * tf.eye(3))),
        None,
        "Op `MatrixInverse` of layer `odd` has no mapping to ONNX. Write that layer with other ops, or move it out",
    ),
    "another form": (
        build_lambda(lambda x: tf.strings.lower(x, encoding="utf-8")),
        "string",
        "Op `StringLower` of layer `odd` has no mapping to ONNX: only ASCII letters .+ Write that layer with `enc",
    ),
    "of keras.ops": (build_nested_model(lambda x: ops.nextafter(x, x)), None, "Op `NextAfter` of layer `nested`"),
    "a handler that fails": (
        build_lambda(lambda x: tf.gather(x, [0, 1, 2], axis=tf.cast(tf.reduce_sum(x) * 0 + 1, tf.int32))),
        None,
        "tf2onnx cannot convert op `GatherV2` of layer `odd`: .+ Write that layer with an axis that is a plain integer",
    ),
    "a handler that names its constant": (
        build_nested_model(build_lambda(lambda x: tf.reverse(x, [tf.cast(tf.reduce_sum(x) * 0 + 1, tf.int32)]))),
        None,
        "tf2onnx cannot convert op `ReverseV2` of layer `odd`: .+ Write that layer with axes that are plain integers",
    ),
    "a handler in a loop": (
        build_lambda(repeat_in_loop(lambda x: tf.transpose(x, [axis := tf.cast(x[0, 0] * 0, tf.int32), axis + 1]))),
        None,
        "tf2onnx cannot convert op `Transpose` of layer `odd`: .+ Write that layer with axes that are plain integers",
    ),
    "integers in groups": (
        build_lambda(lambda x: tf.nn.conv2d(tf.fill((2, 5, 5, 4), tf.cast(x[0, 0], "int32")), KERNEL, 1, "SAME")),
        None,
        "Op `Conv2D` of layer `odd` .+: convolutions of integers and float64 must have one group. Write .+ float32",
    ),
    "of Python": (
        build_lambda(lambda x: tf.ensure_shape(tf.numpy_function(np.sin, [x], tf.float32), [None, 3])),
        None,
        "Op `PyFunc` of layer `odd` has no mapping to ONNX. Write that layer with ops of TensorFlow in place of",
    ),
    "booleans": (
        build_lambda(lambda x: ops.slice_update(x > 0, (0, 1), x[:, :1] > 0)),
        None,
        "Op `XlaDynamicUpdateSlice` of layer `odd` has no mapping to ONNX: .+ no `Where` of booleans",
    ),
    "assignment": (AssignVariable(name="odd"), None, "Op `AssignAddVariableOp` of layer `odd` changes a variable"),
    "in Python": (build_lambda(lambda x: np.asarray(x) * 2), None, r"Layer `odd` \(Lambda\) cannot be traced"),
}


@pytest.mark.parametrize(("outputs", "dtype", "message"), UNSUPPORTED.values(), ids=UNSUPPORTED)
def test_operator_without_a_mapping_is_refused_with_its_layer(outputs, dtype, message, tmp_path):
    x = keras.Input((3,), dtype=dtype, name="x")
    model = keras.Model(x, outputs(x if dtype else layers.Dense(3, name="plain")(x)))
    with pytest.raises(UnsupportedModelError, match=message):
        trace_model(model, tmp_path, build_signature(model).layer_names)


def test_refusal_names_operator_and_layer_and_gives_reason_and_advice(tmp_path):
    content = tf.lookup.KeyValueTensorInitializer(["red"], [0.5])
    table = tf.lookup.StaticHashTable(content, 0.0)
    x = keras.Input((3,), dtype="string", name="x")
    layer = build_lambda(table.lookup)
    layer.table = table  # TensorFlow exports only tables that are attributes
    model = keras.Model(x, layer(x))
    with pytest.raises(UnsupportedModelError) as caught:
        trace_model(model, tmp_path, build_signature(model).layer_names)
    assert str(caught.value) == (
        "Op `LookupTableFindV2` of layer `odd` has no mapping to ONNX: only keys and values of int64 and string are "
        "supported. Write that layer with other ops, or move it out of the model."
    )


def test_logger_of_tf2onnx_is_silent_and_restored(tmp_path, caplog, monkeypatch):
    """Two threads trace at the same time."""
    logger = logging.getLogger("tf2onnx")
    monkeypatch.setattr(logger, "level", logging.INFO)
    state = logger.level, logger.propagate, list(logger.handlers)
    with ThreadPoolExecutor(2) as threads:
        for number in range(2):
            threads.submit(trace_model, build_where_model("float32"), tmp_path / str(number))
    assert (logger.level, logger.propagate, list(logger.handlers)) == state
    assert not [record for record in caplog.records if record.name.startswith("tf2onnx")]
