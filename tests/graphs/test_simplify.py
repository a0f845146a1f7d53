"""What tf2onnx writes in many operators is written in one, where it is that and nothing like it."""

from collections import Counter

import keras
import numpy as np
import onnx
import pytest
import traced_models
from keras import layers, ops
from onnx import helper, numpy_helper, parser
from traced_models import run

from keras_attn_export._graphs.external_data import with_weights
from keras_attn_export._graphs.simplify import simplify

RNG = np.random.default_rng(0)
NORMALIZED = {"ReduceMean": 1, "Sub": 1, "LayerNormalization": 1}


def traced(outputs, folder, *, shape=(None, 6)):
    """The model of some outputs of an input, with weights that are not as they were initialized, and its graph."""
    x = keras.Input(shape, name="x")
    model = keras.Model(x, {"out": outputs(x)})
    model.set_weights([RNG.uniform(0.5, 1.5, weight.shape) for weight in model.get_weights()])
    found = traced_models.traced(model, folder)
    return model, with_weights(found.model, found.weights)


def operators(written):
    return Counter(node.op_type for node in written.graph.node)


def assert_same(model, written):
    onnx.checker.check_model(written, full_check=True)
    inputs = RNG.standard_normal((8, *(size or 3 for size in model.inputs[0].shape[1:]))).astype("float32")
    np.testing.assert_allclose(run(written, x=inputs)["out"], model(inputs)["out"], rtol=2e-5, atol=2e-5)


DENSE, DENSE_AND_BIAS = {"MatMul": 1}, {"MatMul": 1, "Add": 1}
IN_ONE = [  # layers, the shapes of what they take, and all operators
    (layers.Dense(4, use_bias=False), (None, 6), DENSE),
    (layers.Dense(4), (5, 6), DENSE_AND_BIAS),
    (layers.Dense(4), (None, 3, 6), DENSE_AND_BIAS),
    (layers.Dense(4, use_bias=False), (2, None, 3, 6), DENSE),
    (layers.LayerNormalization(), (6,), NORMALIZED),
    (layers.LayerNormalization(center=False), (None, 6), NORMALIZED),
    (layers.LayerNormalization(epsilon=1e-12), (None, 6), NORMALIZED),
    (layers.LayerNormalization(epsilon=1e-12), (4, None, 6), NORMALIZED),
]


@pytest.mark.parametrize(("layer", "shape", "expected"), IN_ONE)
def test_dense_layers_are_one_product_and_layer_normalization_is_one_operator(layer, shape, expected, tmp_path):
    model, written = traced(layer, tmp_path, shape=shape)
    assert operators(written) == expected
    assert_same(model, written)


def over_two_axes(x):
    return ops.tensordot(x, KERNEL.reshape(2, 3, 4), axes=2)


def over_the_last_axis_which_is_not_known(x):
    return ops.reshape(ops.matmul(ops.reshape(x, (-1, 6)), KERNEL), (-1, 5, 4))


KERNEL = RNG.standard_normal((6, 4)).astype("float32")
OTHERS = [(over_two_axes, (None, 2, 3), {"Reshape": 2}), (over_the_last_axis_which_is_not_known, (5, None), {})]


@pytest.mark.parametrize(("outputs", "shape", "some"), OTHERS)
def test_what_is_neither_gives_what_it_gave(outputs, shape, some, tmp_path):
    model, written = traced(outputs, tmp_path, shape=shape)
    assert {op: operators(written)[op] for op in some} == some
    assert_same(model, written)


def test_a_large_mean_leaves_digits(tmp_path):
    """The operator itself gets a mean of 0: some releases of onnxruntime lose all digits of the variance otherwise."""
    model, written = traced(layers.LayerNormalization(), tmp_path)
    (node,) = (node for node in written.graph.node if node.op_type == "LayerNormalization")
    assert "Sub" in {made.op_type for made in written.graph.node if node.input[0] in made.output}
    inputs = 1000 + RNG.standard_normal((2, 5, 6)).astype("float32")
    exact = inputs.astype("float64") - inputs.mean(-1, keepdims=True, dtype="float64")
    exact /= np.sqrt((exact**2).mean(-1, keepdims=True) + 1e-3)
    gamma, beta = model.get_weights()
    np.testing.assert_allclose(run(written, x=inputs)["out"], exact * gamma + beta, rtol=2e-3, atol=2e-3)


def test_operators_that_onnx_does_not_know():
    written = graph_of(NORMALIZATION)
    written.graph.node.append(helper.make_node("Other", ["y"], ["z_of_other"], domain="other"))
    simplify(written)
    assert operators(written)["LayerNormalization"] == 1


