"""Static int8: integer operators in onnxruntime, equal results on every processor, and the float reference."""

from copy import deepcopy

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from onnx_text import build_small_graph
from traced_models import count_optimized_operators, run_model

from keras_attn_export import UnsupportedModelError
from keras_attn_export._format.interruptible_session import run_cases
from keras_attn_export._format.names import Case
from keras_attn_export._format.parity_report import compare_cases
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._options import ZERO_TOLERANCE
from keras_attn_export._precision.fold_batch_norm import fold_batch_norm
from keras_attn_export._precision.qdq_quantizer import calibrate
from keras_attn_export._precision.qdq_reference import compute_float_reference, dequantize_graph

RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.standard_normal(shape).astype("float32")


CONVOLUTIONS = "c = Conv (x, k, b) r = Relu (c) y = Conv (r, k2)"
IMAGES, KERNELS = draw(8, 4, 6, 6), {"k": draw(8, 4, 3, 3), "b": draw(8), "k2": draw(3, 8, 2, 2)}
PRODUCTS = "h = MatMul (x, w) p = Add (h, b) r = Relu (p) g = MatMul (r, w2) y = Add (g, b2)"
ROWS, MATRICES = draw(32, 8), {"w": draw(8, 16), "b": draw(16), "w2": draw(16, 8), "b2": draw(8)}


def quantize_graph(folder, nodes=CONVOLUTIONS, x=IMAGES, constants=KERNELS, output="float[n, 3, 3, 3] y"):
    shape = ", ".join(map(str, x.shape[1:]))
    traced = TracedModel(build_small_graph(nodes, f"float[n, {shape}] x", output, **constants))
    calibration = calibrate(traced, [{"x": x[:4]}, {"x": x[4:]}], folder)
    return traced.model, calibration.quantize([*calibration.layers]).model, calibration


