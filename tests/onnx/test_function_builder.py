"""Function bodies built from lazy values: nodes in the branches that read them, invariant nodes before the loop."""

import numpy as np
import pytest
from lowered_calls import Plan, build_model
from traced_models import run_model

from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._lowerings.attention_function import build_call_function
from keras_attn_export._lowerings.forms import adaptive_gpu, ragged
from keras_attn_export._onnx.lazy_values import concat_shape, if_else, op, scan
from keras_attn_export._onnx.traversal import iter_nodes


def build_and_run(body):
    """Return the function of a body, and its output for queries and keys that count up from 1."""
    call = Plan(leading=(2,), size=1, value_size=1).call()
    function = build_call_function(call, body, 18)
    queries, keys = (np.arange(1, 2 * length + 1, dtype="float32").reshape(2, length, 1) for length in (3, 4))
    (output,) = run_model(build_model(call, function), queries=queries, keys=keys, values=keys).values()
    return function, output.ravel().tolist()


def list_operators(nodes):
    return [node.op_type for node in nodes if node.op_type != "Constant"]


def get_subgraphs(node):
    return {attribute.name: attribute.g.node for attribute in node.attribute if attribute.HasField("g")}


def test_values_read_in_branches_alone_are_computed_in_them():
    def body(call):
        exp, neg, absolute = op.Exp(call.queries), op.Neg(call.queries), op.Abs(call.queries)
        has_few_queries = op.Squeeze(call.Tq) < 9
        (inner,) = if_else(has_few_queries, (exp + absolute,), (exp - neg,))
        return if_else(has_few_queries, (inner + neg,), (exp * 2.0,))

    function, output = build_and_run(body)
    assert list_operators(function.node) == ["Shape", "Squeeze", "Less", "If"]
    outer = get_subgraphs(function.node[-1])
    assert list_operators(outer["else_branch"]) == ["Exp", "Mul"]
    assert sorted(list_operators(outer["then_branch"])) == ["Add", "If", "Neg"], "an inner branch and `Add` read `Neg`"
    inner = get_subgraphs(next(node for node in outer["then_branch"] if node.op_type == "If"))
    assert sorted(list_operators(inner["then_branch"])) == ["Abs", "Add", "Exp"]
    assert list_operators(inner["else_branch"]) == ["Exp", "Sub"]
    np.testing.assert_allclose(output, np.exp(np.arange(1, 7)) + np.arange(1, 7) - np.arange(1, 7), rtol=1e-6)


def test_invariant_values_are_computed_before_the_loop():
    def body(call):
        def step(query):
            total = op.ReduceSum(call.keys, concat_shape(0, 1), keepdims=0)
            return scan([1], lambda row: (row * total + op.ReduceMax(query, keepdims=0) * 0.0,), query)

        return scan([2], step, call.queries)

    function, output = build_and_run(body)
    assert list_operators(function.node) == ["ReduceSum", "Scan"]
    example_body = next(iter(get_subgraphs(function.node[-1]).values()))
    assert list_operators(example_body) == ["ReduceMax", "Mul", "Scan"]
    assert list_operators(next(iter(get_subgraphs(example_body[-1]).values()))) == ["Mul", "Add"]
    assert output == [36.0 * number for number in range(1, 7)]


def test_function_is_deterministic():
    call = Plan("additive", lengths="examples", heads=(2, 2)).call()
    functions = [lowering_choice.build_lowered_function(call, "adaptive", 18) for _ in range(2)]
    assert functions[0].SerializeToString() == functions[1].SerializeToString()


@pytest.mark.parametrize("body", [ragged.build_body, adaptive_gpu.block_body])
@pytest.mark.parametrize(
    "masks",
    [{"lengths": "examples"}, {"band": (1, 1)}, {"causal": True, "weights": True, "heads": (2, 2)}, {"mask": "pairs"}],
    ids=str,
)
def test_loop_results_have_shapes_for_onnxruntime_1_19(masks, body):
    """Onnxruntime 1.19 needs the shapes; later releases do not."""
    function = build_call_function(Plan(**masks).call(), body, 18)
    loops = [node for node in iter_nodes(function) if node.op_type in ("Scan", "Loop")]
    assert loops
    for loop in loops:
        (results,) = [attribute.g.output for attribute in loop.attribute if attribute.HasField("g")]
        assert all(result.type.tensor_type.HasField("shape") for result in results)
