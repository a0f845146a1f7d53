"""Rewrite rules: chains of operators from tf2onnx become one operator only on an exact match."""

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


def trace(layer, folder, *, shape=(None, 6)):
    """Return the Keras model of a layer with random weights, and its ONNX model."""
    x = keras.Input(shape, name="x")
    model = keras.Model(x, {"out": layer(x)})
    model.set_weights([RNG.uniform(0.5, 1.5, weight.shape) for weight in model.get_weights()])
    traced_model = traced_models.trace_model(model, folder)
    return model, add_weights(traced_model.model, traced_model.weights)


def count_operators(onnx_model):
    return Counter(node.op_type for node in onnx_model.graph.node)


def assert_equal_outputs(model, onnx_model, magnitude=1, tolerance=2e-5):
    onnx.checker.check_model(onnx_model, full_check=True)
    inputs = RNG.standard_normal((8, *(size or 3 for size in model.inputs[0].shape[1:]))).astype("float32") * magnitude
    output, expected = run_model(onnx_model, x=inputs)["out"], model(inputs)["out"]
    np.testing.assert_allclose(output, expected, rtol=tolerance, atol=tolerance)


@keras.saving.register_keras_serializable(package="tests")
class GemmaNormalization(layers.Layer):
    """RMS normalization of Gemma in keras_hub: the weight is gamma - 1."""

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
    model, onnx_model = trace(layer, tmp_path, shape=shape)
    assert count_operators(onnx_model) == expected
    assert_equal_outputs(model, onnx_model)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.RMSNormalization(), (6,)),
        (layers.RMSNormalization(epsilon=0.5), (5, 6)),
        (layers.RMSNormalization(), (None, 3, 6)),
        (GemmaNormalization(), (None, 6)),
    ],
)
def test_rms_normalization_is_fused_by_onnxruntime(layer, shape, tmp_path):
    model, onnx_model = trace(layer, tmp_path, shape=shape)
    assert count_operators(onnx_model) == BY_SQUARES
    assert count_optimized_operators(onnx_model, tmp_path) == FUSED
    assert_equal_outputs(model, onnx_model, 1e-3, 2e-6)


KERNEL = RNG.standard_normal((6, 4)).astype("float32")
OTHER_PRODUCTS = {
    "two axes": (lambda x: ops.tensordot(x, KERNEL.reshape(2, 3, 4), axes=2), (None, 2, 3), {"Reshape": 2}),
    "an unknown last axis": (
        lambda x: ops.reshape(ops.matmul(ops.reshape(x, (-1, 6)), KERNEL), (-1, 5, 4)),
        (5, None),
        {},
    ),
}


@pytest.mark.parametrize(("product", "shape", "operators"), OTHER_PRODUCTS.values(), ids=OTHER_PRODUCTS)
def test_other_products_keep_their_outputs(product, shape, operators, tmp_path):
    model, onnx_model = trace(product, tmp_path, shape=shape)
    counts = count_operators(onnx_model)
    assert {name: counts[name] for name in operators} == operators
    assert_equal_outputs(model, onnx_model)


def test_normalization_is_accurate_with_a_large_mean(tmp_path):
    """The mean is subtracted before the operator, or some releases of onnxruntime lose all digits of the variance."""
    model, onnx_model = trace(layers.LayerNormalization(), tmp_path)
    (node,) = (node for node in onnx_model.graph.node if node.op_type == "LayerNormalization")
    assert "Sub" in {producer.op_type for producer in onnx_model.graph.node if node.input[0] in producer.output}
    inputs = 1000 + RNG.standard_normal((2, 5, 6)).astype("float32")
    exact = inputs.astype("float64") - inputs.mean(-1, keepdims=True, dtype="float64")
    exact /= np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-3)
    gamma, beta = model.get_weights()
    np.testing.assert_allclose(run_model(onnx_model, x=inputs)["out"], exact * gamma + beta, rtol=2e-3, atol=2e-3)