def read_integers(model):
    """Return the constants that quantizers read: integers and scales, by name."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    nodes = (node for node in model.graph.node if node.op_type == "DequantizeLinear" and node.input[0] in constants)
    return {node.input[0]: [constants[name] for name in node.input] for node in nodes}


def test_convolutions_pass_integers_to_each_other(tmp_path):
    float32, int8, _ = quantize_graph(tmp_path)
    assert [node.op_type for node in int8.graph.node].count("QuantizeLinear") == 3
    assert {*count_optimized_operators(int8, tmp_path)} >= {"QLinearConv"}
    expected, actual = run_model(float32, x=IMAGES)["y"], run_model(int8, x=IMAGES)["y"]
    assert 0 < np.abs(actual - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize("x", [ROWS, ROWS[:, None]], ids=["two axes", "three axes"])
def test_products_read_integers_and_write_floats(tmp_path, x):
    output = f"float[{', '.join(['n', *map(str, x.shape[1:-1])])}, 8] y"
    float32, int8, _ = quantize_graph(tmp_path, PRODUCTS, x, MATRICES, output)
    assert [node.op_type for node in int8.graph.node].count("QuantizeLinear") == 2
    operators = {*count_optimized_operators(int8, tmp_path)}
    assert "MatMulIntegerToFloat" in operators
    assert operators.isdisjoint({"MatMul", "Gemm", "DequantizeLinear"}), "a product of floats"
    expected, actual = run_model(float32, x=x)["y"], run_model(int8, x=x)["y"]
    assert 0 < np.abs(actual - expected).max() < 0.05 * np.abs(expected).max()


@pytest.mark.parametrize(
    ("nodes", "x", "constants", "output"),
    [(CONVOLUTIONS, IMAGES, KERNELS, "float[n, 3, 3, 3] y"), (PRODUCTS, ROWS, MATRICES, "float[n, 8] y")],
    ids=["convolutions", "products"],
)
def test_sums_of_two_products_fit_16_bits(tmp_path, nodes, x, constants, output):
    """On x86-64 without VNNI, onnxruntime adds two products of unsigned and signed integers in 16 bits."""
    _, int8, _ = quantize_graph(tmp_path, nodes, x, constants, output)
    weights = [integers for integers, *_ in read_integers(int8).values() if integers.ndim > 1]
    assert len(weights) == 2
    for integers in weights:
        assert integers.dtype == np.int8
        assert 2 * 255 * np.abs(integers.astype(int)).max() < 2**15
    zero_points = [tensor for tensor in int8.graph.initializer if tensor.name.endswith("_zero_point")]
    assert any(tensor.data_type == onnx.TensorProto.UINT8 for tensor in zero_points), "activations are signed"


def test_each_channel_has_a_scale(tmp_path):
    """A common scale would round a channel that is a thousand times smaller than the others to zeros."""
    factors = np.where(np.arange(8) == 3, 1e-3, 1).reshape(8, 1, 1, 1).astype("float32")
    _, int8, _ = quantize_graph(tmp_path, constants={**KERNELS, "k": KERNELS["k"] * factors})
    integers, scale, _ = next(value for value in read_integers(int8).values() if value[0].shape == (8, 4, 3, 3))
    assert scale.shape == (8,)
    assert np.abs(integers[3]).max() == 64


@pytest.mark.parametrize(
    ("nodes", "output", "num_layers"),
    [
        ("y = MatMul (x, narrow)", "float[n, 7] y", 0),
        ("y = MatMul (x, experts)", "float[2, n, 16] y", 0),
        ("t = Transpose (x) y = MatMul (t, x)", "float[8, 8] y", 0),
        ("y = Gemm <alpha = 2.0> (x, w, b)", "float[n, 16] y", 0),
        ("y = Gemm (x, w, b)", "float[n, 16] y", 1),
        ("y = Gemm <transB = 1> (x, wt, b)", "float[n, 16] y", 1),
    ],
    ids=["few columns", "batched matrices", "no constant", "Gemm with a factor", "Gemm", "transposed"],
)
def test_products_with_constant_matrices_are_quantized(tmp_path, nodes, output, num_layers):
    constants = {**MATRICES, "narrow": draw(8, 7), "experts": draw(2, 8, 16), "wt": draw(16, 8)}
    constants = {name: array for name, array in constants.items() if f" {name}" in nodes}
    float32, int8, calibration = quantize_graph(tmp_path, nodes, ROWS, constants, output)
    assert len(calibration.layers) == num_layers
    assert sum(node.op_type == "QuantizeLinear" for node in int8.graph.node) == num_layers
    expected, actual = run_model(float32, x=ROWS)["y"], run_model(int8, x=ROWS)["y"]
    assert np.abs(actual - expected).max() <= 0.05 * np.abs(expected).max() * num_layers


@pytest.mark.parametrize(
    ("nodes", "fused_operator"),
    [
        ("c = Conv (x, k) d = Conv (x, k) s = Add (c, d) y = Relu (s)", "QLinearAdd"),
        ("c = Conv (x, k) y = MaxPool <kernel_shape = [1, 1]> (c)", None),
        ("c = Conv (x, k) y = Add (c, x8)", None),
    ],
    ids=["residual", "pooling", "sum with a constant"],
)
def test_sums_of_convolutions_add_integers(tmp_path, nodes, fused_operator):
    constants = {"k": KERNELS["k"]} | ({"x8": draw(8, 4, 4)} if "x8" in nodes else {})
    float32, int8, _ = quantize_graph(tmp_path, nodes, constants=constants, output="float[n, 8, 4, 4] y")
    assert ("QLinearAdd" in {*count_optimized_operators(int8, tmp_path)}) == (fused_operator is not None)
    expected, actual = run_model(float32, x=IMAGES)["y"], run_model(int8, x=IMAGES)["y"]
    assert np.abs(actual - expected).max() < 0.05 * np.abs(expected).max()


def test_excluded_layers_compute_in_float32(tmp_path):
    _, _, calibration = quantize_graph(tmp_path)
    _, second_layer = calibration.layers
    model = calibration.quantize([second_layer]).model
    assert [node.op_type for node in model.graph.node].count("QuantizeLinear") == 2
    assert calibration.quantize([]).model.graph.node == calibration.traced.model.graph.node


def test_weights_beyond_one_file_are_refused(tmp_path):
    graph = build_small_graph(PRODUCTS, "float[n, 8] x", "float[n, 8] y", **MATRICES)
    with pytest.raises(UnsupportedModelError, match="at most 2 GiB of weights"):
        calibrate(TracedModel(graph, weights={"large": ROWS}), [{"x": ROWS}], tmp_path)


def test_failure_of_the_quantizer_is_reported(tmp_path, monkeypatch):
    _, _, calibration = quantize_graph(tmp_path)
    monkeypatch.setattr("onnxruntime.quantization.qdq_quantizer.QDQQuantizer.quantize_model", lambda self: [][1])
    with pytest.raises(UnsupportedModelError, match=r"cannot quantize the model: IndexError.*Leave `calibration` out"):
        calibration.quantize([*calibration.layers])


GRAPHS = {
    "convolutions": (CONVOLUTIONS, IMAGES, KERNELS, "float[n, 3, 3, 3] y"),
    "products": (PRODUCTS, ROWS, MATRICES, "float[n, 8] y"),
    "lookups": (
        "i = Cast <to = 7> (x) e = Gather (t, i) y = MatMul (e, m)",
        np.arange(32, dtype="float32")[:, None],
        {"t": draw(64, 64) * np.linspace(0.5, 3, 64, dtype="float32")[:, None], "m": draw(64, 8)},
        "float[n, 1, 8] y",
    ),
}


@pytest.fixture(params=GRAPHS.values(), ids=GRAPHS)
def graph(request, tmp_path):
    """An int8 graph, and inputs that partly exceed its ranges."""
    _, model, _ = quantize_graph(tmp_path, *request.param)
    return model, request.param[1] * np.float32(1.5)


def compare_with_reference(model, x, folder, reference=None):
    """Return the comparison of onnxruntime's outputs with the float reference of the same or of another model."""
    cases = compute_float_reference(reference or model, [Case("base", {"x": x}, {})], "cpu", folder)
    onnx.save(model, folder / "model.onnx")
    (row,) = compare_cases(cases, run_cases(folder / "model.onnx", cases), ZERO_TOLERANCE)
    return row


