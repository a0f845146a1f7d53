"""Products of integers against those of floats, on small graphs, after all that onnxruntime makes of them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from small_graphs import small_graph

from keras_attn_export._graphs.traced import Traced
from keras_attn_export._precision.int8 import to_int8

RNG = np.random.default_rng(0)
N = 8
WEIGHTS, BIAS = RNG.standard_normal((N, N)).astype("float32"), RNG.standard_normal(N).astype("float32")
# rows of different sizes, so that one scale cannot stand for another
X = (RNG.standard_normal((3, N)) * [[1], [10], [100]]).astype("float32")
GRAPHS = {
    "bias second": "p = MatMul (x, w) y = Add (p, b)",
    "bias first": "p = MatMul (x, w) y = Add (b, p)",
    "Gemm": "y = Gemm (x, w, b)",
    "in a loop": """
        one = Constant <value = int64 {1}> ()
        yes = Constant <value = bool {1}> ()
        y = Loop <body = step (int64 i, bool again, float[n, 8] before) => (bool on, float[n, 8] z)
        {
            on = Identity (again)
            p = MatMul (x, w)
            z = Add (p, b)
        }> (one, yes, x)
    """,
}


def converted(folder, nodes=GRAPHS["bias second"], made="float[n, 8] y", **constants):
    given = small_graph(nodes, "float[n, 8] x", made, w=WEIGHTS, b=BIAS, **constants)
    return to_int8(Traced(given), folder).model


def assert_near(model, want, x=X, share=0.02):
    (got,) = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_less(np.abs(got - want).max(-1), share * np.abs(want).max(-1))


@pytest.mark.parametrize("nodes", GRAPHS.values(), ids=GRAPHS)
def test_a_bias_is_not_scaled(nodes, tmp_path):
    """onnxruntime's fusion of product and bias multiplies the bias by the scale of the row."""
    model = converted(tmp_path, nodes)
    assert b"MatMulInteger" in model.SerializeToString()
    assert_near(model, X @ WEIGHTS + BIAS)


def test_a_matrix_for_each_part_of_a_batch_stays_float32(tmp_path):
    """onnxruntime refuses one scale a column for those when it runs the product: `b zero point is not valid`."""
    experts = RNG.standard_normal((4, N, 12)).astype("float32")
    nodes = "hidden = MatMul (x, w) y = MatMul (hidden, experts)"
    model = converted(tmp_path, nodes, "float[4, n, 12] y", experts=experts)
    assert [node.op_type for node in model.graph.node if "MatMul" in node.op_type] == ["MatMulInteger", "MatMul"]
    assert_near(model, X @ WEIGHTS @ experts, share=0.03)


def test_a_product_is_quantized_behind_an_operator_without_inferred_types(tmp_path):
    nodes = "same = com.microsoft.FusedMatMul (x, identity) p = MatMul (same, w) y = Add (p, b)"
    given = small_graph(nodes, "float[n, 8] x", "float[n, 8] y", w=WEIGHTS, b=BIAS, identity=np.eye(N, dtype="float32"))
    given.opset_import.add(domain="com.microsoft", version=1)
    model = to_int8(Traced(given), tmp_path).model
    assert b"MatMulInteger" in model.SerializeToString()
    assert_near(model, X @ WEIGHTS + BIAS)


def test_products_with_rows_of_their_own_scale_are_still_fused(tmp_path):
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    options.log_severity_level = 3
    onnxruntime.InferenceSession(converted(tmp_path).SerializeToString(), options)
    optimized = onnx.load(tmp_path / "optimized.onnx")
    assert "MatMulIntegerToFloat" in {node.op_type for node in optimized.graph.node}


def test_sums_of_large_products_are_the_same_on_every_processor(tmp_path):
    """Signed weights overflow in pairs on x86-64 without VNNI, off by a third here; so there are none."""
    model = converted(tmp_path)
    types = {each.name: each.data_type for each in model.graph.initializer}
    products = [node for node in model.graph.node if node.op_type == "MatMulInteger"]
    assert [types[node.input[1]] for node in products] == [onnx.TensorProto.UINT8]
    largest = np.full_like(X, np.abs(X).max())
    assert_near(model, largest @ WEIGHTS + BIAS, largest)
