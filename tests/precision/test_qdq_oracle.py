"""The oracle of int8 graphs: it is what their definition says, allows a quantizer's tie, and finds faults."""

from copy import deepcopy

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from onnx.reference import ReferenceEvaluator
from test_static_int8 import CONVOLVED, IMAGES, KERNELS, MATRICES, MULTIPLIED, ROWS, normal, quantized

from keras_attn_export._bundle.parity import compared
from keras_attn_export._options import NO_MORE
from keras_attn_export._precision.qdq_oracle import in_floats, with_oracle
from keras_attn_export._standalone.verify import Case, run_cases

GRAPHS = {
    "convolutions": (CONVOLVED, IMAGES, KERNELS, "float[n, 3, 3, 3] y"),
    "products": (MULTIPLIED, ROWS, MATRICES, "float[n, 8] y"),
    "lookups": (
        "i = Cast <to = 7> (x) e = Gather (t, i) y = MatMul (e, m)",
        np.arange(32, dtype="float32")[:, None],
        {"t": normal(64, 64) * np.linspace(0.5, 3, 64, dtype="float32")[:, None], "m": normal(64, 8)},
        "float[n, 1, 8] y",
    ),
}


@pytest.fixture(params=GRAPHS.values(), ids=GRAPHS)
def graph(request, tmp_path):
    """An int8 graph, and inputs of which some are beyond its ranges."""
    _, model, _ = quantized(tmp_path, *request.param)
    return model, request.param[1] * np.float32(1.5)


def rows_of(model, x, folder, altered=None):
    """Compare what onnxruntime gives for a file with the oracle of `model`."""
    cases = with_oracle(model, [Case("base", {"x": x}, {})], "cpu", folder)
    onnx.save(altered or model, folder / "model.onnx")
    return compared(cases, run_cases(folder / "model.onnx", cases), NO_MORE)


def test_the_oracle_is_the_reference_of_onnx(graph):
    model, x = graph
    model.opset_import[0].version = 19  # the first of which it has quantizers
    floats = in_floats(model, 0.0, np.random.default_rng(0))
    want, got = (ReferenceEvaluator(each).run(None, {"x": x})[0] for each in (model, floats))
    assert not any("Linear" in node.op_type for node in floats.graph.node)
    assert onnx.TensorProto.INT8 not in {tensor.data_type for tensor in floats.graph.initializer}
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5 * np.abs(want).max())


def test_onnxruntime_computes_what_the_graph_says(graph, tmp_path):
    model, x = graph
    (row,) = rows_of(model, x, tmp_path)
    assert row.passed
    assert row.max_rel < 0.01


def altered(model, change):
    """Return a model with a constant changed that a quantizer reads: the first for which the function gives one."""
    other = deepcopy(model)
    for tensor in other.graph.initializer:
        if (array := change(tensor.name, numpy_helper.to_array(tensor))) is not None:
            tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))
            return other
    raise AssertionError("nothing was changed")


def wider_step(name, array):
    """The step of an activation by a twentieth: a calibration that another file had."""
    return array * np.float32(1.05) if name.endswith("_scale") and array.ndim == 0 else None


def shifted_zero(name, array):
    return (array + np.uint8(2)).astype(np.uint8) if name.endswith("_zero_point") and array.dtype == np.uint8 else None


def one_weight(name, array):
    """One weight by a quarter of its range."""
    if array.dtype != np.int8 or array.ndim < 2:
        return None
    changed = array.copy()
    changed.reshape(-1)[0] = -changed.reshape(-1)[0] // 2 + 16
    return changed


@pytest.mark.parametrize("fault", [wider_step, shifted_zero, one_weight])
def test_faults_of_integers_are_found(graph, tmp_path, fault):
    model, x = graph
    (row,) = rows_of(model, x, tmp_path, altered(model, fault))
    assert row.problem == "is outside the tolerance"


def test_half_a_step_may_go_either_way(tmp_path):
    """The sums of a layer stand exactly between two steps: a step either way is allowed, and what is far off is not."""
    model = numpy_graph()
    x = np.full((1, 8), 5, "float32")
    cases = with_oracle(model, [Case("base", {"x": x}, {})], "cpu", tmp_path)
    outputs = cases[0].outputs["y"]
    for away, passes in ((0.0, True), (1.0, True), (-1.0, True), (9.0, False)):
        (row,) = compared(cases, [{"y": (outputs + np.float32(away)).astype("float32")}], NO_MORE)
        assert row.passed == passes, away


def numpy_graph():
    """Eight times 5 / 16 is 2.5, which a second quantizer of step 1 rounds to 2, or to 3 where the sum is above."""
    text = """
        <ir_version: 8, opset_import: ["": 18]>
        test (float[n, 8] x) => (float[n, 8] y)
        <float one = {1.0}, uint8 zero = {0}, float sixteenth = {0.0625}, int8 none = {0}>
        {
            qx = QuantizeLinear (x, one, zero)
            dx = DequantizeLinear (qx, one, zero)
            dw = DequantizeLinear (w, sixteenth, none)
            h = MatMul (dx, dw)
            qh = QuantizeLinear (h, one, zero)
            y = DequantizeLinear (qh, one, zero)
        }
    """
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((8, 8), np.int8), "w"))
    return model
