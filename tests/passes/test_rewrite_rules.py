"""Rewrite rules: a chain of operators from tf2onnx becomes one operator only on an exact match."""

import logging
from collections import Counter
from itertools import permutations

import keras
import numpy as np
import onnx
import pytest
import traced_models
from keras import layers, ops
from onnx import helper, numpy_helper, parser
from onnx_text import build_small_graph
from traced_models import count_optimized_operators, run_model

from keras_attn_export import export_model
from keras_attn_export._onnx.external_data import add_weights
from keras_attn_export._onnx.traced_model import TracedModel
from keras_attn_export._passes.passes import run_passes
from keras_attn_export._passes.rewrite_rules import apply_rules

RNG = np.random.default_rng(0)
DENSE, DENSE_AND_BIAS = {"MatMul": 1}, {"MatMul": 1, "Add": 1}
NORMALIZED = {"ReduceMean": 1, "Sub": 1, "LayerNormalization": 1}
BY_SQUARES = {"Pow": 1, "ReduceMean": 1, "Add": 1, "Sqrt": 1, "Div": 1, "Mul": 1}  # RMS, as onnxruntime fuses it
FUSED = {"SimplifiedLayerNormalization": 1}


def traced(outputs, folder, *, shape=(None, 6)):
    """The model of some outputs of an input, with weights that are not as they were initialized, and its graph."""
    x = keras.Input(shape, name="x")
    model = keras.Model(x, {"out": outputs(x)})
    model.set_weights([RNG.uniform(0.5, 1.5, weight.shape) for weight in model.get_weights()])
    traced_model = traced_models.trace_model(model, folder)
    return model, add_weights(traced_model.model, traced_model.weights)


def operators(written):
    return Counter(node.op_type for node in written.graph.node)


def assert_same(model, written, magnitude=1, tolerance=2e-5):
    onnx.checker.check_model(written, full_check=True)
    inputs = RNG.standard_normal((8, *(size or 3 for size in model.inputs[0].shape[1:]))).astype("float32") * magnitude
    np.testing.assert_allclose(
        run_model(written, x=inputs)["out"], model(inputs)["out"], rtol=tolerance, atol=tolerance
    )


@keras.saving.register_keras_serializable(package="tests")
class OfGemma(layers.Layer):
    """As keras_hub's Gemma has it: the weight is what gamma is more than 1."""

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], name="scale")

    def call(self, x):
        mean = ops.mean(ops.power(x, 2), axis=-1, keepdims=True)
        return x * ops.rsqrt(mean + 1e-6) * (1 + self.scale)


@pytest.mark.parametrize(
    ("layer", "shape", "expected"),
    [
        (layers.Dense(4, use_bias=False), (None, 6), DENSE),
        (layers.Dense(4), (5, 6), DENSE_AND_BIAS),
        (layers.Dense(4), (None, 3, 6), DENSE_AND_BIAS),
        (layers.Dense(4, use_bias=False), (2, None, 3, 6), DENSE),
        (layers.LayerNormalization(), (6,), NORMALIZED),
        (layers.LayerNormalization(center=False), (None, 6), NORMALIZED),
        (layers.LayerNormalization(epsilon=1e-12), (4, None, 6), NORMALIZED),
    ],
)
def test_dense_and_normalization_layers_are_one_operator(layer, shape, expected, tmp_path):
    model, written = traced(layer, tmp_path, shape=shape)
    assert operators(written) == expected
    assert_same(model, written)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.RMSNormalization(), (6,)),
        (layers.RMSNormalization(epsilon=0.5), (5, 6)),
        (layers.RMSNormalization(), (None, 3, 6)),
        (OfGemma(), (None, 6)),
    ],
)
def test_rms_normalization_is_fused_by_onnxruntime(layer, shape, tmp_path):
    model, written = traced(layer, tmp_path, shape=shape)
    assert operators(written) == BY_SQUARES
    assert count_optimized_operators(written, tmp_path) == FUSED
    assert_same(model, written, 1e-3, 2e-6)


