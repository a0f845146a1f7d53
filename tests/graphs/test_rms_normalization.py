"""RMS normalization is written as onnxruntime knows it, where it is that and nothing like it."""

from collections import Counter
from itertools import permutations

import keras
import numpy as np
import onnx
import pytest
from keras import layers, ops
from onnx import numpy_helper, parser
from traced_models import optimized, run, traced

from keras_attn_export._graphs.external_data import with_weights
from keras_attn_export._graphs.simplify import simplify

RNG = np.random.default_rng(0)
KNOWN = {"Pow": 1, "ReduceMean": 1, "Add": 1, "Sqrt": 1, "Div": 1, "Mul": 1}


@keras.saving.register_keras_serializable(package="tests")
class OfGemma(layers.Layer):
    """As keras_hub's Gemma has it: the weight is what gamma is more than 1."""

    def build(self, shape):
        self.scale = self.add_weight(shape=shape[-1:], name="scale")

    def call(self, x):
        mean = ops.mean(ops.power(x, 2), axis=-1, keepdims=True)
        return x * ops.rsqrt(mean + 1e-6) * (1 + self.scale)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (layers.RMSNormalization(), (6,)),
        (layers.RMSNormalization(epsilon=0.5), (5, 6)),
        (layers.RMSNormalization(), (None, 3, 6)),
        (OfGemma(), (None, 6)),
    ],
)
def test_onnxruntime_computes_it_in_one_operator(layer, shape, tmp_path):
    x = keras.Input(shape, name="x")
    model = keras.Model(x, {"out": layer(x)})
    model.set_weights([RNG.uniform(0.5, 1.5, each.shape) for each in model.get_weights()])
    found = traced(model, tmp_path)
    written = with_weights(found.model, found.weights)
    onnx.checker.check_model(written, full_check=True)
    assert operators(written) == KNOWN
    assert optimized(written, tmp_path) == {"SimplifiedLayerNormalization": 1}
    x = RNG.normal(size=(4, *(size or 3 for size in shape))).astype("float32") * 1e-3
    np.testing.assert_allclose(run(written, x=x)["out"], model(x)["out"], rtol=2e-6)


# As tf2onnx writes it: (operator, inputs, output) each.
LINES = [
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
    "several": np.float32([1e-3] * 6),
    "gamma": RNG.uniform(0.5, 1.5, (1, 1, 6)).astype("float32"),
    "square_matrix": RNG.uniform(0.5, 1.5, (5, 6)).astype("float32"),
    "one": np.float32([1.5]),
    "long_row": RNG.uniform(0.5, 1.5, (1, 1, 1, 6)).astype("float32"),
}
SAME = {
    f"{a} ({b} {c})": [("Mul", f"{b} {c}", "factor"), ("Mul", f"{a} factor", "y")]
    for a, b, c in permutations(("x", "inverse", "gamma"))
}
SAME["the sum in its other order"] = [("Add", "mean epsilon", "positive")]
SAME["a power"] = [("Pow", "x two", "square")]
LOOK_ALIKES = {
    "another power": ("Pow", "x three", "square"),
    "a power for each place": ("Pow", "x gamma", "square"),
    "the product of two tensors": ("Mul", "x z", "square"),
    "the square of another tensor": ("Mul", "z z", "square"),
    "another tensor scaled": ("Mul", "z factor", "y"),
    "the mean along another axis": ("ReduceMean", "square first", "mean"),
    "the sum": ("ReduceSum", "square axes", "mean"),
    "an epsilon for each place": ("Add", "mean several", "positive"),
    "no epsilon": ("Add", "mean z", "positive"),
    "the square root": ("Sqrt", "root", "inverse"),
    "an absolute value": ("Abs", "positive", "root"),
    "a gamma for each row": ("Mul", "inverse square_matrix", "factor"),
    "a gamma of one number": ("Mul", "inverse one", "factor"),
    "a gamma of more axes": ("Mul", "inverse long_row", "factor"),
    "a computed gamma": ("Mul", "inverse z", "factor"),
    "a sum": ("Add", "x factor", "y"),
}


def operators(written):
    return Counter(node.op_type for node in written.graph.node)


def graph_of(*others, outputs=("y",)):
    """The normalization of these lines, with others in the place of those that make the same."""
    of_output = {made: (op, takes) for op, takes, made in [*LINES, *others]}
    nodes = " ".join(f"{made} = {op} ({', '.join(takes.split())})" for made, (op, takes) in of_output.items())
    results = ", ".join(f"float[{name}_0, {name}_1, {name}_2] {name}" for name in outputs)
    model = parser.parse_model(f"""
    <ir_version: 8, opset_import: ["" : 18]>
    normalization (float[batch, 5, 6] x, float[batch, 5, 6] z) => ({results}) {{ {nodes} }}
    """)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in CONSTANTS.items()
    )
    return model


def both(written):
    """What a model gives before and after."""
    inputs = {name: RNG.normal(size=(2, 5, 6)).astype("float32") for name in ("x", "z")}
    before = run(written, **inputs)
    simplify(written)
    return before, run(written, **inputs)


@pytest.mark.parametrize("others", SAME.values(), ids=SAME)
def test_every_order_is_taken(others, tmp_path):
    written = graph_of(*others)
    before, after = both(written)
    assert operators(written) == KNOWN
    assert optimized(written, tmp_path) == {"SimplifiedLayerNormalization": 1}
    np.testing.assert_allclose(after["y"], before["y"], rtol=2e-6)


def test_what_is_read_elsewhere_is_still_made():
    written = graph_of(outputs=("y", "mean"))
    before, after = both(written)
    assert operators(written) == {**KNOWN, "ReduceMean": 2, "Mul": 2}
    for name, expected in before.items():
        np.testing.assert_allclose(after[name], expected, rtol=2e-6)


@pytest.mark.parametrize("other", LOOK_ALIKES.values(), ids=LOOK_ALIKES)
def test_what_only_looks_like_it_stays(other):
    written = graph_of(other)
    before = written.SerializeToString()
    simplify(written)
    assert written.SerializeToString() == before


def test_in_the_body_of_a_loop(tmp_path):
    """A body and what is around it are both written anew, and constants are where they are read."""

    class Twice(layers.Layer):
        def build(self, shape):
            self.norm = layers.RMSNormalization(name="norm")
            self.norm.build(shape)

        def call(self, x):
            return ops.while_loop(lambda i, _: i < 2, lambda i, x: (i + 1, self.norm(x) + x), (0, self.norm(x)))[1]

    x = keras.Input((None, 6), name="x")
    model = keras.Model(x, {"out": Twice(name="twice")(x)})
    model.set_weights([RNG.uniform(0.5, 1.5, (6,))])
    found = traced(model, tmp_path)
    written = with_weights(found.model, found.weights)
    onnx.checker.check_model(written, full_check=True)
    (loop,) = [node for node in written.graph.node if node.op_type == "Loop"]
    (body,) = [each.g for each in loop.attribute if each.name == "body"]
    for nodes in (written.graph.node, body.node):
        assert {"Pow", "Div"} <= {node.op_type for node in nodes}
        assert "Reciprocal" not in {node.op_type for node in nodes}
    x = RNG.normal(size=(2, 3, 6)).astype("float32")
    np.testing.assert_allclose(run(written, x=x)["out"], model(x)["out"], rtol=1e-5)
