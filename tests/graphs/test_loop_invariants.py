"""What is the same in each step of a loop is computed before it: the same numbers, and the body has the rest."""

import numpy as np
import pytest
from onnx import numpy_helper, parser
from traced_models import changed

from keras_attn_export._graphs.loop_invariants import hoist
from keras_attn_export._graphs.walk import graphs_in

X, M = np.array([[1, 2], [3, 4]], "float32"), np.array([[0.5, -1], [2, 0.25]], "float32")

# in the inner loop `twice` depends on the model alone, `sums` on the outer step; what a body gives is made in it
NESTED = """
<ir_version: 8, opset_import: ["" : 18]>
nested (float[n, 2] x, float[2, 2] m, int64 count) => (float[n, 2] y, float[k, 2, 2] scanned)
{
    yes = Constant <value = bool {1}> ()
    y, scanned = Loop <body = outer (int64 i, bool go_outer, float[n, 2] a)
        => (bool go_outer_on, float[n, 2] a_after, float[2, 2] each)
    {
        go_outer_on = Identity (go_outer)
        each = Neg (m)
        a_after = Loop <body = inner (int64 j, bool go_inner, float[n, 2] b) => (bool go_inner_on, float[n, 2] b_after)
        {
            go_inner_on = Identity (go_inner)
            two = Constant <value = float {2.0}> ()
            twice = Mul (m, two)
            sums = Add (a, two)
            product = MatMul (b, twice)
            mixed = Tanh (product)
            b_after = Add (mixed, sums)
        }> (count, yes, a)
    }> (count, yes, x)
}
"""

# `w` and `seen` stay, the query does not; the branches of the call read what is made before the loop as well
CALL = """
<ir_version: 8, opset_import: ["" : 18, "keras_attn" : 1]>
called (float[n, 2] x, float[2, 2] m, int64 count) => (float[n, 2] y)
{
    yes = Constant <value = bool {1}> ()
    y = Loop <body = outer (int64 i, bool go, float[n, 2] a) => (bool go_on, float[n, 2] a_after)
    {
        go_on = Identity (go)
        a_after = keras_attn.attend_0 (a, m)
    }> (count, yes, x)
}
<domain: "keras_attn", opset_import: ["" : 18]>
attend_0 (query, memory) => (output)
{
    one = Constant <value_float = 1.0> ()
    shifted = Add (memory, one)
    w = Tanh (shifted)
    total = ReduceSum <keepdims = 0> (w)
    found = MatMul (query, w)
    size = ReduceSum <keepdims = 0> (found)
    is_large = Greater (size, one)
    output = If (is_large) <
        then_branch = large () => (float[k, l] then_output) {then_output = Div (found, total)},
        else_branch = small () => (float[o, p] else_output) {else_output = Sub (found, one)}
    >
}
"""


def hoisted(text, counts=(0, 1, 3)):
    """The model afterwards, which gives what it gave."""
    return changed(parser.parse_model(text), hoist, *({"x": X, "m": M, "count": np.array(count)} for count in counts))


def ops_of(graph):
    return [node.op_type for node in graph.node if node.op_type != "Constant"]


def body_of(graph):
    (loop,) = [node for node in graph.node if node.op_type == "Loop"]
    return next(graphs_in(loop))


def test_invariant_nodes_leave_all_loops():
    graph = hoisted(NESTED).graph
    assert ops_of(graph) == ["Mul", "Loop"]
    assert ops_of(body_of(graph)) == ["Identity", "Neg", "Add", "Loop"]
    assert ops_of(body_of(body_of(graph))) == ["Identity", "MatMul", "Tanh", "Add"]


def test_invariant_part_of_a_call_leaves_the_loop():
    model = hoisted(CALL)
    first, loop = (node for node in model.graph.node if node.op_type != "Constant")
    assert (first.op_type, loop.op_type) == ("attend_0_before_loop", "Loop")
    call = body_of(model.graph).node[-1]
    assert list(call.input) == ["a", "m", *first.output]
    late, early = model.functions
    assert [late.name, early.name] == ["attend_0", "attend_0_before_loop"]
    assert list(early.input) == ["memory"]
    assert list(early.output) == list(late.input[2:]) == ["w", "total"]
    assert ops_of(early) == ["Add", "Tanh", "ReduceSum"]
    assert ops_of(late) == ["MatMul", "ReduceSum", "Greater", "If"]


@pytest.mark.parametrize(
    ("lines", "ops"),
    [
        ("b = keras_attn.attend_0 (a, m) a_after = keras_attn.attend_0 (b, m)", ["Loop"]),
        ("c = keras_attn.attend_0 (m, m) a_after = Add (a, c)", ["attend_0", "Loop"]),
    ],
    ids=["called twice", "a call of what stays"],
)
def test_function_called_twice_or_invariant_stays_whole(lines, ops):
    model = hoisted(CALL.replace("a_after = keras_attn.attend_0 (a, m)", lines))
    assert ops_of(model.graph) == ops
    assert [function.name for function in model.functions] == ["attend_0"]


BRANCH = """
    twice = If (yes) <
        then_branch = yes_branch () => (float[q, r] then_output) {then_output = Neg (m)},
        else_branch = no_branch () => (float[q, r] else_output) {else_output = Abs (m)}
    >
"""


@pytest.mark.parametrize(
    ("lines", "op"),
    [("twice = RandomNormalLike <seed = 1.0> (m)", "RandomNormalLike"), (BRANCH, "If")],
    ids=["draws", "a branch"],
)
def test_draws_and_branches_stay_in_the_loop(lines, op):
    model = hoisted(NESTED.replace("twice = Mul (m, two)", lines), counts=())
    assert op in ops_of(body_of(body_of(model.graph)))


def test_two_bodies_may_use_the_same_names():
    """What they hold by these names differs: it cannot stand in one graph. What has a name of its own can."""
    model = hoisted("""
    <ir_version: 8, opset_import: ["" : 18]>
    beside (float[2, 2] x, float[2, 2] m, int64 count) => (float[2, 2] z)
    {
        yes = Constant <value = bool {1}> ()
        y = Loop <body = one (int64 i, bool go, float[2, 2] a) => (bool go_on, float[2, 2] b)
            <float factor = {2}, float own = {5}>
        {
            go_on = Identity (go)
            c = Mul (m, factor)
            d = Mul (m, own)
            f = Neg (m)
            b = Sum (a, c, d, f)
        }> (count, yes, x)
        z = Loop <body = two (int64 j, bool go2, float[2, 2] a2) => (bool go2_on, float[2, 2] b2)
            <float factor = {3}>
        {
            go2_on = Identity (go2)
            c = Mul (m, factor)
            f = Abs (m)
            b2 = Sum (a2, c, f)
        }> (count, yes, y)
    }
    """)
    assert ops_of(model.graph) == ["Mul", "Loop", "Loop"]
    assert [each.name for each in model.graph.initializer] == ["own"]
    assert numpy_helper.to_array(model.graph.initializer[0]) == 5
