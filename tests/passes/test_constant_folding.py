"""Constant folding: nodes that depend on one weight only are computed at export, also in nested branches."""

import numpy as np
import pytest
from onnx import parser
from traced_models import apply_change, run_model

from keras_attn_export._onnx.external_data import add_weights
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._onnx.traversal import iter_nodes
from keras_attn_export._passes.constant_folding import fold_subgraphs, fold_weights

WEIGHT = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
X = np.random.default_rng(1).standard_normal((3, 4)).astype("float32")


def parse_graph(lines, outputs="float[k, l] y"):
    return parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    folded (float[n, 4] x, float[4, 6] w) => ({outputs})
    <int64[2] shape = {{0, -1}}, int64[2] axes = {{0, 2}}>
    {{ {lines} }}
    """)


def fold(model):
    """Fold constants of a model in place, and return its weights."""
    traced = TracedModel(model, weights={"w": WEIGHT})
    assert fold_weights(traced)
    return traced.weights


def run(model, weights=None):
    return run_model(add_weights(model, weights or {"w": WEIGHT}), x=X)


GRAPHS = {
    "transposed twice": "t = Transpose <perm = [1, 0]> (w) laid_out = Transpose (t)",
    "reshaped": "laid_out = Reshape (w, shape)",
    "squeezed": "u = Unsqueeze (w, axes) laid_out = Squeeze (u, axes)",
    "its shape": "s = Shape (w) laid_out = Reshape (w, s)",
}


@pytest.mark.parametrize("lines", GRAPHS.values(), ids=GRAPHS)
def test_layout_of_a_weight_is_folded(lines):
    model = parse_graph(f"{lines} y = MatMul (x, laid_out)")
    expected = run(model)["y"]
    weights = fold(model)
    assert [node.op_type for node in model.graph.node] == ["MatMul"]
    assert list(weights) == ["w"]
    assert {value.name for value in model.graph.input} == {"x", "w"}
    assert not model.graph.initializer  # no node reads the constants
    np.testing.assert_array_equal(run(model, weights)["y"], expected)


def test_each_layout_of_a_weight_is_stored():
    model = parse_graph("t = Transpose (w) a = MatMul (x, w) y = MatMul (a, t)")
    expected = run(model)["y"]
    weights = fold(model)
    assert {name: array.shape for name, array in weights.items()} == {"w": (4, 6), "t": (6, 4)}
    np.testing.assert_array_equal(run(model, weights)["y"], expected)
    model = parse_graph("y = Transpose (w) z = MatMul (x, w)", "float[6, 4] y, float[k, l] z")
    weights = fold(model)
    np.testing.assert_array_equal(run(model, weights)["y"], WEIGHT.T)


NESTED = """
<ir_version: 8, opset_import: ["" : 18]>
nested (float[n, 4] x, bool once, bool twice) => (float[k, l] y) <float[1, 4] w = {1, 2, 3, 4}>
{
    y = If (once) <then_branch = yes () => (float[a, b] first) {
        first = If (twice) <then_branch = both () => (float[c, d] second) {
            laid_out = Transpose (w) second = MatMul (x, laid_out)
        }, else_branch = one () => (float[e, f] third) { third = Neg (x) }>
    }, else_branch = no () => (float[g, h] fourth) { fourth = Abs (x) }>
}
"""


def test_constants_in_nested_branches_are_folded():
    inputs = [{"x": X, "once": np.array(is_true), "twice": np.array(is_true)} for is_true in (True, False)]
    folded_model = apply_change(parser.parse_model(NESTED), lambda model: fold_subgraphs(TracedModel(model)), *inputs)
    assert "Transpose" not in {node.op_type for node in iter_nodes(folded_model.graph)}
