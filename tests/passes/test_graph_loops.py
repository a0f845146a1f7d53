"""Passes on loops: invariant nodes, unchanged state, and conditions that repeat the trip count leave the body."""

import keras
import numpy as np
import pytest
from converted_functions import ConvertedFunction
from onnx import numpy_helper, parser
from traced_models import apply_change, run_model

from keras_attn_export._onnx.graph_edits import remove_dead_nodes
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._onnx.traversal import iter_subgraphs
from keras_attn_export._passes.loop_conditions import remove_conditions
from keras_attn_export._passes.loop_invariants import hoist_invariants
from keras_attn_export._passes.loop_passthrough_state import remove_passthrough_state

X, M = np.array([[1, 2], [3, 4]], "float32"), np.array([[0.5, -1], [2, 0.25]], "float32")

# In the inner loop `twice` depends on model inputs only, and `sums` on the outer step; outputs of a body stay in it
NESTED = """
<ir_version: 8, opset_import: ["" : 18]>
nested (float[n, 2] x, float[2, 2] m, int64 count) => (float[n, 2] y, float[k, 2, 2] scanned)
{
    yes = Constant <value = bool {1}> ()
    y, scanned = Loop <body = outer (int64 i, bool go_outer, float[n, 2] a)
        => (bool go_outer_on, float[n, 2] a_after, float[2, 2] negative)
    {
        go_outer_on = Identity (go_outer)
        negative = Neg (m)
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

# `shifted`, `w` and `total` are invariant; the branches of the call also read values from before the loop
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
    product = MatMul (query, w)
    size = ReduceSum <keepdims = 0> (product)
    is_large = Greater (size, one)
    output = If (is_large) <
        then_branch = large () => (float[k, l] then_output) {then_output = Div (product, total)},
        else_branch = small () => (float[o, p] else_output) {else_output = Sub (product, one)}
    >
}
"""


def hoist(text, counts=(0, 1, 3)):
    """Return the model with invariant nodes hoisted, after a check that its outputs stay equal."""
    inputs = [{"x": X, "m": M, "count": np.array(count)} for count in counts]
    return apply_change(parser.parse_model(text), lambda model: hoist_invariants(TracedModel(model)), *inputs)


def list_operators(graph):
    return [node.op_type for node in graph.node if node.op_type != "Constant"]


def get_loop_body(graph):
    (loop,) = [node for node in graph.node if node.op_type == "Loop"]
    return next(iter_subgraphs(loop))


def test_invariant_nodes_leave_all_loops():
    graph = hoist(NESTED).graph
    assert list_operators(graph) == ["Mul", "Loop"]
    assert list_operators(get_loop_body(graph)) == ["Identity", "Neg", "Add", "Loop"]
    assert list_operators(get_loop_body(get_loop_body(graph))) == ["Identity", "MatMul", "Tanh", "Add"]


def test_invariant_part_of_a_call_leaves_the_loop():
    model = hoist(CALL)
    early_call, loop = (node for node in model.graph.node if node.op_type != "Constant")
    assert (early_call.op_type, loop.op_type) == ("attend_0_before_loop", "Loop")
    call = get_loop_body(model.graph).node[-1]
    assert list(call.input) == ["a", "m", *early_call.output]
    loop_function, early_function = model.functions
    assert [loop_function.name, early_function.name] == ["attend_0", "attend_0_before_loop"]
    assert list(early_function.input) == ["memory"]
    assert list(early_function.output) == list(loop_function.input[2:]) == ["w", "total"]
    assert list_operators(early_function) == ["Add", "Tanh", "ReduceSum"]
    assert list_operators(loop_function) == ["MatMul", "ReduceSum", "Greater", "If"]


@pytest.mark.parametrize(
    ("lines", "ops"),
    [
        ("b = keras_attn.attend_0 (a, m) a_after = keras_attn.attend_0 (b, m)", ["Loop"]),
        ("c = keras_attn.attend_0 (m, m) a_after = Add (a, c)", ["attend_0", "Loop"]),
    ],
    ids=["called twice", "invariant call"],
)
def test_function_called_twice_or_invariant_is_not_split(lines, ops):
    model = hoist(CALL.replace("a_after = keras_attn.attend_0 (a, m)", lines))
    assert list_operators(model.graph) == ops
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
    model = hoist(NESTED.replace("twice = Mul (m, two)", lines), counts=())
    assert op in list_operators(get_loop_body(get_loop_body(model.graph)))


