"""What a loop only hands on is no state of it: its body reads it where it is."""

import numpy as np
from onnx import parser
from traced_models import changed, run

from keras_attn_export._graphs.loop_state import capture_unchanged

X, W = np.array([[1, 2], [3, 4]], "float32"), np.array([[0.5, -1], [2, 0.25]], "float32")

# `w` goes through both loops and is an output of the model; the inner one changes what is state of both
NESTED = """
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
    """The graph afterwards, which gives what it gave."""
    inputs = [{"x": X, "w": W, "count": np.array(count, "int64")} for count in (0, 1, 2, 3)]
    return changed(parser.parse_model(text), lambda model: capture_unchanged(model.graph), *inputs)


def test_unchanged_state_of_nested_loops_is_captured():
    model = captured(NESTED)
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
    np.testing.assert_array_equal(run(model, x=X, w=W, count=np.array(3, "int64"))["y"], W)


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
