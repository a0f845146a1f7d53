"""Dynamic int8: integer products, unscaled biases, embedding tables, and layers that stay float32."""

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx_text import build_small_graph
from traced_models import count_optimized_operators, run_model

from keras_attn_export import ParityError, export_model
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._precision.dynamic_int8 import quantize_dynamically
from keras_attn_export._precision.qdq_quantizer import calibrate

RNG = np.random.default_rng(0)
N = 8
WEIGHTS, BIAS = RNG.standard_normal((N, N)).astype("float32"), RNG.standard_normal(N).astype("float32")
# Rows of different magnitudes, so that the scale of one row is wrong for all other rows.
X = (RNG.standard_normal((3, N)) * [[1], [10], [100]]).astype("float32")
GRAPHS = {
    "bias second": "p = MatMul (x, w) y = Add (p, b)",
    "bias first": "p = MatMul (x, w) y = Add (b, p)",
    "Gemm": "y = Gemm (x, w, b)",
    "in a loop": """
        one = Constant <value = int64 {1}> ()
        yes = Constant <value = bool {1}> ()
        y = Loop <body = step (int64 i, bool condition, float[n, 8] state) => (bool condition_on, float[n, 8] z)
        {
            condition_on = Identity (condition)
            p = MatMul (x, w)
            z = Add (p, b)
        }> (one, yes, x)
    """,
}


def quantize_graph(folder, nodes=GRAPHS["bias second"], outputs="float[n, 8] y", **constants):
    graph = build_small_graph(nodes, "float[n, 8] x", outputs, w=WEIGHTS, b=BIAS, **constants)
    return quantize_dynamically(TracedModel(graph), folder).model


def assert_outputs_close(model, expected, x=X, share=0.02):
    (actual,) = run_model(model, x=x).values()
    np.testing.assert_array_less(np.abs(actual - expected).max(-1), share * np.abs(expected).max(-1))


@pytest.mark.parametrize("nodes", GRAPHS.values(), ids=GRAPHS)
def test_bias_is_added_unscaled(nodes, tmp_path):
    """onnxruntime's fusion of product and bias multiplies the bias by the scale of the row."""
    model = quantize_graph(tmp_path, nodes)
    assert b"MatMulInteger" in model.SerializeToString()
    assert_outputs_close(model, X @ WEIGHTS + BIAS)


def test_batched_matrices_stay_float32(tmp_path):
    """onnxruntime fails at a batched product with a scale per column: `b zero point is not valid`."""
    experts = RNG.standard_normal((4, N, 12)).astype("float32")
    nodes = "hidden = MatMul (x, w) y = MatMul (hidden, experts)"
    model = quantize_graph(tmp_path, nodes, "float[4, n, 12] y", experts=experts)
    assert [node.op_type for node in model.graph.node if "MatMul" in node.op_type] == ["MatMulInteger", "MatMul"]
    assert_outputs_close(model, X @ WEIGHTS @ experts, share=0.03)


def test_product_of_a_tensor_of_unknown_type_is_quantized(tmp_path):
    nodes = "same = com.microsoft.FusedMatMul (x, identity) p = MatMul (same, w) y = Add (p, b)"
    constants = {"w": WEIGHTS, "b": BIAS, "identity": np.eye(N, dtype="float32")}
    graph = build_small_graph(nodes, "float[n, 8] x", "float[n, 8] y", **constants)
    graph.opset_import.add(domain="com.microsoft", version=1)
    model = quantize_dynamically(TracedModel(graph), tmp_path).model
    assert b"MatMulInteger" in model.SerializeToString()
    assert_outputs_close(model, X @ WEIGHTS + BIAS)


def test_quantized_products_are_fused_by_onnxruntime(tmp_path):
    assert "MatMulIntegerToFloat" in count_optimized_operators(quantize_graph(tmp_path), tmp_path)


def test_int8_weights_are_unsigned_so_that_sums_cannot_overflow(tmp_path):
    """On x86-64 without VNNI, sums of two products with signed weights overflow; errors are a third of the outputs."""
    model = quantize_graph(tmp_path)
    types = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    products = [node for node in model.graph.node if node.op_type == "MatMulInteger"]
    assert [types[node.input[1]] for node in products] == [onnx.TensorProto.UINT8]
    largest = np.full_like(X, np.abs(X).max())
    assert_outputs_close(model, largest @ WEIGHTS + BIAS, largest)


WORDS = 1000
IDS = RNG.integers(1, WORDS, (4000, 16)).astype("int32")
LABELS = np.array([np.bincount(row, minlength=4).argmax() for row in IDS % 4])  # the class of most words
TABLE = (RNG.standard_normal((128, 64)) * RNG.uniform(0.01, 100, (128, 1))).astype("float32")


