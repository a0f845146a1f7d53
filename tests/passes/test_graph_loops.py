"""Loops: unchanged state is captured, invariant nodes leave the body, conditions that repeat the trip count go."""

import keras
import numpy as np
import pytest
from converted_functions import Converted
from onnx import numpy_helper, parser
from traced_models import apply_change, run_model

from keras_attn_export._onnx.graph_edits import remove_dead_nodes
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._onnx.traversal import iter_subgraphs
from keras_attn_export._passes.loop_conditions import remove_conditions
from keras_attn_export._passes.loop_invariants import hoist_invariants
from keras_attn_export._passes.loop_passthrough_state import remove_passthrough_state

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
    """Return the rewritten model after a check that its outputs stay equal."""
    inputs = [{"x": X, "m": M, "count": np.array(count)} for count in counts]
    return apply_change(parser.parse_model(text), lambda model: hoist_invariants(TracedModel(model)), *inputs)


def ops_of(graph):
    return [node.op_type for node in graph.node if node.op_type != "Constant"]


def body_of(graph):
    (loop,) = [node for node in graph.node if node.op_type == "Loop"]
    return next(iter_subgraphs(loop))


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
    assert [tensor.name for tensor in model.graph.initializer] == ["own"]
    assert numpy_helper.to_array(model.graph.initializer[0]) == 5


# `w` goes through both loops and is an output of the model; the inner one changes what is state of both
STATES = """
<ir_version: 8, opset_import: ["" : 18]>
nested (float[n, 2] x, float[2, 2] w, int64 count) => (float[n, 2] y, float[2, 2] w_after)
{
    yes = Constant <value = bool {1}> ()
    y, w_after = Loop <body = outer (int64 i, bool go_outer, float[n, 2] a, float[2, 2] w_in)
        => (bool go_outer_on, float[n, 2] a_after, float[2, 2] w_out)
    {
        go_outer_on = Identity (go_outer)
        a_after, w_out = Loop <body = inner (int64 j, bool go_inner, float[n, 2] b, float[2, 2] w_inner)
            => (bool go_inner_on, float[n, 2] b_after, float[2, 2] w_inner_out)
        {
            go_inner_on = Identity (go_inner)
            b_after = MatMul (b, w_inner)
            w_copy = Identity (w_inner)
            w_inner_out = Identity (w_copy)
        }> (count, yes, a, w_in)
    }> (count, yes, x, w)
}
"""


def captured(text):
    """Return the rewritten graph after a check that its outputs stay equal."""
    inputs = [{"x": X, "w": M, "count": np.array(count, "int64")} for count in (0, 1, 2, 3)]
    return apply_change(parser.parse_model(text), lambda model: remove_passthrough_state(TracedModel(model)), *inputs)


def test_unchanged_state_of_nested_loops_is_captured():
    model = captured(STATES)
    (outer,) = [node for node in model.graph.node if node.op_type == "Loop"]
    (inner,) = [node for node in outer.attribute[0].g.node if node.op_type == "Loop"]
    assert [list(node.input) for node in (outer, inner)] == [["count", "yes", "x"], ["count", "yes", "a"]]
    assert [list(node.output) for node in (outer, inner)] == [["y"], ["a_after"]]
    assert [node.op_type for node in inner.attribute[0].g.node] == ["Identity", "MatMul"]
    assert list(inner.attribute[0].g.node[1].input) == ["b", "w"]


def test_swapped_states_stay():
    """Two states that are swapped in each step come back only every other time."""
    model = captured("""
        <ir_version: 8, opset_import: ["" : 18]>
        swapping (float[2, 2] x, float[2, 2] w, int64 count) => (float[2, 2] y, float[2, 2] z)
        {
            yes = Constant <value = bool {1}> ()
            y, z = Loop <body = body (int64 i, bool go, float[2, 2] first, float[2, 2] second)
                => (bool go_on, float[2, 2] second_out, float[2, 2] first_out)
            {
                go_on = Identity (go)
                second_out = Identity (second)
                first_out = Identity (first)
            }> (count, yes, x, w)
        }
    """)
    np.testing.assert_array_equal(run_model(model, x=X, w=M, count=np.array(3, "int64"))["y"], M)