def test_two_bodies_may_use_the_same_names():
    """Only values with a unique name can move to the common graph, since the others differ between the bodies."""
    model = hoist("""
    <ir_version: 8, opset_import: ["" : 18]>
    two_loops (float[2, 2] x, float[2, 2] m, int64 count) => (float[2, 2] z)
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
    assert list_operators(model.graph) == ["Mul", "Loop", "Loop"]
    assert [tensor.name for tensor in model.graph.initializer] == ["own"]
    assert numpy_helper.to_array(model.graph.initializer[0]) == 5


# `w` is unchanged state of both loops and an output of the model; `a` and `b` are changed state
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


def capture_unchanged_state(text):
    """Return the model with unchanged state captured, after a check that its outputs stay equal."""
    inputs = [{"x": X, "w": M, "count": np.array(count, "int64")} for count in (0, 1, 2, 3)]
    return apply_change(parser.parse_model(text), lambda model: remove_passthrough_state(TracedModel(model)), *inputs)


def test_unchanged_state_of_nested_loops_is_captured():
    model = capture_unchanged_state(STATES)
    (outer,) = [node for node in model.graph.node if node.op_type == "Loop"]
    (inner,) = [node for node in outer.attribute[0].g.node if node.op_type == "Loop"]
    assert [list(node.input) for node in (outer, inner)] == [["count", "yes", "x"], ["count", "yes", "a"]]
    assert [list(node.output) for node in (outer, inner)] == [["y"], ["a_after"]]
    assert [node.op_type for node in inner.attribute[0].g.node] == ["Identity", "MatMul"]
    assert list(inner.attribute[0].g.node[1].input) == ["b", "w"]


def test_swapped_states_stay_in_the_loop():
    """Each step swaps the states, so that they have their first values only after an even number of steps."""
    model = capture_unchanged_state("""
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


def test_state_that_becomes_another_state_stays_in_the_loop():
    """Each step sets `a` to `b`, and `b` to the constant `c`."""
    model = capture_unchanged_state("""
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


# as tf2onnx writes recurrent layers: the step number and a separate counter are compared with the length as floats
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
CONDITIONS = {
    "something else": ("go_on = And (first, second)", "third = Less (b, end) go_on = And (first, third)"),
    "either": ("go_on = And (first, second)", "go_on = Or (first, second)"),
    "another length": ("second = Less (counter, end_again)", "half = Mul (end, x) second = Less (counter, half)"),
    "another comparison": ("second = Less (counter, end_again)", "second = LessOrEqual (counter, end_again)"),
    "a counter of twos": ("later = Add (time, one)", "two = Add (one, one) later = Add (time, two)"),
    "a counter that doubles": ("later = Add (time, one)", "later = Add (time, time)"),
    "a counter from one": ("(count, yes, zero, x)", "(count, yes, one, x)"),
}


def list_remaining(*replacements, lengths=(0, 1, 3, 8)):
    """Return the operators of the loop body after the pass, with lines of the model replaced."""
    text = COUNTED
    for line, replacement in replacements:
        assert text.count(line) == 1
        text = text.replace(line, replacement)

    def change(model):
        remove_conditions(TracedModel(model))
        remove_dead_nodes(model.graph)

    inputs = [{"length": np.array(length, "int32"), "x": np.array(0.4, "float32")} for length in lengths]
    return [node.op_type for node in get_loop_body(apply_change(parser.parse_model(text), change, *inputs).graph).node]


def test_condition_that_repeats_the_trip_count_is_removed():
    assert sorted(list_remaining()) == ["Add", "Add", "Identity"]
    # a counter before its increment
    assert "Less" not in list_remaining(("counter = Cast <to = 1> (later)", "counter = Cast <to = 1> (time)"))


@pytest.mark.parametrize(("line", "replacement"), CONDITIONS.values(), ids=CONDITIONS)
def test_condition_that_may_end_a_loop_early_stays(line, replacement):
    assert "Cast" in list_remaining((line, replacement))


NO_COUNT = ("count = Cast <to = 7> (length)", "")


def test_loop_without_a_trip_count_keeps_its_condition():
    operators = list_remaining(("(count, yes, zero, x)", "(, yes, zero, x)"), NO_COUNT, lengths=[1])
    assert operators.count("Less") == 2


@pytest.mark.parametrize(("limit", "has_condition"), [(3, False), (2, True)])
def test_constant_trip_count_is_compared_by_value(limit, has_condition):
    constants = ("int32 one = {1}", f"int32 one = {{1}}, int64 count = {{3}}, float three = {{{limit}}}")
    operators = list_remaining(constants, NO_COUNT, ("end_again)", "three)"), ("number, end)", "number, three)"))
    assert ("Less" in operators) == has_condition


def test_recurrent_layers_have_no_condition():
    layer, rng = keras.layers.GRU(4, return_sequences=True), np.random.default_rng(0)
    x, mask = rng.normal(size=(2, 5, 3)).astype("float32"), np.array([[True] * 5, [True] * 3 + [False] * 2])
    layer(x)
    layer.supports_jit = False
    converted = ConvertedFunction(lambda x, mask: layer(x, mask=mask), x=x, mask=mask)
    (loop,) = [node for node in converted.model.graph.node if node.op_type == "Loop"]
    assert "Less" not in {node.op_type for node in next(iter_subgraphs(loop)).node}
    converted.assert_parity()
    converted.assert_parity(x=x[:, :1], mask=mask[:, :1])