@pytest.mark.slow
def test_int8_embeddings_keep_accuracy_in_a_third_of_the_size(tmp_path):
    keras.utils.set_random_seed(0)
    ids = keras.Input((None,), dtype="int32", name="ids")
    pooled = layers.GlobalAveragePooling1D()(layers.Embedding(WORDS, 64, mask_zero=True, name="words")(ids))
    model = keras.Model(ids, layers.Dense(4, activation="softmax", name="kind")(pooled))
    model.compile(keras.optimizers.Adam(0.01), "sparse_categorical_crossentropy")
    model.fit(IDS[:2000], LABELS[:2000], epochs=3, batch_size=64, verbose=0)
    accuracy = np.mean(model.predict(IDS[2000:], verbose=0).argmax(-1) == LABELS[2000:])
    assert 0.6 < accuracy < 0.99, "some examples are close to a decision boundary"
    for calibration in (None, IDS[:64]):
        bundle = export_model(model, tmp_path / f"{calibration is None}", precision="int8", calibration=calibration)
        assert bundle.report.precision["size_ratio"] < 0.35
        assert abs(np.mean(bundle.run({"ids": IDS[2000:]})["kind"].argmax(-1) == LABELS[2000:]) - accuracy) <= 0.005
    assert bundle.report.precision["calibration"]["int8_layers"] == ["words"]


@pytest.mark.slow
def test_masked_lstm_stays_float32_with_a_warning(tmp_path):
    """Keras also runs the cell outside the loop to infer shapes; int8 there would duplicate the weights of the loop."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = layers.Bidirectional(layers.LSTM(16))(layers.Embedding(20, 8, mask_zero=True)(ids))
    model = keras.Model(ids, layers.Dense(2, name="y")(hidden))
    bundle = export_model(model, tmp_path / "bundle", precision="int8", calibration=IDS[:32] % 20)
    assert bundle.report.precision["calibration"]["int8_layers"] == []
    assert not [node for node in onnx.load(bundle.path / "model.onnx").graph.node if "cell_1/MatMul" in node.name]
    with pytest.raises(ParityError, match=r"Nothing in the model became int8.* 1\.0\d times .*In all golden cases"):
        bundle.report.raise_if_warned()


LOOKUP = "y = Gather (t, ids)"
TIED = "e = Gather (t, ids) y = MatMul (e, t)"
SLICES = """
    n = Shape (ids) ends = Concat <axis = 0> (n, width)
    a = Slice (t, origin, ends) b = Slice (t, first, n, axes, stride) y = Add (a, b)
"""
LOOP = """
    e = Gather (t, ids)
    y = Loop <body = step (int64 i, bool condition, float[n, 64] state) => (bool condition_on, float[n, 64] z)
    { condition_on = Identity (condition) rows = Gather (t, ids) z = Add (state, rows) }> (count, , e)
"""
CONSTANTS = {"origin": [0, 0], "width": [64], "first": [0], "axes": [0], "stride": [1], "count": 1}


@pytest.mark.parametrize(
    ("nodes", "table", "is_int8"),
    [
        (LOOKUP, TABLE, True),
        (SLICES, TABLE, True),
        (LOOP, TABLE, True),
        (TIED, TABLE[:64], True),
        ("e = Gather (t, ids) w = Transpose (t) y = MatMul (e, w)", TABLE[:64], False),
        ("e = Gather <axis = 1> (t, ids) y = Transpose (e)", TABLE[:64], False),
        (LOOKUP, np.where(TABLE > 0, np.inf, TABLE), False),
        (LOOKUP, TABLE[:32], False),
    ],
    ids=["lookup", "slice", "loop", "tied", "tied transposed", "columns", "infinity", "small"],
)
@pytest.mark.parametrize("mode", ["dynamic", "calibrated"])
def test_table_is_int8_if_all_consumers_accept_integers(nodes, table, is_int8, mode, tmp_path):
    ids = np.arange(len(table))
    constants = {name: np.array(tensor) for name, tensor in CONSTANTS.items() if name in nodes}
    float32 = build_small_graph(nodes, "int64[n] ids", "float[n, 64] y", t=table, **constants)
    if mode == "dynamic":
        int8 = quantize_dynamically(TracedModel(float32), tmp_path).model
    else:
        calibrated_model = calibrate(TracedModel(float32), [{"ids": ids}], tmp_path)
        int8 = calibrated_model.quantize([*calibrated_model.layers]).model
        assert bool(calibrated_model.layers) == is_int8
    initializers = [tensor for tensor in int8.graph.initializer if [*tensor.dims] == [*table.shape]]
    assert any(tensor.data_type == onnx.TensorProto.FLOAT for tensor in initializers) != is_int8
    assert len(int8.SerializeToString()) < (0.7 if is_int8 else 1.05) * len(float32.SerializeToString())
    expected, actual = (run_model(model, ids=ids)["y"] for model in (float32, int8))
    if is_int8:
        share, axis = (0.05, None) if nodes == TIED else (0.51 / 127, -1)  # half a step of the row
        np.testing.assert_array_less(np.abs(actual - expected).max(axis), share * np.abs(expected).max(axis))
    else:
        np.testing.assert_array_equal(actual, expected)