KERNEL = RNG.standard_normal((6, 4)).astype("float32")
OTHERS = {
    "two axes": (lambda x: ops.tensordot(x, KERNEL.reshape(2, 3, 4), axes=2), (None, 2, 3), {"Reshape": 2}),
    "an unknown last axis": (
        lambda x: ops.reshape(ops.matmul(ops.reshape(x, (-1, 6)), KERNEL), (-1, 5, 4)),
        (5, None),
        {},
    ),
}


@pytest.mark.parametrize(("outputs", "shape", "some"), OTHERS.values(), ids=OTHERS)
def test_other_products_keep_their_numbers(outputs, shape, some, tmp_path):
    model, written = traced(outputs, tmp_path, shape=shape)
    assert {op: operators(written)[op] for op in some} == some
    assert_same(model, written)


def test_normalization_is_accurate_beside_a_large_mean(tmp_path):
    """The operator itself gets a mean of 0: some releases of onnxruntime lose all digits of the variance otherwise."""
    model, written = traced(layers.LayerNormalization(), tmp_path)
    (node,) = (node for node in written.graph.node if node.op_type == "LayerNormalization")
    assert "Sub" in {producer.op_type for producer in written.graph.node if node.input[0] in producer.output}
    inputs = 1000 + RNG.standard_normal((2, 5, 6)).astype("float32")
    exact = inputs.astype("float64") - inputs.mean(-1, keepdims=True, dtype="float64")
    exact /= np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-3)
    gamma, beta = model.get_weights()
    np.testing.assert_allclose(run_model(written, x=inputs)["out"], exact * gamma + beta, rtol=2e-3, atol=2e-3)


# As tf2onnx writes them: (operator, inputs, output) each.
LAYER_NORMALIZATION = [
    ("ReduceMean", "x axes", "mean"),
    ("Sub", "x mean", "gap"),
    ("Mul", "gap gap", "square"),
    ("ReduceMean", "square axes", "variance"),
    ("Add", "variance epsilon", "positive"),
    ("Sqrt", "positive", "root"),
    ("Reciprocal", "root", "inverse"),
    ("Mul", "inverse gamma", "factor"),
    ("Mul", "x factor", "scaled"),
    ("Neg", "mean", "negative"),
    ("Mul", "negative factor", "product"),
    ("Add", "product beta", "shift"),
    ("Add", "scaled shift", "y"),
]
RMS = [
    ("Mul", "x x", "square"),
    ("ReduceMean", "square axes", "mean"),
    ("Add", "epsilon mean", "positive"),
    ("Sqrt", "positive", "root"),
    ("Reciprocal", "root", "inverse"),
    ("Mul", "inverse gamma", "factor"),
    ("Mul", "x factor", "y"),
]
CONSTANTS = {
    "axes": np.array([-1]),
    "first": np.array([1]),
    "two": np.float32(2),
    "three": np.float32(3),
    "epsilon": np.float32(1e-3),
    "gamma": RNG.uniform(0.5, 1.5, (1, 1, 6)).astype("float32"),
    "beta": RNG.standard_normal((1, 1, 6)).astype("float32"),
    "square_matrix": RNG.standard_normal((5, 6)).astype("float32"),
    "several": np.float32([1e-3] * 6),
    "one": np.float32([1.5]),
    "long_row": RNG.standard_normal((1, 1, 1, 6)).astype("float32"),
}
LIKE_LAYER_NORMALIZATION = {
    "the mean of another tensor": ("ReduceMean", "z axes", "mean"),
    "another tensor scaled": ("Mul", "z factor", "scaled"),
    "the gap of another tensor": ("Sub", "z mean", "gap"),
    "a product of two gaps": ("Mul", "gap z", "square"),
    "the mean along another axis": ("ReduceMean", "x first", "mean"),
    "the variance along another axis": ("ReduceMean", "square first", "variance"),
    "an epsilon for each place": ("Add", "variance several", "positive"),
    "a gamma for each row": ("Mul", "inverse square_matrix", "factor"),
    "a gamma of one number": ("Mul", "inverse one", "factor"),
    "a beta of more axes": ("Add", "product long_row", "shift"),
    "a computed gamma": ("Mul", "inverse z", "factor"),
    "another factor of the mean": ("Mul", "negative inverse", "product"),
    "the mean with its sign": ("Abs", "mean", "negative"),
    "the square root": ("Sqrt", "root", "inverse"),
}
LIKE_RMS = {
    "another power": ("Pow", "x three", "square"),
    "a power for each place": ("Pow", "x gamma", "square"),
    "the product of two tensors": ("Mul", "x z", "square"),
    "the square of another tensor": ("Mul", "z z", "square"),
    "another tensor scaled": ("Mul", "z factor", "y"),
    "the mean along another axis": ("ReduceMean", "square first", "mean"),
    "the sum": ("ReduceSum", "square axes", "mean"),
    "no epsilon": ("Add", "mean z", "positive"),
    "an absolute value": ("Abs", "positive", "root"),
    "a gamma of more axes": ("Mul", "inverse long_row", "factor"),
    "a sum": ("Add", "x factor", "y"),
}
SAME_RMS = {
    f"{a} ({b} {c})": [("Mul", f"{b} {c}", "factor"), ("Mul", f"{a} factor", "y")]
    for a, b, c in permutations(("x", "inverse", "gamma"))
} | {"a sum and a power": [("Add", "mean epsilon", "positive"), ("Pow", "x two", "square")]}


