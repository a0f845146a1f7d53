"""What becomes int8 of fixed ranges, and that onnxruntime computes it in integers, the same on every processor."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import numpy_helper
from small_graphs import small_graph

from keras_attn_export import UnsupportedModelError
from keras_attn_export._graphs.traced import Traced
from keras_attn_export._precision.static_int8 import calibrated

RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.standard_normal(shape).astype("float32")


CONVOLVED = "c = Conv (x, k, b) r = Relu (c) y = Conv (r, k2)"
IMAGES, KERNELS = normal(8, 4, 6, 6), {"k": normal(8, 4, 3, 3), "b": normal(8), "k2": normal(3, 8, 2, 2)}
MULTIPLIED = "h = MatMul (x, w) p = Add (h, b) r = Relu (p) g = MatMul (r, w2) y = Add (g, b2)"
ROWS, MATRICES = normal(32, 8), {"w": normal(8, 16), "b": normal(16), "w2": normal(16, 8), "b2": normal(8)}


def quantized(folder, nodes=CONVOLVED, x=IMAGES, constants=KERNELS, made="float[n, 3, 3, 3] y"):
    shape = ", ".join(map(str, x.shape[1:]))
    given = Traced(small_graph(nodes, f"float[n, {shape}] x", made, **constants))
    found = calibrated(given, [{"x": x[:4]}, {"x": x[4:]}], folder)
    return given.model, found.quantized([*found.layers]).model, found


def run(model, x):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})[0]


def integers_of(model):
    """Return the constants that quantizers read: integers and scales, by name."""
    constants = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    nodes = (node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in constants)
    return {node.input[0]: [constants[name] for name in node.input] for node in nodes}


def run_ops(model, folder):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(model.SerializeToString(), options)
    return {node.op_type for node in onnx.load(folder / "optimized.onnx").graph.node}


def test_convolutions_hand_integers_to_each_other(tmp_path):
    float32, int8, _ = quantized(tmp_path)
    assert [node.op_type for node in int8.graph.node].count("QuantizeLinear") == 3
    assert run_ops(int8, tmp_path) >= {"QLinearConv"}
    want, got = run(float32, IMAGES), run(int8, IMAGES)
    assert 0 < np.abs(got - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.parametrize("x", [ROWS, ROWS[:, None]], ids=["two axes", "three axes"])
def test_products_take_integers_and_give_floats(tmp_path, x):
    made = f"float[{', '.join(['n', *map(str, x.shape[1:-1])])}, 8] y"
    float32, int8, _ = quantized(tmp_path, MULTIPLIED, x, MATRICES, made)
    assert [node.op_type for node in int8.graph.node].count("QuantizeLinear") == 2
    ops = run_ops(int8, tmp_path)
    assert "MatMulIntegerToFloat" in ops
    assert ops.isdisjoint({"MatMul", "Gemm", "DequantizeLinear"}), "products of floats"
    want, got = run(float32, x), run(int8, x)
    assert 0 < np.abs(got - want).max() < 0.05 * np.abs(want).max()


@pytest.mark.parametrize(
    ("nodes", "x", "constants", "made"),
    [(CONVOLVED, IMAGES, KERNELS, "float[n, 3, 3, 3] y"), (MULTIPLIED, ROWS, MATRICES, "float[n, 8] y")],
    ids=["convolutions", "products"],
)
def test_two_products_fit_16_bits(tmp_path, nodes, x, constants, made):
    """On x86-64 without VNNI, onnxruntime adds two products of unsigned and signed integers in 16 bits."""
    _, int8, _ = quantized(tmp_path, nodes, x, constants, made)
    weights = [integers for integers, *_ in integers_of(int8).values() if integers.ndim > 1]
    assert len(weights) == 2
    for integers in weights:
        assert integers.dtype == np.int8
        assert 2 * 255 * np.abs(integers.astype(int)).max() < 2**15
    zeros = [each for each in int8.graph.initializer if each.name.endswith("_zero_point") and each.data_type == 2]
    assert zeros, "activations have no sign"


def test_each_channel_has_a_scale(tmp_path):
    """One scale for all would leave nothing of the channel that is a thousandth of the others."""
    constants = {**KERNELS, "k": KERNELS["k"] * np.where(np.arange(8) == 3, 1e-3, 1).reshape(8, 1, 1, 1)}
    _, int8, _ = quantized(tmp_path, constants={name: each.astype("float32") for name, each in constants.items()})
    integers, scale, _ = next(each for each in integers_of(int8).values() if each[0].shape == (8, 4, 3, 3))
    assert scale.shape == (8,)
    assert np.abs(integers[3]).max() == 64


@pytest.mark.parametrize(
    ("nodes", "made", "expected"),
    [
        ("y = MatMul (x, narrow)", "float[n, 7] y", 0),
        ("y = MatMul (x, experts)", "float[2, n, 16] y", 0),
        ("t = Transpose (x) y = MatMul (t, x)", "float[8, 8] y", 0),
        ("y = Gemm <alpha = 2.0> (x, w, b)", "float[n, 16] y", 0),
        ("y = Gemm (x, w, b)", "float[n, 16] y", 1),
        ("y = Gemm <transB = 1> (x, wt, b)", "float[n, 16] y", 1),
    ],
    ids=[
        "few columns",
        "a matrix for each part of a batch",
        "two computed",
        "Gemm with a factor",
        "Gemm",
        "transposed",
    ],
)
def test_which_products_are_quantized(tmp_path, nodes, made, expected):
    constants = {**MATRICES, "narrow": normal(8, 7), "experts": normal(2, 8, 16), "wt": normal(16, 8)}
    used = {name: each for name, each in constants.items() if f" {name}" in nodes}
    float32, int8, found = quantized(tmp_path, nodes, ROWS, used, made)
    assert len(found.layers) == expected
    assert sum(node.op_type == "QuantizeLinear" for node in int8.graph.node) == expected
    want, got = run(float32, ROWS), run(int8, ROWS)
    assert np.abs(got - want).max() <= 0.05 * np.abs(want).max() * expected


@pytest.mark.parametrize(
    ("nodes", "fused"),
    [
        ("c = Conv (x, k) d = Conv (x, k) s = Add (c, d) y = Relu (s)", "QLinearAdd"),
        ("c = Conv (x, k) y = MaxPool <kernel_shape = [1, 1]> (c)", None),
        ("c = Conv (x, k) y = Add (c, x8)", None),
    ],
    ids=["residual", "pooled", "a sum with a constant"],
)
def test_sums_of_convolutions_are_of_integers(tmp_path, nodes, fused):
    constants = {"k": KERNELS["k"]} | ({"x8": normal(8, 4, 4)} if "x8" in nodes else {})
    float32, int8, _ = quantized(tmp_path, nodes, constants=constants, made="float[n, 8, 4, 4] y")
    assert ("QLinearAdd" in run_ops(int8, tmp_path)) == (fused is not None)
    want, got = run(float32, IMAGES), run(int8, IMAGES)
    assert np.abs(got - want).max() < 0.05 * np.abs(want).max()


def test_layers_that_are_left_out_compute_in_float32(tmp_path):
    _, _, found = quantized(tmp_path)
    _, second = found.layers
    model = found.quantized([second]).model
    assert [node.op_type for node in model.graph.node].count("QuantizeLinear") == 2
    assert found.quantized([]).model.graph.node == found.traced.model.graph.node


def test_weights_beyond_one_file_are_refused(tmp_path):
    graph = small_graph(MULTIPLIED, "float[n, 8] x", "float[n, 8] y", **MATRICES)
    with pytest.raises(UnsupportedModelError, match="up to 2 GiB of weights"):
        calibrated(Traced(graph, weights={"large": ROWS}), [{"x": ROWS}], tmp_path)


def test_what_the_quantizer_cannot_do_is_said(tmp_path, monkeypatch):
    _, _, found = quantized(tmp_path)
    monkeypatch.setattr("onnxruntime.quantization.qdq_quantizer.QDQQuantizer.quantize_model", lambda self: [][1])
    with pytest.raises(UnsupportedModelError, match=r"cannot quantize the model: IndexError.*Leave `calibration` out"):
        found.quantized([*found.layers])
