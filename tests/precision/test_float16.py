"""Conversion of small graphs to float16: operators that run in float16, casts, and outputs in onnxruntime."""

import numpy as np
import onnx
import pytest
from lowered_calls import Plan, build_model
from onnx import TensorProto
from onnx_text import build_small_graph
from traced_models import run_model

from keras_attn_export._lowering_names import ADAPTIVE_GPU
from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._onnx.traversal import iter_nodes
from keras_attn_export._onnxruntime_releases import FUSED_OPSET
from keras_attn_export._precision import float16

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((4, 4)).astype("float32")


def to_float16(graph):
    return float16.convert_to_float16(TracedModel(graph)).traced.model


def list_float16_ops(model):
    """Return the types of the operators with float16 outputs, except casts."""
    infos = onnx.shape_inference.infer_shapes(model, strict_mode=True).graph.value_info
    float16_names = {info.name for info in infos if info.type.tensor_type.elem_type == TensorProto.FLOAT16}
    return [node.op_type for node in model.graph.node if node.op_type != "Cast" and float16_names & set(node.output)]


def assert_close_after_conversion(graph, **inputs):
    converted_model = to_float16(graph)
    onnx.checker.check_model(converted_model, full_check=True)
    outputs = (run_model(model, **inputs).values() for model in (converted_model, graph))
    for actual, expected in zip(*outputs, strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_allclose(actual, expected, rtol=5e-3, atol=5e-3)
    return converted_model


X = RNG.standard_normal((3, 4)).astype("float32")


def test_products_and_their_consumers_run_in_float16():
    graph = build_small_graph("a = MatMul (x, w) c = Add (a, b) y = Tanh (c)", w=WEIGHTS, b=WEIGHTS[0])
    serialized = graph.SerializeToString()
    converted_model = assert_close_after_conversion(graph, x=X)
    assert list_float16_ops(converted_model) == ["MatMul", "Add", "Tanh"]
    assert {tensor.data_type for tensor in converted_model.graph.initializer} == {TensorProto.FLOAT16}
    assert graph.SerializeToString() == serialized


@pytest.mark.parametrize("opset", [18, FUSED_OPSET])
def test_attention_operators_run_in_float16_on_a_gpu_alone(opset):
    """The operators may be inside a branch. onnxruntime has no float16 kernels of attention for a CPU."""
    call = Plan(size=8, value_size=8, causal=True).call()
    graph = build_model(call, lowering_choice.build_lowered_function(call, ADAPTIVE_GPU, opset, "cuda"), opset)
    for provider, cast_type in (("cpu", None), ("cuda", TensorProto.FLOAT16)):
        nodes = [*iter_nodes(float16.convert_to_float16(TracedModel(graph), provider).traced.model.functions[0])]
        producers = {name: node for node in nodes for name in node.output}
        attentions = [node for node in nodes if node.op_type in ("Attention", "MultiHeadAttention")]
        assert len(attentions) == (1 if opset == 18 else 2)
        for attention in attentions:
            inputs = [producers.get(name) for name in attention.input[:3]]
            assert {node.attribute[0].i if node and node.op_type == "Cast" else None for node in inputs} == {cast_type}
            (consumer,) = [node for node in nodes if attention.output[0] in node.input]
            is_cast_to_float32 = consumer.op_type == "Cast" and consumer.attribute[0].i == TensorProto.FLOAT
            assert is_cast_to_float32 or cast_type is None


@pytest.mark.parametrize("bias", [None, "pairs"])
def test_attention_with_a_bias_stays_in_float32(bias):
    """The bias of a masked key is the lowest float32, which float16 cannot represent."""
    call = Plan(lengths="examples", bias=bias).call()
    function = lowering_choice.build_lowered_function(call, ADAPTIVE_GPU, FUSED_OPSET, "cuda")
    graph = build_model(call, function, FUSED_OPSET)
    nodes = [*iter_nodes(float16.convert_to_float16(TracedModel(graph), "cuda").traced.model.functions[0])]
    assert any(node.op_type == "Cast" and node.attribute[0].i == TensorProto.FLOAT16 for node in nodes) == (not bias)


def test_products_of_function_outputs_run_in_float16():
    graph = build_small_graph("a = own.twice (x) y = MatMul (a, w)", w=WEIGHTS)
    graph.opset_import.add(domain="own", version=1)
    twice = '<opset_import: ["" : 18], domain: "own"> twice (x) => (y) { y = Add (x, x) }'
    graph.functions.append(onnx.parser.parse_function(twice))
    assert list_float16_ops(assert_close_after_conversion(graph, x=X)) == ["MatMul"]


@pytest.mark.parametrize("constant", [-3.4028235e38, -np.inf, np.nan, 1e-7], ids=str)
def test_constants_beyond_float16_stay_float32(constant):
    nodes = "a = MatMul (x, w) m = Greater (a, z) y = Where (m, a, c)"
    graph = build_small_graph(nodes, w=WEIGHTS, z=np.float32(0), c=np.float32(constant))
    converted_model = assert_close_after_conversion(graph, x=X)
    assert list_float16_ops(converted_model) == ["MatMul"]
    assert list_float16_ops(to_float16(build_small_graph("y = MatMul (x, w)", w=WEIGHTS * 1e6))) == []


def test_squares_and_means_stay_float32():
    nodes = """
        a = MatMul (x, w)
        m = ReduceMean <keepdims = 1> (a)
        d = Sub (a, m) s = Mul (d, d) q = Mul (a, a)
        y = Add (s, q)
    """
    graph = build_small_graph(nodes, w=WEIGHTS * 100)
    assert list_float16_ops(assert_close_after_conversion(graph, x=X / 100)) == ["MatMul"]
    large = X * 100
    np.testing.assert_allclose(run_model(to_float16(graph), x=large)["y"], run_model(graph, x=large)["y"], rtol=1e-2)


def test_scores_for_a_softmax_do_not_overflow():
    nodes = """
        q = MatMul (x, w)
        k = Transpose <perm = [1, 0]> (q)
        s = MatMul (q, k) t = Mul (s, c) p = Softmax (t)
        y = MatMul (p, q)
    """
    converted_model = to_float16(build_small_graph(nodes, w=WEIGHTS, c=np.float32(0.5)))
    assert list_float16_ops(converted_model) == ["MatMul", "Transpose", "MatMul"]
    assert np.isfinite(run_model(converted_model, x=X * 1000)["y"]).all()


def test_tensor_with_consumers_in_both_types_is_cast():
    nodes = "a = MatMul (x, w) e = Exp (a) f = Erf (a) y = Add (e, f)"
    graph = build_small_graph(nodes, output_text="float[n, 4] y, float[n, 4] a", w=WEIGHTS)
    converted_model = assert_close_after_conversion(graph, x=X)
    assert len({node.name for node in converted_model.graph.node}) == len(converted_model.graph.node)


def test_constant_node_with_consumers_in_both_types_is_converted():
    constant = f"c = Constant <value = float[4, 4] {{{', '.join(map(str, WEIGHTS.flat))}}}> ()"
    graph = build_small_graph(f"{constant} a = MatMul (x, c) e = Exp (c) y = MatMul (a, e)")
    assert list_float16_ops(assert_close_after_conversion(graph, x=X)) == ["MatMul", "MatMul"]


def build_loop(weights_name):
    """Return a model with a loop that multiplies x three times by weights, which are a state of the loop."""
    nodes = f"""
        y, unused = Loop <body = step (int64 i, bool condition, float[k, 4] state, float[l, 4] carried)
            => (bool condition_on, float[k, 4] new, float[l, 4] carried_on)
        {{
            new = MatMul (state, carried)
            carried_on = Identity (carried)
            condition_on = Identity (condition)
        }}> (count, yes, x, {weights_name})
    """
    inputs = "float[n, 4] x, float[m, 4] v"
    return build_small_graph(nodes, inputs, count=np.int64(3), yes=np.bool_(True), w=WEIGHTS)


def test_weights_that_are_a_state_of_a_loop_are_captured_in_float16():
    graph = build_loop("w")
    converted_model = assert_close_after_conversion(graph, x=X, v=X)
    (node,) = [node for node in converted_model.graph.node if node.op_type == "Loop"]
    assert list(node.input) == ["count", "yes", "x"]
    assert list(node.output) == ["y"]
    assert {tensor.name for tensor in converted_model.graph.initializer} == {"count", "yes", "w/float16"}


def test_unchanged_loop_state_is_cast_once_outside():
    square = RNG.standard_normal((4, 4)).astype("float32")
    converted_model = assert_close_after_conversion(build_loop("v"), x=X, v=square)
    cast, node = converted_model.graph.node
    assert (cast.op_type, list(cast.input), list(cast.output)) == ("Cast", ["v"], ["v/float16"])
    assert list(node.input) == ["count", "yes", "x"]
    assert [cast.input[0] for cast in node.attribute[0].g.node if cast.op_type == "Cast"] == ["state", "new/float16"]
