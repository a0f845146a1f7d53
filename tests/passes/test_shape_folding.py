"""Shape folding: nodes that compute known sizes are removed, and outputs stay equal."""

from collections import Counter

import numpy as np
import pytest
from onnx_text import build_small_graph
from traced_models import run_model

from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._passes.shape_folding import fold_shapes

AXES = {"x": ("batch", "length", 4), "z": ("batch", "length"), "other": ("batch", "others")}
INPUTS = "float[b, t, 4] x, float[c, s] z, float[d, r] other"
VECTORS = {"first": [0], "second": [1], "third": [2], "three": [3], "numbers": [2, 2], "rest": [-1], "all": [10**9]}
VECTORS |= {"wide": [3, 1, 1, 1], "minus": [-1], "lowest": [-(10**9)]}
CONSTANTS = {name: np.array(vector) for name, vector in VECTORS.items()} | {"from": np.int32(0), "by": np.int32(1)}
SHAPE = "shape = Shape (x) \n narrow = Cast <to = 6> (shape)"
LENGTH = f"{SHAPE} \n length = Slice (narrow, second, third, first) \n alone = Squeeze (length, first)"
POSITIONS = f"{LENGTH} \n positions = Range (from, alone, by) \n floats = Cast <to = 1> (positions)"
SPLIT_HEADS = f"{SHAPE} \n both = Slice (shape, first, third, first) \n target = Concat <axis = 0> (both, numbers)"
CONSTANTS = {name: np.array(array, getattr(array, "dtype", np.int64)) for name, array in CONSTANTS.items()}
SIZES = ((2, 3, 5), (1, 1, 1), (3, 1, 2), (1, 4, 4), (2, 0, 3))  # batch, length, length of `other`

FOLDED = {  # nodes, output, remaining operators
    "heads apart": (f"{SPLIT_HEADS} \n y = Reshape (x, target)", "float[b, t, e, f] y", {"Reshape": 1}),
    "the rest of a batch": (
        f"{LENGTH} \n wide_length = Cast <to = 7> (length) \n four = Slice (shape, third, three, first) \n"
        "target = Concat <axis = 0> (rest, wide_length, four) \n y = Reshape (x, target)",
        "float[b, t, e] y",
        {"Reshape": 1},
    ),
    "as many as an input has": (f"{POSITIONS} \n y = Add (z, floats)", "float[b, t] y", None),
    "repeated along no axis": (
        "shape = Shape (x) \n expanded = Expand (x, shape) \n y = Relu (expanded)",
        "float[b, t, 4] y",
        {"Relu": 1},
    ),
    "a slice of all": ("part = Slice (x, first, all, second) \n y = Relu (part)", "float[b, t, 4] y", {"Relu": 1}),
    "a slice up to the length of another input": (
        "shape = Shape (z) \n length = Slice (shape, second, third, first) \n"
        "part = Slice (x, first, length, second) \n y = Relu (part)",
        "float[b, t, 4] y",
        {"Relu": 1},
    ),
    "a known number": (
        "shape = Shape (x) \n four = Slice (shape, third, three, first) \n number = Cast <to = 1> (four) \n"
        "y = Mul (x, number)",
        "float[b, t, 4] y",
        {"Cast": 1, "Mul": 1},
    ),
}
NOT_FOLDED = {
    "another size": (
        "shape = Shape (other) \n others = Slice (shape, second, third, first) \n"
        "part = Slice (x, first, others, second) \n y = Relu (part)",
        "float[b, t, 4] y",
    ),
    "backwards": ("part = Slice (x, rest, lowest, second, minus) \n y = Relu (part)", "float[b, t, 4] y"),
    "from the second on": ("part = Slice (x, second, all, second) \n y = Relu (part)", "float[b, t, 4] y"),
    "repeated": ("more = Expand (x, wide) \n y = Relu (more)", "float[3, b, t, 4] y"),
    "a truth": (
        "shape = Shape (z) \n length = Slice (shape, second, third, first) \n truth = Cast <to = 9> (length) \n"
        "end = Cast <to = 7> (truth) \n part = Slice (x, first, end, second) \n y = Relu (part)",
        "float[b, t, 4] y",
    ),
}


def build_graph(nodes, output):
    constants = {name: array for name, array in CONSTANTS.items() if name in nodes}
    return build_small_graph(nodes, INPUTS, output, **constants)


def assert_equal_outputs(model, changed, all_sizes=SIZES):
    for batch, length, other_length in all_sizes:
        rng = np.random.default_rng(0)
        shapes = {"x": (batch, length, 4), "z": (batch, length), "other": (batch, other_length)}
        arrays = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
        (expected,), (output,) = (run_model(graph, **arrays).values() for graph in (model, changed))
        assert output.shape == expected.shape
        np.testing.assert_array_equal(output, expected)


def fold(model):
    changed = type(model).FromString(model.SerializeToString())
    assert fold_shapes(TracedModel(changed), AXES, {}) == (changed.graph.node != model.graph.node)
    return changed


def count_operators(model):
    return dict(Counter(node.op_type for node in model.graph.node))


@pytest.mark.parametrize(("nodes", "output", "remaining"), FOLDED.values(), ids=FOLDED)
def test_nodes_that_compute_known_sizes_are_removed(nodes, output, remaining):
    model = build_graph(nodes, output)
    changed = fold(model)
    # a reshape cannot infer the size -1 of an empty tensor
    assert_equal_outputs(model, changed, SIZES[:-1] if "rest" in nodes else SIZES)
    if remaining is not None:
        assert count_operators(changed) == remaining


@pytest.mark.parametrize(("nodes", "output"), NOT_FOLDED.values(), ids=NOT_FOLDED)
def test_nodes_that_compute_unknown_sizes_stay(nodes, output):
    model = build_graph(nodes, output)
    changed = fold(model)
    assert_equal_outputs(model, changed)
    assert changed.graph.node[-1].input[0] == model.graph.node[-1].input[0]  # its shape may differ from that of `x`


def test_sizes_that_are_outputs_keep_their_name():
    model = build_graph("shape = Shape (z) \n y = Slice (shape, second, third, first)", "int64[1] y")
    changed = fold(model)
    assert [node.output[0] for node in changed.graph.node] == ["shape", "y"]
    assert_equal_outputs(model, changed)