# Layer normalization as tf2onnx writes it: (operator, inputs, output) each.
NORMALIZATION = [
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
CONSTANTS = {
    "axes": np.array([-1]),
    "first": np.array([1]),
    "epsilon": np.float32(1e-3),
    "gamma": RNG.uniform(0.5, 1.5, (1, 1, 6)).astype("float32"),
    "beta": RNG.standard_normal((1, 1, 6)).astype("float32"),
    "square_matrix": RNG.standard_normal((5, 6)).astype("float32"),
    "several": np.float32([1e-3] * 6),
    "one": np.float32([1.5]),
    "long_row": RNG.standard_normal((1, 1, 1, 6)).astype("float32"),
}
LOOK_ALIKES = {
    "the mean of another tensor": ("ReduceMean", "z axes", "mean"),
    "another tensor scaled": ("Mul", "z factor", "scaled"),
    "the gap of another tensor": ("Sub", "z mean", "gap"),
    "a product of two gaps": ("Mul", "gap z", "square"),
    "the mean along another axis": ("ReduceMean", "x first", "mean"),
    "the variance along another axis": ("ReduceMean", "square first", "variance"),
    "an epsilon for each place": ("Add", "variance several", "positive"),
    "a gamma for each row": ("Mul", "inverse square_matrix", "factor"),
    "a gamma of one number": ("Mul", "inverse one", "factor"),
    "a beta of one number": ("Add", "product one", "shift"),
    "a beta of more axes": ("Add", "product long_row", "shift"),
    "a computed gamma": ("Mul", "inverse z", "factor"),
    "a beta for each row": ("Add", "product square_matrix", "shift"),
    "another factor of the mean": ("Mul", "negative inverse", "product"),
    "the mean with its sign": ("Abs", "mean", "negative"),
    "the square root": ("Sqrt", "root", "inverse"),
}


def graph_of(lines, outputs=("y",)):
    nodes = " ".join(f"{made} = {op} ({', '.join(takes.split())})" for op, takes, made in lines)
    results = ", ".join(f"float[{name}_0, 5, {name}_2] {name}" for name in outputs)
    model = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    normalization (float[batch, 5, 6] x, float[batch, 5, 6] z) => ({results}) {{ {nodes} }}
    """)
    constants = (numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items())
    model.graph.initializer.extend(constants)
    return model


@pytest.mark.parametrize("outputs", [("y",), ("y", "variance")], ids=str)
def test_the_normalization_of_these_tests_is_one_and_what_is_read_elsewhere_is_still_made(outputs):
    written = graph_of(NORMALIZATION, outputs)
    inputs = dict.fromkeys(("x", "z"), np.random.default_rng(1).standard_normal((2, 5, 6)).astype("float32"))
    before = run(written, **inputs)
    simplify(written)
    more = {"ReduceMean": 2, "Mul": 1} if len(outputs) > 1 else {}
    assert operators(written) == {**NORMALIZED, **more}
    if not more:
        assert {each.name for each in written.graph.initializer} == {"axes", "gamma/vector", "beta/vector"}
    after = run(written, **{value.name: inputs[value.name] for value in written.graph.input})
    for name, expected in before.items():
        np.testing.assert_allclose(after[name], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("other", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_what_only_looks_like_it_stays(other):
    written = graph_of([other if made == other[2] else (op, takes, made) for op, takes, made in NORMALIZATION])
    before = written.SerializeToString()
    simplify(written)
    assert written.SerializeToString() == before


def test_a_loop_is_written_in_few_too(tmp_path):
    """Weights, a constant that is reshaped among them, are outside of the body that reads them."""

    class Twice(layers.Layer):
        def build(self, shape):
            self.norm, self.dense = layers.LayerNormalization(name="norm"), layers.Dense(6, name="dense")
            self.norm.build(shape)
            self.dense.build(shape)

        def call(self, x):
            body = lambda i, x: (i + 1, self.dense(self.norm(x)))  # noqa: E731
            return keras.ops.while_loop(lambda i, _: i < 2, body, (0, x))[1]

    model, written = traced(lambda x: Twice(name="twice")(x), tmp_path, shape=(None, 6))
    (loop,) = [node for node in written.graph.node if node.op_type == "Loop"]
    (body,) = [each.g for each in loop.attribute if each.name == "body"]
    made = Counter(node.op_type for node in body.node)
    assert made["LayerNormalization"] == made["MatMul"] == 1
    assert made["Reshape"] == 0
    assert len(loop.input) == 4  # the number of steps and the tensor are its state
    assert_same(model, written)