# chains of tf2onnx, as rows of operator, inputs and output
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
SIMILAR_LAYER_NORM = {
    "the mean of another tensor": ("ReduceMean", "z axes", "mean"),
    "another tensor scaled": ("Mul", "z factor", "scaled"),
    "the gap of another tensor": ("Sub", "z mean", "gap"),
    "a product of two gaps": ("Mul", "gap z", "square"),
    "the mean along another axis": ("ReduceMean", "x first", "mean"),
    "the variance along another axis": ("ReduceMean", "square first", "variance"),
    "an epsilon for each feature": ("Add", "variance several", "positive"),
    "a gamma for each row": ("Mul", "inverse square_matrix", "factor"),
    "a gamma of one number": ("Mul", "inverse one", "factor"),
    "a beta of more axes": ("Add", "product long_row", "shift"),
    "a computed gamma": ("Mul", "inverse z", "factor"),
    "another factor of the mean": ("Mul", "negative inverse", "product"),
    "the mean with its sign": ("Abs", "mean", "negative"),
    "the square root": ("Sqrt", "root", "inverse"),
}
SIMILAR_RMS = {
    "another power": ("Pow", "x three", "square"),
    "a power for each feature": ("Pow", "x gamma", "square"),
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
EQUAL_RMS = {
    f"{a} ({b} {c})": [("Mul", f"{b} {c}", "factor"), ("Mul", f"{a} factor", "y")]
    for a, b, c in permutations(("x", "inverse", "gamma"))
} | {"a sum and a power": [("Add", "mean epsilon", "positive"), ("Pow", "x two", "square")]}


def build_graph(lines, *replacements, outputs=("y",)):
    """Return the graph of the lines; replacements replace the lines with the same output."""
    producers = {output: (op, inputs) for op, inputs, output in [*lines, *replacements]}
    nodes = " ".join(f"{output} = {op} ({', '.join(inputs.split())})" for output, (op, inputs) in producers.items())
    results = ", ".join(f"float[{name}_0, 5, {name}_2] {name}" for name in outputs)
    model = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    normalization (float[batch, 5, 6] x, float[batch, 5, 6] z) => ({results}) {{ {nodes} }}
    """)
    constants = (numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items())
    model.graph.initializer.extend(constants)
    return model


def simplify_and_compare(onnx_model):
    inputs = {name: RNG.standard_normal((2, 5, 6)).astype("float32") for name in ("x", "z")}
    expected = run_model(onnx_model, **inputs)
    apply_rules(TracedModel(onnx_model))
    outputs = run_model(onnx_model, **{value.name: inputs[value.name] for value in onnx_model.graph.input})
    for name, array in expected.items():
        np.testing.assert_allclose(outputs[name], array, rtol=1e-5, atol=1e-5)


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
    onnx_model = build_graph(lines, outputs=outputs)
    simplify_and_compare(onnx_model)
    assert count_operators(onnx_model) == expected
    if expected is NORMALIZED:
        assert {tensor.name for tensor in onnx_model.graph.initializer} == {"axes", "gamma/vector", "beta/vector"}


@pytest.mark.parametrize("replacements", EQUAL_RMS.values(), ids=EQUAL_RMS)
def test_rms_normalization_is_matched_in_every_order(replacements, tmp_path):
    onnx_model = build_graph(RMS, *replacements)
    simplify_and_compare(onnx_model)
    assert count_operators(onnx_model) == BY_SQUARES
    assert count_optimized_operators(onnx_model, tmp_path) == FUSED


@pytest.mark.parametrize(
    "onnx_model",
    [
        pytest.param(build_graph(lines, row), id=f"{kind}, {name}")
        for kind, lines, rows in (("layer", LAYER_NORMALIZATION, SIMILAR_LAYER_NORM), ("rms", RMS, SIMILAR_RMS))
        for name, row in rows.items()
    ],
)
def test_similar_graphs_stay_unchanged(onnx_model):
    content = onnx_model.SerializeToString()
    apply_rules(TracedModel(onnx_model))
    assert onnx_model.SerializeToString() == content


def test_graphs_with_unknown_operators_are_simplified():
    onnx_model = build_graph(LAYER_NORMALIZATION)
    onnx_model.graph.node.append(helper.make_node("Other", ["y"], ["z_of_other"], domain="other"))
    apply_rules(TracedModel(onnx_model))
    assert count_operators(onnx_model)["LayerNormalization"] == 1


class NormalizingLoop(layers.Layer):
    def build(self, shape):
        self.norm, self.dense = layers.LayerNormalization(name="norm"), layers.Dense(6, name="dense")
        self.rms = layers.RMSNormalization(name="rms")
        for layer in (self.norm, self.dense, self.rms):
            layer.build(shape)

    def call(self, x):
        body = lambda i, x: (i + 1, self.rms(self.dense(self.norm(x))) + x)  # noqa: E731
        return keras.ops.while_loop(lambda i, _: i < 2, body, (0, self.rms(x)))[1]


def test_loop_bodies_are_simplified(tmp_path):
    """Weights and a reshaped constant are outside of the body that reads them."""
    model, onnx_model = trace(lambda x: NormalizingLoop(name="twice")(x), tmp_path)
    (loop,) = [node for node in onnx_model.graph.node if node.op_type == "Loop"]
    (body,) = [attribute.g for attribute in loop.attribute if attribute.name == "body"]
    counts = Counter(node.op_type for node in body.node)
    assert counts["LayerNormalization"] == counts["MatMul"] == 1
    assert counts["Reshape"] == 0
    assert len(loop.input) == 4  # trip count, condition, and two states: step number and tensor
    for nodes in (onnx_model.graph.node, body.node):
        assert {"Pow", "Div"} <= {node.op_type for node in nodes}
        assert "Reciprocal" not in {node.op_type for node in nodes}
    assert_equal_outputs(model, onnx_model)


SUM, CLIPPED = "sum = Add (x, three)", "clipped = Clip (sum, zero, six)"
SCALED, DIVIDED = "y = Mul (sixth, clipped)", "y = Div (clipped, six)"
NUMBERS = {"three": 3, "zero": 0, "six": 6, "sixth": 1 / 6, "fifth": 0.2, "row": [3, 3, 3, 3]}
EDGE_VALUES = [np.nan, np.inf, -np.inf, -3, 3, 0, -0.0, 1e-30, 1e38, -1e38, 2.5, -2.999]


def build_sigmoid(*nodes):
    text = " \n ".join(nodes)
    constants = {name: np.float32(number) for name, number in NUMBERS.items() if name in text}
    return build_small_graph(text, **constants)


@pytest.mark.parametrize("last", [SCALED, DIVIDED])
def test_hard_sigmoid_is_one_operator_at_every_value(last):
    model, x = build_sigmoid(SUM, CLIPPED, last), np.float32(EDGE_VALUES).reshape(3, 4)
    expected = run_model(model, x=x)["y"]
    apply_rules(TracedModel(model))
    assert [node.op_type for node in model.graph.node] == ["HardSigmoid"]
    np.testing.assert_allclose(run_model(model, x=x)["y"], expected, atol=1e-7)


@pytest.mark.parametrize(
    "nodes",
    [
        (SUM, CLIPPED, "y = Mul (clipped, fifth)"),
        (SUM, "clipped = Clip (sum, zero, three)", SCALED),
        (SUM, "clipped = Clip (sum, zero)", SCALED),
        ("sum = Sub (x, three)", CLIPPED, SCALED),
        ("sum = Add (x, row)", CLIPPED, SCALED),
    ],
)
def test_other_clipped_sums_stay_unchanged(nodes):
    model = build_sigmoid(*nodes)
    apply_rules(TracedModel(model))
    assert "HardSigmoid" not in {node.op_type for node in model.graph.node}


@pytest.mark.slow
def test_hard_swish_is_fused_into_the_preceding_convolution(tmp_path):
    x = keras.Input((8, 8, 16), name="x")
    hidden = layers.Conv2D(16, 1)(x)
    model = keras.Model(x, {"out": layers.Conv2D(16, 1)(hidden * keras.ops.hard_sigmoid(hidden))})
    traced_model = traced_models.trace_model(model, tmp_path)
    onnx_model = add_weights(traced_model.model, traced_model.weights)
    assert "HardSigmoid" in count_operators(onnx_model)
    assert "HardSigmoid" not in count_optimized_operators(onnx_model, tmp_path)
    array = np.random.default_rng(0).standard_normal((2, 8, 8, 16)).astype("float32") * 4
    np.testing.assert_allclose(run_model(onnx_model, x=array)["out"], model(array)["out"], atol=1e-5)


MASKED = "masked = Add (x, mask) \n y = Softmax (masked)"
RESHAPED = "masked = Add (mask, x) \n rows = Reshape (masked, shape) \n y = Softmax (rows)"
MASK, SHAPE = np.float32([0, -100, -90, 0]), np.array([-1, 4])
VALUES = np.float32([[0, 0, 0, 0], [0, 20, -20, 1], [np.nan, 0, 0, 0], [-np.inf, 0, 1, -np.inf], [-100, 0, -5, -100]])


def build_softmax(nodes, mask=MASK):
    return build_small_graph(nodes, mask=mask, **({"shape": SHAPE} if "shape" in nodes else {}))


def list_operators(model):
    return [node.op_type for node in model.graph.node]


@pytest.mark.parametrize("nodes", [MASKED, RESHAPED])
def test_denormal_weights_become_zeros(nodes):
    model = build_softmax(nodes)
    weights = run_model(model, x=VALUES)["y"]
    apply_rules(TracedModel(model))
    assert list_operators(model)[-3:] == ["Softmax", "Less", "Where"]
    outputs = run_model(model, x=VALUES)["y"]
    np.testing.assert_array_equal(outputs, np.where(weights < np.finfo("float32").tiny, 0, weights))
    assert outputs[0, 1] == 0 < outputs[1, 1]
    assert np.isnan(outputs[2]).all()


@pytest.mark.parametrize(
    ("nodes", "mask"),
    [
        (MASKED, np.float32([0, -1e9, -np.inf, 0])),
        (MASKED, np.float32([0, -5, 3, 0])),
        ("masked = Mul (x, mask) \n y = Softmax (masked)", MASK),
        ("y = Add (x, mask)", MASK),
    ],
)
def test_softmax_without_denormal_weights_stays_unchanged(nodes, mask):
    model = build_softmax(nodes, mask)
    apply_rules(TracedModel(model))
    assert "Where" not in list_operators(model)


@pytest.mark.slow
def test_attention_with_denormal_weights_is_not_fused(tmp_path):
    """The attention operator would not flush denormal weights to zero."""
    x, mask = keras.Input((4, 6), name="x"), np.float32([[0, -100, 0, -100]] * 4)
    scores = x @ keras.ops.transpose(x, (0, 2, 1)) + mask
    bundle = export_model(keras.Model(x, keras.ops.softmax(scores) @ x), tmp_path / "bundle")
    assert list_operators(onnx.load(bundle.path / "model.onnx"))[-4:] == ["Softmax", "Less", "Where", "MatMul"]


PRODUCT = "rows = Reshape (x, target) \n product = MatMul (rows, kernel) \n y = Reshape (product, pairs)"
NEAR_MISSES = {
    "tensordot": (
        lambda: build_small_graph(
            PRODUCT, kernel=np.eye(4, dtype="float32"), target=np.array([-1, 4]), pairs=np.array([-1, 2])
        ),
        "the output shape is not the input shape with `units` as last size",
    ),
    "layer normalization": (
        lambda: build_graph(LAYER_NORMALIZATION, SIMILAR_LAYER_NORM["the square root"]),
        "`inverse` is not the output of `Reciprocal` with 1 inputs",
    ),
    "RMS normalization": (lambda: build_graph(RMS, SIMILAR_RMS["another power"]), "the exponent is not 2"),
    "hard sigmoid": (lambda: build_sigmoid(SUM, CLIPPED, "y = Mul (clipped, fifth)"), "the clipped sum is not divided"),
    "denormal attention weights": (lambda: build_softmax(MASKED, MASK / 100), "no float32 constant between -125"),
}


@pytest.mark.parametrize(("build", "reason"), NEAR_MISSES.values(), ids=NEAR_MISSES)
def test_near_miss_logs_rule_and_reason(build, reason, caplog, request):
    traced_model = TracedModel(build())
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        assert not run_passes(traced_model, [apply_rules])
    node = traced_model.model.graph.node[-1].name
    assert f"Rule {request.node.callspec.id}: no match at node {node}: {reason}" in caplog.text
    assert "Pass apply_rules: no change" in caplog.messages


def test_complete_match_logs_no_reason(caplog):
    with caplog.at_level(logging.DEBUG, "keras_attn_export"):
        assert run_passes(TracedModel(build_sigmoid(SUM, CLIPPED, SCALED)), [apply_rules])
    assert caplog.messages == ["Pass apply_rules: changed the graph"]
