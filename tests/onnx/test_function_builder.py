"""A body that is built of values is written with each part where it is read, and as often."""

from collections import Counter

import numpy as np
import pytest
from lowered_calls import Plan, build_model
from traced_models import run_model

from keras_attn_export._lowerings import lowering_choice
from keras_attn_export._lowerings.attention_function import build_call_function
from keras_attn_export._lowerings.forms import adaptive_gpu, ragged
from keras_attn_export._onnx.lazy_values import concat_shape, if_else, op, scan
from keras_attn_export._onnx.traversal import iter_nodes


def written(body):
    """The function of a body, and what it gives for queries and keys that count up."""
    call = Plan(leading=(2,), size=1, value_size=1).call()
    found = build_call_function(call, body, 18)
    queries, keys = (np.arange(1, 2 * length + 1, dtype="float32").reshape(2, length, 1) for length in (3, 4))
    (output,) = run_model(build_model(call, found), queries=queries, keys=keys, values=keys).values()
    return found, output.ravel().tolist()


def ops(nodes):
    return [node.op_type for node in nodes if node.op_type != "Constant"]


def graphs(node):
    return {attribute.name: attribute.g.node for attribute in node.attribute if attribute.HasField("g")}


def test_values_read_in_branches_alone_are_computed_in_them():
    def body(given):
        both, one, nested = op.Exp(given.queries), op.Neg(given.queries), op.Abs(given.queries)
        few = op.Squeeze(given.Tq) < 9
        (inner,) = if_else(few, (both + nested,), (both - one,))
        return if_else(few, (inner + one,), (both * 2.0,))

    found, output = written(body)
    assert ops(found.node) == ["Shape", "Squeeze", "Less", "If"]
    outer = graphs(found.node[-1])
    assert ops(outer["else_branch"]) == ["Exp", "Mul"]
    assert Counter(ops(outer["then_branch"])) == Counter(["Neg", "If", "Add"]), "`Neg` is read beside the branches"
    inner = graphs(next(node for node in outer["then_branch"] if node.op_type == "If"))
    assert sorted(ops(inner["then_branch"])) == ["Abs", "Add", "Exp"]
    assert ops(inner["else_branch"]) == ["Exp", "Sub"]
    np.testing.assert_allclose(output, np.exp(np.arange(1, 7)) + np.arange(1, 7) - np.arange(1, 7), rtol=1e-6)


def test_invariant_values_are_computed_before_the_loop():
    def body(given):
        def step(query):
            total = op.ReduceSum(given.keys, concat_shape(0, 1), keepdims=0)
            return scan([1], lambda row: (row * total + op.ReduceMax(query, keepdims=0) * 0.0,), query)

        return scan([2], step, given.queries)

    found, output = written(body)
    assert ops(found.node) == ["ReduceSum", "Scan"]
    example = next(iter(graphs(found.node[-1]).values()))
    assert ops(example) == ["ReduceMax", "Mul", "Scan"]
    assert ops(next(iter(graphs(example[-1]).values()))) == ["Mul", "Add"]
    assert output == [36.0 * number for number in range(1, 7)]


def test_function_is_deterministic():
    call = Plan("additive", lengths="examples", heads=(2, 2)).call()
    assert (
        len({lowering_choice.build_lowered_function(call, "adaptive", 18).SerializeToString() for _ in range(2)}) == 1
    )


@pytest.mark.parametrize("body", [ragged.body, adaptive_gpu.block_body])
@pytest.mark.parametrize(
    "masks",
    [{"lengths": "examples"}, {"band": (1, 1)}, {"causal": True, "weights": True, "heads": (2, 2)}, {"mask": "pairs"}],
    ids=str,
)
def test_loop_results_have_shapes_for_onnxruntime_1_19(masks, body):
    """Onnxruntime 1.19 asks for it, and later ones do not."""
    found = build_call_function(Plan(**masks).call(), body, 18)
    loops = [node for node in iter_nodes(found) if node.op_type in ("Scan", "Loop")]
    assert loops
    for loop in loops:
        (results,) = [attribute.g.output for attribute in loop.attribute if attribute.HasField("g")]
        assert all(result.type.tensor_type.HasField("shape") for result in results)