def test_state_that_shifts_to_another_stays():
    """`c` stays, and is what `b` becomes, which is what `a` becomes."""
    model = captured("""
        <ir_version: 8, opset_import: ["" : 18]>
        shifting (float[2, 2] x, float[2, 2] w, int64 count) => (float[2, 2] y, float[2, 2] z)
        {
            yes = Constant <value = bool {1}> ()
            y, z, last = Loop <body = body (int64 i, bool go, float[2, 2] a, float[2, 2] b, float[2, 2] c)
                => (bool go_on, float[2, 2] b, float[2, 2] c, float[2, 2] c_out)
            {
                go_on = Identity (go)
                c_out = Identity (c)
            }> (count, yes, x, x, w)
        }
    """)
    assert len(model.graph.node[1].input) == 4


# as tf2onnx writes a recurrent layer: the number of the step and a counter of its own, against the length as floats
COUNTED = """
<ir_version: 8, opset_import: ["" : 18]>
counted (int32 length, float x) => (float y)
<int32 zero = {0}, int32 one = {1}, bool yes = {1}>
{
    count = Cast <to = 7> (length)
    last, y = Loop <body = step (int64 i, bool go, int32 time, float a) => (bool go_on, int32 later, float b)
    {
        b = Add (a, a)
        later = Add (time, one)
        number = Cast <to = 1> (i)
        end = Cast <to = 1> (length)
        first = Less (number, end)
        counter = Cast <to = 1> (later)
        end_again = Cast <to = 1> (length)
        second = Less (counter, end_again)
        go_on = And (first, second)
    }> (count, yes, zero, x)
}
"""
ENDS = {
    "something else": ("go_on = And (first, second)", "third = Less (b, end) go_on = And (first, third)"),
    "either": ("go_on = And (first, second)", "go_on = Or (first, second)"),
    "another length": ("second = Less (counter, end_again)", "half = Mul (end, x) second = Less (counter, half)"),
    "another comparison": ("second = Less (counter, end_again)", "second = LessOrEqual (counter, end_again)"),
    "a counter of twos": ("later = Add (time, one)", "two = Add (one, one) later = Add (time, two)"),
    "a counter that doubles": ("later = Add (time, one)", "later = Add (time, time)"),
    "a counter from one": ("(count, yes, zero, x)", "(count, yes, one, x)"),
}


def dropped(*lines, lengths=(0, 1, 3, 8)):
    """The operators of the body afterwards, where lines of the model are others."""
    text = COUNTED
    for line, other in lines:
        assert text.count(line) == 1
        text = text.replace(line, other)

    def drop(model):
        remove_conditions(TracedModel(model))
        remove_dead_nodes(model.graph)

    inputs = [{"length": np.array(length, "int32"), "x": np.array(0.4, "float32")} for length in lengths]
    (loop,) = [
        node for node in apply_change(parser.parse_model(text), drop, *inputs).graph.node if node.op_type == "Loop"
    ]
    return [node.op_type for node in next(iter_subgraphs(loop)).node]


def test_condition_that_repeats_the_trip_count_is_dropped():
    assert sorted(dropped()) == ["Add", "Add", "Identity"]
    # of a counter before its step
    assert "Less" not in dropped(("counter = Cast <to = 1> (later)", "counter = Cast <to = 1> (time)"))


@pytest.mark.parametrize(("line", "other"), ENDS.values(), ids=ENDS)
def test_condition_that_may_end_a_loop_early_stays(line, other):
    assert "Cast" in dropped((line, other))


NO_COUNT = ("count = Cast <to = 7> (length)", "")


def test_loop_without_a_trip_count_keeps_its_condition():
    assert dropped(("(count, yes, zero, x)", "(, yes, zero, x)"), NO_COUNT, lengths=[1]).count("Less") == 2


@pytest.mark.parametrize(("end", "stays"), [(3, False), (2, True)])
def test_constant_trip_count_is_compared_by_value(end, stays):
    constants = ("int32 one = {1}", f"int32 one = {{1}}, int64 count = {{3}}, float three = {{{end}}}")
    ops = dropped(constants, NO_COUNT, ("end_again)", "three)"), ("number, end)", "number, three)"))
    assert ("Less" in ops) == stays


def test_recurrent_layers_have_no_condition():
    layer, rng = keras.layers.GRU(4, return_sequences=True), np.random.default_rng(0)
    x, mask = rng.normal(size=(2, 5, 3)).astype("float32"), np.array([[True] * 5, [True] * 3 + [False] * 2])
    layer(x)
    layer.supports_jit = False
    converted = Converted(lambda x, mask: layer(x, mask=mask), x=x, mask=mask)
    (loop,) = [node for node in converted.model.graph.node if node.op_type == "Loop"]
    assert "Less" not in {node.op_type for node in next(iter_subgraphs(loop)).node}
    converted.assert_same()
    converted.assert_same(x=x[:, :1], mask=mask[:, :1])