def build_graph(lines, *replacements, outputs=("y",)):
    """The graph of these lines, with others in the place of those that make the same."""
    of_output = {output: (op, takes) for op, takes, output in [*lines, *replacements]}
    nodes = " ".join(f"{output} = {op} ({', '.join(takes.split())})" for output, (op, takes) in of_output.items())
    results = ", ".join(f"float[{name}_0, 5, {name}_2] {name}" for name in outputs)
    model = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    normalization (float[batch, 5, 6] x, float[batch, 5, 6] z) => ({results}) {{ {nodes} }}
    """)
    constants = (numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items())
    model.graph.initializer.extend(constants)
    return model


def simplify_and_compare(written):
    inputs = {name: RNG.standard_normal((2, 5, 6)).astype("float32") for name in ("x", "z")}
    before = run_model(written, **inputs)
    apply_rules(TracedModel(written))
    after = run_model(written, **{value.name: inputs[value.name] for value in written.graph.input})
    for name, expected in before.items():
        np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("lines", "outputs", "expected"),
    [
        (LAYER_NORMALIZATION, ("y",), NORMALIZED),
        (LAYER_NORMALIZATION, ("y", "variance"), NORMALIZED | {"ReduceMean": 2, "Mul": 1}),
        (RMS, ("y", "mean"), BY_SQUARES | {"ReduceMean": 2, "Mul": 2}),
    ],
    ids=["layer", "layer and variance", "rms and mean"],
)
def test_normalization_is_simplified_and_other_outputs_are_still_computed(lines, outputs, expected):
    written = build_graph(lines, outputs=outputs)
    simplify_and_compare(written)
    assert operators(written) == expected
    if expected is NORMALIZED:
        assert {item.name for item in written.graph.initializer} == {"axes", "gamma/vector", "beta/vector"}


@pytest.mark.parametrize("replacements", SAME_RMS.values(), ids=SAME_RMS)
def test_rms_normalization_is_found_in_every_order(replacements, tmp_path):
    written = build_graph(RMS, *replacements)
    simplify_and_compare(written)
    assert operators(written) == BY_SQUARES
    assert count_optimized_operators(written, tmp_path) == FUSED


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(build_graph(lines, other), id=f"{kind}, {name}")
        for kind, lines, likes in (("layer", LAYER_NORMALIZATION, LIKE_LAYER_NORMALIZATION), ("rms", RMS, LIKE_RMS))
        for name, other in likes.items()
    ],
)
def test_other_graphs_stay(written):
    before = written.SerializeToString()
    apply_rules(TracedModel(written))
    assert written.SerializeToString() == before


def test_graphs_with_unknown_operators_are_simplified():
    written = build_graph(LAYER_NORMALIZATION)
    written.graph.node.append(helper.make_node("Other", ["y"], ["z_of_other"], domain="other"))
    apply_rules(TracedModel(written))
    assert operators(written)["LayerNormalization"] == 1


class Twice(layers.Layer):
    def build(self, shape):
        self.norm, self.dense = layers.LayerNormalization(name="norm"), layers.Dense(6, name="dense")
        self.rms = layers.RMSNormalization(name="rms")
        for layer in (self.norm, self.dense, self.rms):
            layer.build(shape)

    def call(self, x):
        body = lambda i, x: (i + 1, self.rms(self.dense(self.norm(x))) + x)  # noqa: E731
        return keras.ops.while_loop(lambda i, _: i < 2, body, (0, self.rms(x)))[1]


def test_loop_bodies_are_simplified(tmp_path):
    """Weights, a constant that is reshaped among them, are outside of the body that reads them."""
    model, written = traced(lambda x: Twice(name="twice")(x), tmp_path)
    (loop,) = [node for node in written.graph.node if node.op_type == "Loop"]
    (body,) = [item.g for item in loop.attribute if item.name == "body"]
    counts = Counter(node.op_type for node in body.node)
    assert counts["LayerNormalization"] == counts["MatMul"] == 1
    assert counts["Reshape"] == 0
    assert len(loop.input) == 4  # the number of steps and the tensor are its state
    for nodes in (written.graph.node, body.node):
        assert {"Pow", "Div"} <= {node.op_type for node in nodes}
        assert "Reciprocal" not in {node.op_type for node in nodes}
    assert_same(model, written)


MOVED, CLIPPED = "moved = Add (x, three)", "clipped = Clip (moved, zero, six)"
SCALED, DIVIDED = "y = Mul (sixth, clipped)", "y = Div (clipped, six)"
NUMBERS = {"three": 3, "zero": 0, "six": 6, "sixth": 1 / 6, "fifth": 0.2, "row": [3, 3, 3, 3]}
ENDS = [np.nan, np.inf, -np.inf, -3, 3, 0, -0.0, 1e-30, 1e38, -1e38, 2.5, -2.999]


def sigmoid_of(*nodes):
    text = " \n ".join(nodes)
    used = {name: np.float32(number) for name, number in NUMBERS.items() if name in text}
    return build_small_graph(text, **used)


@pytest.mark.parametrize("last", [SCALED, DIVIDED])
def test_hard_sigmoid_is_one_operator_at_every_value(last):
    model, x = sigmoid_of(MOVED, CLIPPED, last), np.float32(ENDS).reshape(3, 4)
    expected = run_model(model, x=x)["y"]
    apply_rules(TracedModel(model))
    assert [node.op_type for node in model.graph.node] == ["HardSigmoid"]
    np.testing.assert_allclose(run_model(model, x=x)["y"], expected, atol=1e-7)


@pytest.mark.parametrize(
    "nodes",
    [
        (MOVED, CLIPPED, "y = Mul (clipped, fifth)"),
        (MOVED, "clipped = Clip (moved, zero, three)", SCALED),
        (MOVED, "clipped = Clip (moved, zero)", SCALED),
        ("moved = Sub (x, three)", CLIPPED, SCALED),
        ("moved = Add (x, row)", CLIPPED, SCALED),
    ],
)
def test_other_clipped_sums_stay(nodes):
    model = sigmoid_of(*nodes)
    apply_rules(TracedModel(model))
    assert "HardSigmoid" not in {node.op_type for node in model.graph.node}


@pytest.mark.slow
def test_hard_swish_is_fused_into_the_convolution_before(tmp_path):
    x = keras.Input((8, 8, 16), name="x")
    hidden = layers.Conv2D(16, 1)(x)
    model = keras.Model(x, {"out": layers.Conv2D(16, 1)(hidden * keras.ops.hard_sigmoid(hidden))})
    traced_model = traced_models.trace_model(model, tmp_path)
    written = add_weights(traced_model.model, traced_model.weights)
    assert "HardSigmoid" in Counter(node.op_type for node in written.graph.node)
    assert "HardSigmoid" not in count_optimized_operators(written, tmp_path)
    array = np.random.default_rng(0).standard_normal((2, 8, 8, 16)).astype("float32") * 4
    np.testing.assert_allclose(run_model(written, x=array)["out"], model(array)["out"], atol=1e-5)


PLAIN = "masked = Add (x, mask) \n y = Softmax (masked)"
RESHAPED = "masked = Add (mask, x) \n again = Reshape (masked, same) \n y = Softmax (again)"
MASK, SAME = np.float32([0, -100, -90, 0]), np.array([-1, 4])
VALUES = np.float32([[0, 0, 0, 0], [0, 20, -20, 1], [np.nan, 0, 0, 0], [-np.inf, 0, 1, -np.inf], [-100, 0, -5, -100]])


def masked_softmax(nodes, mask=MASK):
    return build_small_graph(nodes, mask=mask, **({"same": SAME} if "same" in nodes else {}))


def names_of(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("nodes", [PLAIN, RESHAPED])
def test_denormal_weights_become_zeros(nodes):
    model = masked_softmax(nodes)
    before = run_model(model, x=VALUES)["y"]
    apply_rules(TracedModel(model))
    assert names_of(model)[-3:] == ["Softmax", "Less", "Where"]
    after = run_model(model, x=VALUES)["y"]
    np.testing.assert_array_equal(after, np.where(before < np.finfo("float32").tiny, 0, before))
    assert after[0, 1] == 0 < after[1, 1]
    assert np.isnan(after[2]).all()


@pytest.mark.parametrize(
    ("nodes", "mask"),
    [
        (PLAIN, np.float32([0, -1e9, -np.inf, 0])),
        (PLAIN, np.float32([0, -5, 3, 0])),
        ("masked = Mul (x, mask) \n y = Softmax (masked)", MASK),
        ("y = Add (x, mask)", MASK),
    ],
)
def test_softmax_without_such_a_mask_stays(nodes, mask):
    model = masked_softmax(nodes, mask)
    apply_rules(TracedModel(model))
    assert "Where" not in names_of(model)


@pytest.mark.slow
def test_attention_with_denormal_weights_is_not_fused(tmp_path):
    """The operator would multiply by what it leaves."""
    x, mask = keras.Input((4, 6), name="x"), np.float32([[0, -100, 0, -100]] * 4)
    scores = x @ keras.ops.transpose(x, (0, 2, 1)) + mask
    bundle = export_model(keras.Model(x, keras.ops.softmax(scores) @ x), tmp_path / "bundle")
    assert names_of(onnx.load(bundle.path / "model.onnx"))[-4:] == ["Softmax", "Less", "Where", "MatMul"]


PRODUCT = "rows = Reshape (x, target) \n product = MatMul (rows, kernel) \n y = Reshape (product, pairs)"
NEAR_MISSES = {
    "tensordot": (
        lambda: build_small_graph(
            PRODUCT, kernel=np.eye(4, dtype="float32"), target=np.array([-1, 4]), pairs=np.array([-1, 2])
        ),
        "the output shape is not the input shape with `units` as last size",
    ),
    "layer normalization": (
        lambda: build_graph(LAYER_NORMALIZATION, LIKE_LAYER_NORMALIZATION["the square root"]),
        "`inverse` is not the output of `Reciprocal` with 1 inputs",
    ),
    "RMS normalization": (lambda: build_graph(RMS, LIKE_RMS["another power"]), "the exponent is not 2"),
    "hard sigmoid": (lambda: sigmoid_of(MOVED, CLIPPED, "y = Mul (clipped, fifth)"), "the clipped sum is not divided"),
    "denormal attention weights": (lambda: masked_softmax(PLAIN, MASK / 100), "no float32 constant between -125 and"),
}


@pytest.mark.parametrize(("model", "reason"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_miss_logs_rule_and_reason(model, reason, caplog, request):
    traced = TracedModel(model())
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        assert not run_passes(traced, [apply_rules])
    node = traced.model.graph.node[-1].name
    assert f"Rule {request.node.callspec.id}: no match at node {node}: {reason}" in caplog.text
    assert "Pass apply_rules: no change" in caplog.messages


def test_complete_match_logs_no_reason(caplog):
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        assert run_passes(TracedModel(sigmoid_of(MOVED, CLIPPED, SCALED)), [apply_rules])
    assert caplog.messages == ["Pass apply_rules: changed the graph"]
