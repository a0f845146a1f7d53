"""Hard sigmoids are one operator, at every value, and onnxruntime takes their swishes into convolutions."""

from collections import Counter

import keras
import numpy as np
import pytest
from keras import layers
from small_graphs import small_graph
from traced_models import optimized, run, traced

from keras_attn_export._graphs.external_data import with_weights
from keras_attn_export._graphs.simplify import simplify

MOVED, CLIPPED = "moved = Add (x, three)", "clipped = Clip (moved, zero, six)"
SCALED, DIVIDED = "y = Mul (sixth, clipped)", "y = Div (clipped, six)"
NUMBERS = {"three": 3, "zero": 0, "six": 6, "sixth": 1 / 6, "fifth": 0.2, "row": [3, 3, 3, 3]}
VALUES = [np.nan, np.inf, -np.inf, -3, 3, 0, -0.0, 1e-30, 1e38, -1e38, 2.5, -2.999]


def model_of(*nodes):
    text = " \n ".join(nodes)
    used = {name: np.float32(number) for name, number in NUMBERS.items() if name in text}
    return small_graph(text, **used)


@pytest.mark.parametrize("last", [SCALED, DIVIDED])
def test_hard_sigmoid_is_one_operator_at_every_value(last):
    model, x = model_of(MOVED, CLIPPED, last), np.float32(VALUES).reshape(3, 4)
    expected = run(model, x=x)["y"]
    simplify(model)
    assert [node.op_type for node in model.graph.node] == ["HardSigmoid"]
    np.testing.assert_allclose(run(model, x=x)["y"], expected, atol=1e-7)


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
    model = model_of(*nodes)
    simplify(model)
    assert "HardSigmoid" not in {node.op_type for node in model.graph.node}


@pytest.mark.slow
def test_hard_swish_is_fused_into_the_convolution_before(tmp_path):
    x = keras.Input((8, 8, 16), name="x")
    hidden = layers.Conv2D(16, 1)(x)
    model = keras.Model(x, {"out": layers.Conv2D(16, 1)(hidden * keras.ops.hard_sigmoid(hidden))})
    found = traced(model, tmp_path)
    written = with_weights(found.model, found.weights)
    assert "HardSigmoid" in Counter(node.op_type for node in written.graph.node)
    assert "HardSigmoid" not in optimized(written, tmp_path)
    array = np.random.default_rng(0).standard_normal((2, 8, 8, 16)).astype("float32") * 4
    np.testing.assert_allclose(run(written, x=array)["out"], model(array)["out"], atol=1e-5)
