"""Tracing: ops whose stock mapping loses numbers are replaced, ops without one are refused by name."""

import logging
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import onnx
import pytest
import tensorflow as tf
from keras import layers, ops
from traced_models import onnx_outputs, run, traced

from keras_attn_export import UnsupportedModelError
from keras_attn_export._model.signature import layer_names


def choice_model(*dtypes):
    """A choice for each dtype, by one condition."""
    inputs, outputs = [condition := keras.Input((3,), dtype="bool", name="condition")], {}
    for dtype in dtypes:
        pair = [keras.Input((3,), dtype=dtype, name=f"{which}_{dtype}") for which in ("first", "second")]
        inputs += pair
        outputs[dtype] = ops.where(condition, *pair)
    return keras.Model(inputs, outputs)


CONDITION = np.array([[True, False, True]])


def test_where_keeps_what_is_not_chosen_out(tmp_path):
    found = traced(choice_model("float32"), tmp_path)
    assert {value.name for value in found.model.graph.input} == {"condition", "first_float32", "second_float32"}
    assert found.outputs == {"float32": (None, 3)}
    assert "Where" in {node.op_type for node in found.model.graph.node}
    first, second = np.array([[1, np.nan, 3]], "float32"), np.array([[np.inf, -2, np.nan]], "float32")
    chosen = run(found.model, condition=CONDITION, first_float32=first, second_float32=second)
    np.testing.assert_array_equal(chosen["float32"], [[1, -2, 3]])
    assert onnx.defs.onnx_opset_version() >= 24


def test_where_of_other_dtypes(tmp_path):
    dtypes, first, second = ("bool", "int32", "int64", "float64"), [[1, 0, 0]], [[0, 1, 1]]
    given = {
        f"{name}_{each}": np.array(a, each) for each in dtypes for name, a in (("first", first), ("second", second))
    }
    chosen = onnx_outputs(choice_model(*dtypes), {"condition": CONDITION, **given}, tmp_path)
    for dtype, array in chosen.items():
        assert array.dtype == dtype
        np.testing.assert_array_equal(array, np.where(CONDITION, first, second))


class Jitted(layers.Layer):
    def __init__(self):
        super().__init__()
        self.compiled = tf.function(lambda x: tf.nn.relu(x) * 2.0, jit_compile=True)

    def call(self, x):
        return self.compiled(x)


SERIES = np.random.default_rng(0).standard_normal((2, 5, 3)).astype("float32")
EQUALS = [[0.0, -0.0, -1, -2, -3], [-1, -0.0, 0.0, -5, -5], [3, 1, 7, 7, 2], [-2, -1, -3, -4, -1]]


@pytest.mark.parametrize(
    ("outputs", "given"),
    [
        (lambda x: ops.gelu(x, approximate=False), np.array([[-9, -3, -1, 0, 1, 3, 9]], "float32")),
        (lambda x: Jitted()(x), np.array([[-1, 0, 2.5]], "float32")),
        (lambda x: layers.Dense(4, name="after")(Jitted()(x)), np.array([[-1, 0, 2.5]], "float32")),
        (lambda x: ops.argmax(x, -1), np.array([EQUALS], "float32")),
        # a seed may count on
        (lambda x: layers.Bidirectional(layers.LSTM(4, dropout=0.2))(x), SERIES),
        (layers.GRU(4, recurrent_dropout=0.2), SERIES),
    ],
    ids=["exact gelu", "jit compiled", "jit compiled among others", "argmax", "dropout", "recurrent dropout"],
)
def test_numbers(outputs, given, tmp_path):
    x = keras.Input((*[None] * (given.ndim - 2), given.shape[-1]), name="x")
    model = keras.Model(x, {"out": outputs(x)})
    found, expected = onnx_outputs(model, {"x": given}, tmp_path)["out"], model(given)["out"].numpy()
    assert found.dtype == expected.dtype
    np.testing.assert_allclose(found, expected, rtol=1e-5 if given.size > 3 else 1e-6, atol=1e-6)


class InLoop(layers.Layer):
    def call(self, x):
        return ops.while_loop(lambda y: tf.reduce_sum(y) < 9.0, lambda y: (tf.math.bessel_i0e(y) + y,), (x,))[0]


class Running(layers.Layer):
    """Changes a variable: as Keras does, which reads, adds and assigns, or as TensorFlow, in one op."""

    def __init__(self, of_keras, **options):
        super().__init__(**options)
        self.of_keras = of_keras

    def build(self, shape):
        self.total = self.add_weight(shape=(), trainable=False)

    def call(self, x):
        (self.total if self.of_keras else self.total.value).assign_add(0.0)
        return x


class Numeric(layers.Layer):
    def call(self, x):
        return tf.constant(np.asarray(x) * 2)

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)


def bits(x):
    return tf.bitcast(x, tf.int32) + 1


NO_WORD = {"name": "odd", "output_shape": (3,)}


@pytest.mark.parametrize(
    ("outputs", "dtype", "said"),
    [
        (layers.Lambda(tf.math.bessel_i0e, **NO_WORD), None, "Op `BesselI0e` of layer `odd` has no mapping to ONNX"),
        (InLoop(name="odd"), None, "`BesselI0e`"),
        (layers.Lambda(bits, **NO_WORD), None, "`Bitcast` of layer `odd`"),
        (layers.IntegerLookup(vocabulary=[4, 5], name="odd"), "int64", "Op `LookupTableFindV2` of layer `odd`"),
        (ops.erfinv, None, "Op `Erfinv` of layer `erfinv`"),
        (Running(True, name="odd"), None, "Op `AssignVariableOp` of layer `odd` changes a variable"),
        (Running(False, name="odd"), None, "Op `AssignAddVariableOp` of layer `odd` changes a variable"),
        (Numeric(name="odd"), None, r"Layer `odd` \(Numeric\) cannot be traced into a graph"),
    ],
    ids=["no mapping", "in a loop", "bitcast", "lookup", "of keras.ops", "assigned", "added", "in Python"],
)
def test_what_has_no_form_is_named(outputs, dtype, said, tmp_path):
    x = keras.Input((3,), dtype=dtype, name="x")
    model = keras.Model(x, outputs(x if dtype else layers.Dense(3, name="plain")(x)))
    with pytest.raises(UnsupportedModelError, match=said):
        traced(model, tmp_path, layer_names(model))


def test_tf2onnx_is_quiet_and_its_logger_restored(tmp_path, caplog, monkeypatch):
    """Also where two threads trace at once."""
    logger = logging.getLogger("tf2onnx")
    monkeypatch.setattr(logger, "level", logging.INFO)
    before = logger.level, logger.propagate, list(logger.handlers)
    with ThreadPoolExecutor(2) as threads:
        for number in range(2):
            threads.submit(traced, choice_model("float32"), tmp_path / str(number))
    assert (logger.level, logger.propagate, list(logger.handlers)) == before
    assert not [record for record in caplog.records if record.name.startswith("tf2onnx")]
