"""Products of integers against those of floats, on small graphs, after all that onnxruntime makes of them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_attn_export._precision.int8 import to_int8
from keras_attn_export._tracing.traced import Traced

RNG = np.random.default_rng(0)
N = 8
WEIGHTS, BIAS = RNG.standard_normal((N, N)).astype("float32"), RNG.standard_normal(N).astype("float32")
# rows of different sizes, so that one scale cannot stand for another
X = (RNG.standard_normal((3, N)) * [[1], [10], [100]]).astype("float32")


def value(name, dtype=TensorProto.FLOAT, shape=(None, N)):
    return helper.make_tensor_value_info(name, dtype, shape)


def model(*nodes):
    constants = [numpy_helper.from_array(array, name) for name, array in (("w", WEIGHTS), ("b", BIAS))]
    graph = helper.make_graph(nodes, "test", [value("x")], [value("y")], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def product(add):
    return [helper.make_node("MatMul", ["x", "w"], ["p"], "product"), helper.make_node("Add", add, ["y"], "add")]


def in_a_loop():
    """Return the product as the body of a loop of one step."""
    body = helper.make_graph(
        [helper.make_node("Identity", ["again"], ["on"]), *product(["p", "b"])],
        "body",
        [value("step", TensorProto.INT64, []), value("again", TensorProto.BOOL, []), value("x_before")],
        [value("on", TensorProto.BOOL, []), value("y")],
    )
    one = helper.make_node("Constant", [], ["one"], value=numpy_helper.from_array(np.int64(1)))
    return [one, helper.make_node("Loop", ["one", "", "x"], ["looped"], body=body), *identity("looped", "y")]


def identity(old, new):
    return [helper.make_node("Identity", [old], [new])]


GRAPHS = {
    "bias second": product(["p", "b"]),
    "bias first": product(["b", "p"]),
    "Gemm": [helper.make_node("Gemm", ["x", "w", "b"], ["y"], "gemm")],
    "in a loop": in_a_loop(),
}


@pytest.mark.parametrize("nodes", GRAPHS.values(), ids=GRAPHS)
def test_a_bias_is_not_scaled(nodes, tmp_path):
    """onnxruntime's fusion of product and bias multiplies the bias by the scale of the row."""
    converted = to_int8(Traced(model(*nodes)), tmp_path).model
    assert b"MatMulInteger" in converted.SerializeToString()
    (got,) = onnxruntime.InferenceSession(converted.SerializeToString()).run(None, {"x": X})
    want = X @ WEIGHTS + BIAS
    np.testing.assert_array_less(np.abs(got - want).max(-1), 0.02 * np.abs(want).max(-1))


def test_a_matrix_for_each_part_of_a_batch_stays_float32(tmp_path):
    """onnxruntime refuses one scale a column for those when it runs the product: `b zero point is not valid`."""
    experts = RNG.standard_normal((4, N, 12)).astype("float32")
    single = helper.make_node("MatMul", ["x", "w"], ["hidden"], "single")
    each = helper.make_node("MatMul", ["hidden", "experts"], ["y"], "each")
    given = model(single, each)
    given.graph.initializer.append(numpy_helper.from_array(experts, "experts"))
    del given.graph.output[:]
    given.graph.output.append(value("y", shape=(4, None, 12)))
    converted = to_int8(Traced(given), tmp_path).model
    assert [node.op_type for node in converted.graph.node if "MatMul" in node.op_type] == ["MatMulInteger", "MatMul"]
    (got,) = onnxruntime.InferenceSession(converted.SerializeToString()).run(None, {"x": X})
    want = X @ WEIGHTS @ experts
    np.testing.assert_array_less(np.abs(got - want).max(-1), 0.03 * np.abs(want).max(-1))


def test_products_with_rows_of_their_own_scale_are_still_fused(tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    converted = to_int8(Traced(model(*product(["p", "b"]))), tmp_path).model
    onnxruntime.InferenceSession(converted.SerializeToString(), options)
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert "MatMulIntegerToFloat" in {node.op_type for node in optimized.graph.node}


def test_sums_of_large_products_are_the_same_on_every_processor(tmp_path):
    """Signed weights overflow in pairs on x86-64 without VNNI, off by a third here; so there are none."""
    converted = to_int8(Traced(model(*product(["p", "b"]))), tmp_path).model
    types = {each.name: each.data_type for each in converted.graph.initializer}
    products = [node for node in converted.graph.node if node.op_type == "MatMulInteger"]
    assert [types[node.input[1]] for node in products] == [onnx.TensorProto.UINT8]
    largest = np.full_like(X, np.abs(X).max())
    (got,) = onnxruntime.InferenceSession(converted.SerializeToString()).run(None, {"x": largest})
    want = largest @ WEIGHTS + BIAS
    np.testing.assert_array_less(np.abs(got - want).max(-1), 0.02 * np.abs(want).max(-1))
