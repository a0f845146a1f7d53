"""Tracing: ops whose stock mapping loses numbers are replaced, ops without one are refused by name."""

import logging
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import onnx
import onnxruntime as ort
import pytest
import tensorflow as tf
from keras import layers

from keras_attn_export import UnsupportedModelError
from keras_attn_export._model.signature import layer_names, model_signature
from keras_attn_export._tracing.saved_model import write_saved_model
from keras_attn_export._tracing.to_onnx import trace


def traced(model, folder, names=()):
    return trace(write_saved_model(model, model_signature(model, None), folder / "saved_model"), names)


def run(model, inputs):
    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


def choice_model(dtype):
    condition = keras.Input((3,), dtype="bool", name="condition")
    first, second = (keras.Input((3,), dtype=dtype, name=name) for name in ("first", "second"))
    return keras.Model([condition, first, second], {"out": keras.ops.where(condition, first, second)})


CONDITION = np.array([[True, False, True]])


def test_where_keeps_what_is_not_chosen_out(tmp_path):
    model = traced(choice_model("float32"), tmp_path).model
    assert "Where" in {node.op_type for node in model.graph.node}
    first = np.array([[1, np.nan, 3]], "float32")
    second = np.array([[np.inf, -2, np.nan]], "float32")
    chosen = run(model, {"condition": CONDITION, "first": first, "second": second})
    np.testing.assert_array_equal(chosen, [[1, -2, 3]])


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float64"])
def test_where_of_other_dtypes(dtype, tmp_path):
    model = traced(choice_model(dtype), tmp_path).model
    first, second = np.array([[1, 0, 0]], dtype), np.array([[0, 1, 1]], dtype)
    chosen = run(model, {"condition": CONDITION, "first": first, "second": second})
    np.testing.assert_array_equal(chosen, np.where(CONDITION, first, second))


def test_exact_gelu(tmp_path):
    x = keras.Input((7,), name="x")
    keras_model = keras.Model(x, {"out": keras.ops.gelu(x, approximate=False)})
    model = traced(keras_model, tmp_path).model
    values = np.array([[-9, -3, -1, 0, 1, 3, 9]], "float32")
    np.testing.assert_allclose(run(model, {"x": values}), keras_model(values)["out"], rtol=1e-5, atol=1e-6)


class Bessel(layers.Layer):
    """A layer with an op that ONNX has no word for."""

    def call(self, x):
        return tf.math.bessel_i0e(x)


def test_an_op_without_mapping_is_named_with_its_layer(tmp_path):
    x = keras.Input((3,), name="x")
    model = keras.Model(x, Bessel(name="odd_one")(layers.Dense(3, name="plain")(x)))
    with pytest.raises(UnsupportedModelError, match="Op `BesselI0e` of layer `odd_one` has no mapping to ONNX"):
        traced(model, tmp_path, ["plain", "odd_one"])


def test_an_op_inside_a_loop_is_found_too(tmp_path):
    class InLoop(layers.Layer):
        def call(self, x):
            return keras.ops.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: (tf.math.bessel_i0e(y) + y,), (x,))[
                0
            ]

    x = keras.Input((3,), name="x")
    model = keras.Model(x, InLoop(name="looping")(x))
    with pytest.raises(UnsupportedModelError, match="`BesselI0e`"):
        traced(model, tmp_path, ["looping"])


@pytest.mark.parametrize("size", ["alone", "among others"])
def test_jit_compiled_functions_are_inlined(size, tmp_path):
    class Jitted(layers.Layer):
        def __init__(self):
            super().__init__()
            self.compiled = tf.function(lambda x: tf.nn.relu(x) * 2.0, jit_compile=True)

        def call(self, x):
            return self.compiled(x)

    x = keras.Input((3,), name="x")
    y = Jitted()(x)
    keras_model = keras.Model(x, {"out": y if size == "alone" else layers.Dense(4, name="after")(y)})
    model = traced(keras_model, tmp_path).model
    values = np.array([[-1, 0, 2.5]], "float32")
    np.testing.assert_allclose(run(model, {"x": values}), keras_model(values)["out"], rtol=1e-6)


def test_argmax(tmp_path):
    x = keras.Input((None, 5), name="x")
    keras_model = keras.Model(x, {"out": keras.ops.argmax(x, -1)})
    model = traced(keras_model, tmp_path).model
    values = np.array(
        [[[0.0, -0.0, -1, -2, -3], [-1, -0.0, 0.0, -5, -5], [3, 1, 7, 7, 2], [-2, -1, -3, -4, -1]]], "float32"
    )
    np.testing.assert_array_equal(run(model, {"x": values}), keras_model(values)["out"])


