"""Finished ONNX models: opset, IR version, axis names, full check, and an order that depends on the graph only."""

import itertools

import numpy as np
import pytest
from onnx import helper, parser

from keras_attn_export import ExportError
from keras_attn_export._onnx.graph_edits import replace_items
from keras_attn_export._onnx.model_files import save_model
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._options import OPSETS
from keras_attn_export._passes.canonical_order import sort_reachable_nodes, sort_weights
from keras_attn_export._passes.finalize import finalize


def parse_small_model():
    return parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 18]> g (float[unk__1, 3] x) => (float[unk__2, 3] y) { y = Relu (x) }'
    )


@pytest.mark.parametrize("opset", OPSETS)
def test_file_has_the_opset_its_ir_version_and_named_axes(opset):
    finished = finalize(TracedModel(parse_small_model()), {"x": ("batch", 3)}, {"y": ("batch", 3)}, opset).model
    assert finished.opset_import[0].version == opset
    assert finished.ir_version == helper.find_min_ir_version_for(list(finished.opset_import))
    assert [dim.dim_param for dim in finished.graph.output[0].type.tensor_type.shape.dim] == ["batch", ""]


def test_input_missing_in_the_graph_is_an_error():
    with pytest.raises(ExportError, match=r"has \['x'\], but the model has \['z'\]"):
        finalize(TracedModel(parse_small_model()), {"z": ("batch", 3)}, {"y": ("batch", 3)}, 18)


def test_invalid_graph_is_an_error(tmp_path):
    model = parse_small_model()
    model.graph.node[0].input[0] = "nowhere"
    with pytest.raises(ExportError, match="full check"):
        save_model(TracedModel(model), tmp_path / "model.onnx")


BRANCHED_MODEL = parser.parse_model("""
<ir_version: 8, opset_import: ["" : 18]>
g (float[n] x, bool b, float[2] v, float[2] w) => (float[n] y, float[n] z)
<float one = {1}, float two = {2}, float unread = {3}>
{
    c = Mul (x, two)
    a = Add (x, one)
    z = Neg (a)
    dead = Neg (x)
    y = If (b) <
        then_branch = t () => (float[n] r) { q = Neg (a) p = Add (q, two) r = Mul (p, c) },
        else_branch = e () => (float[n] s) { s = Neg (c) }
    >
}
""")


def test_order_of_nodes_does_not_depend_on_their_previous_order():
    """The dead node is removed; inputs of `y` come first, in the order in which the branches read them."""
    for nodes in itertools.permutations(BRANCHED_MODEL.graph.node):
        model = type(BRANCHED_MODEL).FromString(BRANCHED_MODEL.SerializeToString())
        replace_items(model.graph.node, nodes)
        replace_items(model.graph.initializer, reversed(BRANCHED_MODEL.graph.initializer))
        conditional = next(node for node in model.graph.node if node.op_type == "If")
        branch = next(attribute.g for attribute in conditional.attribute if attribute.name == "then_branch")
        replace_items(branch.node, reversed(branch.node))
        sort_reachable_nodes(TracedModel(model))
        assert [node.output[0] for node in model.graph.node] == ["a", "c", "y", "z"]
        assert [node.output[0] for node in model.graph.node[2].attribute[0].g.node] == ["q", "p", "r"]
        assert [tensor.name for tensor in model.graph.initializer] == ["one", "two"]


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
    sort_reachable_nodes(TracedModel(model))
    (loop,) = model.graph.node
    assert [node.output[0] for node in loop.attribute[0].g.node] == ["off", "y"]


def test_weights_follow_the_order_of_the_graph():
    weights = dict.fromkeys(("w", "two", "other", "another", "one"), np.zeros(2))
    model = type(BRANCHED_MODEL).FromString(BRANCHED_MODEL.SerializeToString())
    traced = TracedModel(model, weights=weights)
    sort_reachable_nodes(traced)
    sort_weights(traced)
    assert list(traced.weights) == ["one", "two", "another", "other", "w"]