def test_float_reference_equals_the_reference_evaluator_of_onnx(graph):
    model, x = graph
    model.opset_import[0].version = 19  # the first opset with quantizers in the evaluator
    reference = dequantize_graph(model, 0.0, np.random.default_rng(0))
    expected, actual = (ReferenceEvaluator(proto).run(None, {"x": x})[0] for proto in (model, reference))
    assert not any("Linear" in node.op_type for node in reference.graph.node)
    assert onnx.TensorProto.INT8 not in {tensor.data_type for tensor in reference.graph.initializer}
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * np.abs(expected).max())


def test_onnxruntime_equals_the_float_reference(graph, tmp_path):
    row = compare_with_reference(*graph, tmp_path)
    assert row.passed
    assert row.max_rel < 0.01


def alter_constant(model, change):
    """Return a copy of the model with the first constant replaced for which `change` returns an array."""
    altered_model = deepcopy(model)
    for tensor in altered_model.graph.initializer:
        if (array := change(tensor.name, numpy_helper.to_array(tensor))) is not None:
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            return altered_model
    raise AssertionError("no constant was changed")


def widen_step(name, array):
    """Return the step of an activation, increased by a twentieth as by another calibration."""
    return array * np.float32(1.05) if name.endswith("_scale") and array.ndim == 0 else None


def shift_zero_point(name, array):
    return (array + np.uint8(2)).astype(np.uint8) if name.endswith("_zero_point") and array.dtype == np.uint8 else None


def change_one_weight(name, array):
    """Return the weights with the first one changed by about a quarter of its range."""
    if array.dtype != np.int8 or array.ndim < 2:
        return None
    weights = array.copy()
    weights.reshape(-1)[0] = -weights.reshape(-1)[0] // 2 + 16
    return weights