def test_another_use_of_bitcast_is_refused(tmp_path):
    class Bits(layers.Layer):
        def call(self, x):
            return tf.bitcast(x, tf.int32) + 1

    x = keras.Input((3,), name="x")
    model = keras.Model(x, Bits(name="bits")(x))
    with pytest.raises(UnsupportedModelError, match="`Bitcast` of layer `bits`"):
        traced(model, tmp_path, ["bits"])


def test_a_lookup_is_named(tmp_path):
    x = keras.Input((), dtype="int64", name="x")
    model = keras.Model(x, layers.IntegerLookup(vocabulary=[4, 5], name="lookup")(x))
    with pytest.raises(UnsupportedModelError, match="Op `LookupTableFindV2` of layer `lookup`"):
        traced(model, tmp_path, ["lookup"])


def test_an_op_of_keras_ops_is_named(tmp_path):
    x = keras.Input((3,), name="x")
    model = keras.Model(x, keras.ops.erfinv(x))
    with pytest.raises(UnsupportedModelError, match="Op `Erfinv` of layer `erfinv`"):
        traced(model, tmp_path, layer_names(model))


@pytest.mark.parametrize("op", ["AssignVariableOp", "AssignAddVariableOp"])
def test_a_layer_that_changes_a_variable_is_named(op, tmp_path):
    class Running(layers.Layer):
        def build(self, shape):
            self.total = self.add_weight(shape=(), trainable=False)

        def call(self, x):
            # that of Keras reads, adds and assigns, that of TensorFlow is one op
            (self.total if op == "AssignVariableOp" else self.total.value).assign_add(0.0)
            return x

    x = keras.Input((3,), name="x")
    model = keras.Model(x, Running(name="running")(x))
    with pytest.raises(UnsupportedModelError, match=f"Op `{op}` of layer `running` changes a variable"):
        traced(model, tmp_path, ["running"])


@pytest.mark.parametrize("layer", [layers.LSTM(4, dropout=0.2), layers.GRU(4, recurrent_dropout=0.2)])
def test_a_seed_may_count_on(layer, tmp_path):
    x = keras.Input((None, 3), name="x")
    keras_model = keras.Model(x, {"out": layers.Bidirectional(layer)(x)})
    model = traced(keras_model, tmp_path).model
    values = np.random.default_rng(0).standard_normal((2, 5, 3)).astype("float32")
    np.testing.assert_allclose(run(model, {"x": values}), keras_model(values)["out"], rtol=1e-5, atol=1e-6)


def test_python_that_needs_numbers_is_named(tmp_path):
    class Numeric(layers.Layer):
        def call(self, x):
            return tf.constant(np.asarray(x) * 2)

        def compute_output_spec(self, x):
            return keras.KerasTensor(x.shape, x.dtype)

    x = keras.Input((3,), name="x")
    model = keras.Model(x, Numeric(name="numeric")(x))
    with pytest.raises(UnsupportedModelError, match=r"Layer `numeric` \(Numeric\) cannot be traced into a graph"):
        traced(model, tmp_path)


def test_tf2onnx_is_quiet_and_its_logger_restored(tmp_path, caplog):
    logger = logging.getLogger("tf2onnx")
    before = (logger.level, logger.propagate, list(logger.handlers))
    x = keras.Input((3,), name="x")
    traced(keras.Model(x, layers.Dense(2)(x)), tmp_path)
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    assert not [record for record in caplog.records if record.name.startswith("tf2onnx")]


def test_names_of_the_saved_model_are_the_graphs(tmp_path):
    result = traced(choice_model("float32"), tmp_path)
    model, shapes = result.model, result.outputs
    assert {value.name for value in model.graph.input} == {"condition", "first", "second"}
    assert [value.name for value in model.graph.output] == ["out"]
    assert shapes == {"out": (None, 3)}
    assert onnx.defs.onnx_opset_version() >= 24


def test_the_logger_of_tf2onnx_is_left_as_it_was(tmp_path):
    logger = logging.getLogger("tf2onnx")
    before = logger.level, logger.propagate, list(logger.handlers)
    with ThreadPoolExecutor(2) as threads:
        for number in range(2):
            threads.submit(traced, choice_model("float32"), tmp_path / str(number))
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
