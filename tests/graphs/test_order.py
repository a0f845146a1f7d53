"""Nodes, constants and weights in an order that follows from the graph alone."""

import itertools

import numpy as np
from onnx import parser

from keras_attn_export._graphs.edits import refill
from keras_attn_export._graphs.order import in_order, put_in_order

MODEL = parser.parse_model("""
<ir_version: 8, opset_import: ["" : 18]>
g (float[n] x, bool b, float[2] v, float[2] w) => (float[n] y, float[n] z)
<float one = {1}, float two = {2}, float unread = {3}>
{
    c = Mul (x, two)
    a = Add (x, one)
    z = Neg (a)
    lost = Neg (x)
    y = If (b) <
        then_branch = t () => (float[n] r) { q = Neg (a) p = Add (q, two) r = Mul (p, c) },
        else_branch = e () => (float[n] s) { s = Neg (c) }
    >
}
""")


def test_nodes_of_any_order_become_one_order():
    """`lost` goes, and what `y` needs comes first, in the order in which the branches read it."""
    for nodes in itertools.permutations(MODEL.graph.node):
        model = type(MODEL).FromString(MODEL.SerializeToString())
        refill(model.graph.node, nodes)
        refill(model.graph.initializer, reversed(MODEL.graph.initializer))
        branch = next(each for node in model.graph.node for each in node.attribute if each.name == "then_branch").g
        refill(branch.node, reversed(branch.node))
        put_in_order(model.graph)
        assert [node.output[0] for node in model.graph.node] == ["a", "c", "y", "z"]
        assert [node.output[0] for node in model.graph.node[2].attribute[0].g.node] == ["q", "p", "r"]
        assert [each.name for each in model.graph.initializer] == ["one", "two"]


def test_loop_and_body_may_share_an_output_name():
    text = """
    <ir_version: 8, opset_import: ["" : 18]>
    g (float[n] x, int64 count, bool go) => (float[n] y)
    {
        y = Loop (count, go, x) <body = b (int64 i, bool on, float[n] z) => (bool off, float[n] y) {
            off = Identity (on)
            y = Neg (z)
        }>
    }
    """
    model = parser.parse_model(text)
    put_in_order(model.graph)
    (loop,) = model.graph.node
    assert [node.output[0] for node in loop.attribute[0].g.node] == ["off", "y"]


def test_weights_follow_the_order_of_the_graph():
    weights = dict.fromkeys(("w", "two", "other", "another", "one"), np.zeros(2))
    model = type(MODEL).FromString(MODEL.SerializeToString())
    put_in_order(model.graph)
    assert list(in_order(weights, model.graph)) == ["one", "two", "another", "other", "w"]