@pytest.mark.parametrize("fault", [widen_step, shift_zero_point, change_one_weight])
def test_float_reference_detects_faults_of_integers(graph, tmp_path, fault):
    model, x = graph
    row = compare_with_reference(alter_constant(model, fault), x, tmp_path, reference=model)
    assert row.problem == "is outside the tolerance"


def test_float_reference_allows_one_step_at_ties_alone(tmp_path):
    """The sums of a layer are halfway between two steps: a difference of one step is allowed, of nine steps not."""
    x = np.full((1, 8), 5, "float32")
    cases = compute_float_reference(build_tie_graph(), [Case("base", {"x": x}, {})], "cpu", tmp_path)
    outputs = cases[0].outputs["y"]
    for difference, passes in ((0.0, True), (1.0, True), (-1.0, True), (9.0, False)):
        (row,) = compare_cases(cases, [{"y": (outputs + np.float32(difference)).astype("float32")}], ZERO_TOLERANCE)
        assert row.passed == passes, difference


def build_tie_graph():
    """Return a graph that quantizes 8 * 5 / 16 = 2.5 with step 1: to 2, or to 3 if the sum is rounded up."""
    text = """
        <ir_version: 8, opset_import: ["": 18]>
        test (float[n, 8] x) => (float[n, 8] y)
        <float one = {1.0}, uint8 zero = {0}, float sixteenth = {0.0625}, int8 signed_zero = {0}>
        {
            qx = QuantizeLinear (x, one, zero)
            dx = DequantizeLinear (qx, one, zero)
            dw = DequantizeLinear (w, sixteenth, signed_zero)
            h = MatMul (dx, dw)
            qh = QuantizeLinear (h, one, zero)
            y = DequantizeLinear (qh, one, zero)
        }
    """
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((8, 8), np.int8), "w"))
    return model


PICTURES = draw(2, 3, 5, 6)
FOLDING_CONSTANTS = {"k": draw(4, 3, 2, 2), "b": draw(4), "m": draw(1, 4, 1, 1), "a": draw(4, 1, 1)}
FOLDING_GRAPHS = {
    "normalization": ("c = Conv (x, k) p = Mul (c, m) y = Add (p, a)", ["Conv"]),
    "a bias, and constants first": ("c = Conv (x, k, b) p = Add (a, c) y = Mul (m, p)", ["Conv"]),
    "two normalizations": ("c = Conv (x, k) p = Mul (c, m) q = Add (p, a) y = Mul (q, a)", ["Conv"]),
    "another axis": ("c = Conv (x, k) y = Mul (c, row)", ["Conv", "Mul"]),
    "a scalar": ("c = Conv (x, k) y = Mul (c, one)", ["Conv", "Mul"]),
    "a second consumer": ("c = Conv (x, k) p = Mul (c, m) y = Add (p, c)", ["Conv", "Mul", "Add"]),
    "after a ReLU": ("c = Conv (x, k) r = Relu (c) y = Mul (r, m)", ["Conv", "Relu", "Mul"]),
    "a shared kernel": ("c = Conv (x, k) d = Conv (x, k) p = Mul (c, m) y = Add (p, d)", ["Conv", "Conv", "Add"]),
}


@pytest.mark.parametrize(("nodes", "operators"), FOLDING_GRAPHS.values(), ids=FOLDING_GRAPHS)
def test_channel_products_and_sums_are_folded_into_convolutions(nodes, operators):
    constants = {**FOLDING_CONSTANTS, "row": draw(5), "one": draw(1)}
    model = build_small_graph(nodes, "float[n, 3, 5, 6] x", "float[n, 4, 4, 5] y", **constants)
    expected = run_model(model, x=PICTURES)["y"]
    fold_batch_norm(model.graph)
    assert [node.op_type for node in model.graph.node] == operators
    np.testing.assert_allclose(run_model(model, x=PICTURES)["y"], expected, rtol=1e-5, atol=1e-5)
    inputs = {name for node in model.graph.node for name in node.input}
    assert {tensor.name for tensor in model.graph.initializer} <= inputs
