"""Passes that simplify the bodies of loops.

`hoist_invariants` moves invariant nodes before the loop. `remove_passthrough_state` removes loop state that the body
returns unchanged. `remove_conditions` removes conditions that only compare the step number with the trip count.
"""

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

# In the inner loop, `twice` depends only on inputs of the model. `sums` depends also on `a`, the outer loop's state.
# `negative` is invariant too. It stays in the outer body, because it is an output of this body: `scanned` has the
# `negative` of each outer step. `yes` is the condition that starts both loops.
NESTED = """
<ir_version: 8, opset_import: ["" : 18]>
nested (float[n, 2] x, float[2, 2] m, int64 count) => (float[n, 2] y, float[k, 2, 2] scanned)
{
    yes = Constant <value = bool {1}> ()
    y, scanned = Loop <body = outer (int64 i, bool outer_cond_in, float[n, 2] a)
        => (bool outer_cond_out, float[n, 2] a_after, float[2, 2] negative)
    {
        outer_cond_out = Identity (outer_cond_in)
        negative = Neg (m)
        a_after = Loop <body = inner (int64 j, bool inner_cond_in, float[n, 2] b)
            => (bool inner_cond_out, float[n, 2] b_after)
        {
            inner_cond_out = Identity (inner_cond_in)
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

# `shifted`, `w` and `total` are invariant. A branch of `If` reads `total`, which is computed before the
# loop. So the function that runs before the loop must return `total`, although no other node of the loop reads it.
CALL = """
<ir_version: 8, opset_import: ["" : 18, "keras_attn" : 1]>
called (float[n, 2] x, float[2, 2] m, int64 count) => (float[n, 2] y)
{
    yes = Constant <value = bool {1}> ()
    y = Loop <body = outer (int64 i, bool cond_in, float[n, 2] a) => (bool cond_out, float[n, 2] a_after)
    {
        cond_out = Identity (cond_in)
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
    """Hoist the invariant nodes of a model, check that its outputs stay equal, and return it."""
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
    call_before_loop, loop = (node for node in model.graph.node if node.op_type != "Constant")
    assert (call_before_loop.op_type, loop.op_type) == ("attend_0_before_loop", "Loop")
    call = get_loop_body(model.graph).node[-1]
    assert list(call.input) == ["a", "m", *call_before_loop.output]
    loop_function, function_before_loop = model.functions
    assert [loop_function.name, function_before_loop.name] == ["attend_0", "attend_0_before_loop"]
    assert list(function_before_loop.input) == ["memory"]
    assert list(function_before_loop.output) == list(loop_function.input[2:]) == ["w", "total"]
    assert list_operators(function_before_loop) == ["Add", "Tanh", "ReduceSum"]
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
    """A value can move to the outer graph only if its name is unique. `c` and `f` differ between the two bodies."""
    model = hoist("""
    <ir_version: 8, opset_import: ["" : 18]>
    two_loops (float[2, 2] x, float[2, 2] m, int64 count) => (float[2, 2] z)
    {
        yes = Constant <value = bool {1}> ()
        y = Loop <body = first_body (int64 i, bool cond_in, float[2, 2] a) => (bool cond_out, float[2, 2] b)
            <float factor = {2}, float unique_factor = {5}>
        {
            cond_out = Identity (cond_in)
            c = Mul (m, factor)
            d = Mul (m, unique_factor)
            f = Neg (m)
            b = Sum (a, c, d, f)
        }> (count, yes, x)
        z = Loop <body = second_body (int64 j, bool cond2_in, float[2, 2] a2) => (bool cond2_out, float[2, 2] b2)
            <float factor = {3}>
        {
            cond2_out = Identity (cond2_in)
            c = Mul (m, factor)
            f = Abs (m)
            b2 = Sum (a2, c, f)
        }> (count, yes, y)
    }
    """)
    assert list_operators(model.graph) == ["Mul", "Loop", "Loop"]
    assert [tensor.name for tensor in model.graph.initializer] == ["unique_factor"]
    assert numpy_helper.to_array(model.graph.initializer[0]) == 5


# Both loops return `w` unchanged, and it is an output of the model. The bodies change the states `a` and `b`.
STATES = """
<ir_version: 8, opset_import: ["" : 18]>
nested (float[n, 2] x, float[2, 2] w, int64 count) => (float[n, 2] y, float[2, 2] w_after)
{
    yes = Constant <value = bool {1}> ()
    y, w_after = Loop <body = outer (int64 i, bool outer_cond_in, float[n, 2] a, float[2, 2] w_in)
        => (bool outer_cond_out, float[n, 2] a_after, float[2, 2] w_out)
    {
        outer_cond_out = Identity (outer_cond_in)
        a_after, w_out = Loop <body = inner (int64 j, bool inner_cond_in, float[n, 2] b, float[2, 2] w_inner)
            => (bool inner_cond_out, float[n, 2] b_after, float[2, 2] w_inner_out)
        {
            inner_cond_out = Identity (inner_cond_in)
            b_after = MatMul (b, w_inner)
            w_copy = Identity (w_inner)
            w_inner_out = Identity (w_copy)
        }> (count, yes, a, w_in)
    }> (count, yes, x, w)
}
"""


def run_pass_on_passthrough_state(text):
    """Run `remove_passthrough_state` on a model, check that its outputs stay equal, and return the model.

    In this model the body of the loop reads the removed state from the outer graph.
    """
    inputs = [{"x": X, "w": M, "count": np.array(count, "int64")} for count in (0, 1, 2, 3)]
    return apply_change(parser.parse_model(text), lambda model: remove_passthrough_state(TracedModel(model)), *inputs)


def test_passthrough_state_of_nested_loops_is_read_from_the_outer_graph():
    model = run_pass_on_passthrough_state(STATES)
    (outer,) = [node for node in model.graph.node if node.op_type == "Loop"]
    (inner,) = [node for node in outer.attribute[0].g.node if node.op_type == "Loop"]
    assert [list(node.input) for node in (outer, inner)] == [["count", "yes", "x"], ["count", "yes", "a"]]
    assert [list(node.output) for node in (outer, inner)] == [["y"], ["a_after"]]
    assert [node.op_type for node in inner.attribute[0].g.node] == ["Identity", "MatMul"]
    assert list(inner.attribute[0].g.node[1].input) == ["b", "w"]


def test_swapped_states_stay_in_the_loop():
    """Each step swaps the states. So they have their first values only after an even number of steps."""
    model = run_pass_on_passthrough_state("""
        <ir_version: 8, opset_import: ["" : 18]>
        swapping (float[2, 2] x, float[2, 2] w, int64 count) => (float[2, 2] y, float[2, 2] z)
        {
            yes = Constant <value = bool {1}> ()
            y, z = Loop <body = body (int64 i, bool cond_in, float[2, 2] state_1, float[2, 2] state_2)
                => (bool cond_out, float[2, 2] state_2_out, float[2, 2] state_1_out)
            {
                cond_out = Identity (cond_in)
                state_2_out = Identity (state_2)
                state_1_out = Identity (state_1)
            }> (count, yes, x, w)
        }
    """)
    np.testing.assert_array_equal(run_model(model, x=X, w=M, count=np.array(3, "int64"))["y"], M)


def test_state_that_becomes_another_state_stays_in_the_loop():
    """Each step sets `a` to `b`, and `b` to `c`, which never changes."""
    model = run_pass_on_passthrough_state("""
        <ir_version: 8, opset_import: ["" : 18]>
        shifting (float[2, 2] x, float[2, 2] w, int64 count) => (float[2, 2] y, float[2, 2] z)
        {
            yes = Constant <value = bool {1}> ()
            y, z, last = Loop <body = body (int64 i, bool cond_in, float[2, 2] a, float[2, 2] b, float[2, 2] c)
                => (bool cond_out, float[2, 2] b, float[2, 2] c, float[2, 2] c_out)
            {
                cond_out = Identity (cond_in)
                c_out = Identity (c)
            }> (count, yes, x, x, w)
        }
    """)
    assert len(model.graph.node[1].input) == 4


# tf2onnx writes recurrent layers in this way. The condition converts the step number and a separate counter, `time`, to
# floats and compares both with the length.
COUNTED_LOOP = """
<ir_version: 8, opset_import: ["" : 18]>
counted (int32 length, float x) => (float y)
<int32 zero = {0}, int32 one = {1}, bool yes = {1}>
{
    count = Cast <to = 7> (length)
    last, y = Loop <body = step (int64 i, bool cond_in, int32 time, float a)
        => (bool cond_out, int32 next_time, float b)
    {
        b = Add (a, a)
        next_time = Add (time, one)
        float_step = Cast <to = 1> (i)
        float_length = Cast <to = 1> (length)
        is_step_valid = Less (float_step, float_length)
        float_counter = Cast <to = 1> (next_time)
        float_length_2 = Cast <to = 1> (length)
        is_counter_valid = Less (float_counter, float_length_2)
        cond_out = And (is_step_valid, is_counter_valid)
    }> (count, yes, zero, x)
}
"""
STEP_AND_COUNTER = "cond_out = And (is_step_valid, is_counter_valid)"
COUNTER_CONDITION = "is_counter_valid = Less (float_counter, float_length_2)"
LINE_REPLACEMENTS = {
    "something else": (
        STEP_AND_COUNTER,
        "is_sum_valid = Less (b, float_length) cond_out = And (is_step_valid, is_sum_valid)",
    ),
    "either": (STEP_AND_COUNTER, "cond_out = Or (is_step_valid, is_counter_valid)"),
    "another length": (COUNTER_CONDITION, "half = Mul (float_length, x) is_counter_valid = Less (float_counter, half)"),
    "another comparison": (COUNTER_CONDITION, "is_counter_valid = LessOrEqual (float_counter, float_length_2)"),
    "a counter in steps of two": ("next_time = Add (time, one)", "two = Add (one, one) next_time = Add (time, two)"),
    "a counter that doubles": ("next_time = Add (time, one)", "next_time = Add (time, time)"),
    "a counter from one": ("(count, yes, zero, x)", "(count, yes, one, x)"),
}


def list_body_operators(*replacements, lengths=(0, 1, 3, 8)):
    """Return the operators that `remove_conditions` leaves in the loop body of `COUNTED_LOOP`.

    Each of `replacements` is a pair of a line and its replacement. They are applied before the pass. The pass must not
    change the outputs of the model.
    """
    text = COUNTED_LOOP
    for line, replacement in replacements:
        assert text.count(line) == 1
        text = text.replace(line, replacement)

    def change(model):
        remove_conditions(TracedModel(model))
        remove_dead_nodes(model.graph)

    inputs = [{"length": np.array(length, "int32"), "x": np.array(0.4, "float32")} for length in lengths]
    return [node.op_type for node in get_loop_body(apply_change(parser.parse_model(text), change, *inputs).graph).node]


def test_condition_that_repeats_the_trip_count_is_removed():
    assert sorted(list_body_operators()) == ["Add", "Add", "Identity"]
    # The condition may also compare the counter before its increment. It still repeats the trip count.
    line, replacement = (f"float_counter = Cast <to = 1> ({counter})" for counter in ("next_time", "time"))
    assert "Less" not in list_body_operators((line, replacement))


@pytest.mark.parametrize(("line", "replacement"), LINE_REPLACEMENTS.values(), ids=LINE_REPLACEMENTS)
def test_condition_that_may_end_a_loop_early_stays(line, replacement):
    assert "Cast" in list_body_operators((line, replacement))


COUNT_LINE_REMOVAL = ("count = Cast <to = 7> (length)", "")


def test_loop_without_a_trip_count_keeps_its_condition():
    operators = list_body_operators(("(count, yes, zero, x)", "(, yes, zero, x)"), COUNT_LINE_REMOVAL, lengths=[1])
    assert operators.count("Less") == 2


@pytest.mark.parametrize(("constant_length", "has_condition"), [(3, False), (2, True)])
def test_constant_trip_count_is_compared_by_value(constant_length, has_condition):
    """The trip count is 3. A condition that compares with 2 ends the loop earlier, so it stays."""
    constants = f"int32 one = {{1}}, int64 count = {{3}}, float constant_length = {{{constant_length}}}"
    operators = list_body_operators(
        ("int32 one = {1}", constants),
        COUNT_LINE_REMOVAL,
        ("float_length_2)", "constant_length)"),
        ("float_step, float_length)", "float_step, constant_length)"),
    )
    assert ("Less" in operators) == has_condition


def test_recurrent_layers_have_no_condition():
    layer, rng = keras.layers.GRU(4, return_sequences=True), np.random.default_rng(0)
    x, mask = rng.normal(size=(2, 5, 3)).astype("float32"), np.array([[True] * 5, [True] * 3 + [False] * 2])
    layer(x)
    layer.supports_jit = False
    converted_layer = ConvertedFunction(lambda x, mask: layer(x, mask=mask), x=x, mask=mask)
    (loop,) = [node for node in converted_layer.model.graph.node if node.op_type == "Loop"]
    assert "Less" not in {node.op_type for node in next(iter_subgraphs(loop)).node}
    converted_layer.assert_parity()
    converted_layer.assert_parity(x=x[:, :1], mask=mask[:, :1])
