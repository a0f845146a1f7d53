"""A body that is built of values is written with each part where it is read, and as often."""

from collections import Counter

import numpy as np
import onnx
import pytest
from lowered_calls import Plan, model_of
from onnxruntime import InferenceSession

from keras_attn_export._graphs.walk import all_nodes
from keras_attn_export._lowerings import batched, bodies, ragged
from keras_attn_export._lowerings.function import function
from keras_attn_export._lowerings.operators import branch, op, scan, vector


def written(body):
    """The function of a body, and what it gives for queries and keys that count up."""
    call = Plan(leading=(2,), size=1, value_size=1).call()
    found = function(call, body, 18)
    session = InferenceSession(model_of(call, found).SerializeToString(), providers=["CPUExecutionProvider"])
    queries, keys = (np.arange(1, 2 * length + 1, dtype="float32").reshape(2, length, 1) for length in (3, 4))
    (output,) = session.run(None, {"queries": queries, "keys": keys, "values": keys})
    return found, output.ravel().tolist()


def ops(nodes):
    return [node.op_type for node in nodes if node.op_type != "Constant"]


def graphs(node):
    return {attribute.name: attribute.g.node for attribute in node.attribute if attribute.HasField("g")}


def test_what_only_branches_read_is_made_in_them():
    def body(given):
        both, one, nested = op.Exp(given.queries), op.Neg(given.queries), op.Abs(given.queries)
        few = op.Squeeze(given.Tq) < 9
        (inner,) = branch(few, (both + nested,), (both - one,))
        return branch(few, (inner + one,), (both * 2.0,))

    found, output = written(body)
    assert ops(found.node) == ["Shape", "Squeeze", "Less", "If"]
    outer = graphs(found.node[-1])
    assert ops(outer["else_branch"]) == ["Exp", "Mul"]
    assert Counter(ops(outer["then_branch"])) == Counter(["Neg", "If", "Add"]), "`Neg` is read beside the branches"
    inner = graphs(next(node for node in outer["then_branch"] if node.op_type == "If"))
    assert sorted(ops(inner["then_branch"])) == ["Abs", "Add", "Exp"]
    assert ops(inner["else_branch"]) == ["Exp", "Sub"]
    np.testing.assert_allclose(output, np.exp(np.arange(1, 7)) + np.arange(1, 7) - np.arange(1, 7), rtol=1e-6)


def test_what_two_branchings_read_is_made_once_before_them():
    def body(given):
        shared, few = op.Exp(given.queries), op.Squeeze(given.Tq) < 9
        pairs = [branch(few, (shared + number,), (shared,)) for number in (1.0, 2.0)]
        return (pairs[0][0] + pairs[1][0],)

    found, output = written(body)
    assert ops(found.node).count("Exp") == 1
    assert [ops(graphs(node)["else_branch"]) for node in found.node if node.op_type == "If"] == [["Identity"]] * 2
    np.testing.assert_allclose(output, 2 * np.exp(np.arange(1, 7)) + 3, rtol=1e-6)


def test_what_a_loop_does_not_change_is_made_before_it():
    def body(given):
        def step(query):
            total = op.ReduceSum(given.keys, vector(0, 1), keepdims=0)
            return scan([1], lambda row: (row * total + op.ReduceMax(query, keepdims=0) * 0.0,), query)

        return scan([2], step, given.queries)

    found, output = written(body)
    assert ops(found.node) == ["ReduceSum", "Scan"]
    example = next(iter(graphs(found.node[-1]).values()))
    assert ops(example) == ["ReduceMax", "Mul", "Scan"]
    assert ops(next(iter(graphs(example[-1]).values()))) == ["Mul", "Add"]
    assert output == [36.0 * number for number in range(1, 7)]


def test_a_constant_is_made_once_whatever_reads_it():
    def body(given):
        return (op.Max(given.queries * 2.0, 2.0) + op.Clip(given.queries, 2.0),)

    found, output = written(body)
    assert Counter(node.op_type for node in found.node)["Constant"] == 1
    assert output == [max(2 * number, 2) + max(number, 2) for number in range(1, 7)]


def test_what_nothing_reads_is_not_written():
    def body(given):
        op.Exp(given.keys)
        return (given.queries + 1.0,)

    assert ops(written(body)[0].node) == ["Add"]


def test_the_same_file_comes_of_the_same_body():
    call = Plan("additive", lengths="examples", heads=(2, 2)).call()
    assert len({bodies.function_of(call, "adaptive", 18).SerializeToString() for _ in range(2)}) == 1


def _exp(given):
    return (op.Exp(given.values) * 0.75,)


def test_a_node_says_where_it_is():
    (exp, *_) = [node for node in written(_exp)[0].node if node.op_type == "Exp"]
    assert exp.name.startswith("keras_attn/layer/call_0/Exp_")


def test_numbers_beside_each_other_are_one_part_of_a_shape():
    def body(given):
        return (op.Reshape(given.queries, vector(given.N, 1, 1, given.Tq, 1)),)

    call = Plan(leading=(2,), size=1, value_size=1).call()
    (concat,) = [node for node in function(call, body, 18).node if node.op_type == "Concat"]
    assert len(concat.input) == 4
    assert onnx.helper.get_node_attr_value(concat, "axis") == 0


@pytest.mark.parametrize("body", [ragged.body, batched.in_blocks])
@pytest.mark.parametrize(
    "masks",
    [{"lengths": "examples"}, {"band": (1, 1)}, {"causal": True, "weights": True, "heads": (2, 2)}, {"mask": "pairs"}],
    ids=str,
)
def test_the_results_of_a_loop_have_as_many_axes_as_it_says(masks, body):
    """Onnxruntime 1.19 asks for it, and later ones do not."""
    found = function(Plan(**masks).call(), body, 18)
    loops = [node for node in all_nodes(found) if node.op_type in ("Scan", "Loop")]
    assert loops
    for loop in loops:
        (results,) = [attribute.g.output for attribute in loop.attribute if attribute.HasField("g")]
        assert all(result.type.tensor_type.HasField("shape") for result in results)
