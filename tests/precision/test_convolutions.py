"""Products and sums by channel go into the weights of the convolution before them, and nothing else does."""

import numpy as np
import onnxruntime
import pytest
from small_graphs import small_graph

from keras_attn_export._precision.convolutions import fold_into_convolutions

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 5, 6)).astype("float32")


def constant(*shape):
    return RNG.standard_normal(shape).astype("float32")


CONSTANTS = {"k": constant(4, 3, 2, 2), "b": constant(4), "m": constant(1, 4, 1, 1), "a": constant(4, 1, 1)}
GRAPHS = {
    "normalization": ("c = Conv (x, k) p = Mul (c, m) y = Add (p, a)", ["Conv"]),
    "a bias, and constants first": ("c = Conv (x, k, b) p = Add (a, c) y = Mul (m, p)", ["Conv"]),
    "two normalizations": ("c = Conv (x, k) p = Mul (c, m) q = Add (p, a) y = Mul (q, a)", ["Conv"]),
    "by another axis": ("c = Conv (x, k) y = Mul (c, row)", ["Conv", "Mul"]),
    "by one number": ("c = Conv (x, k) y = Mul (c, one)", ["Conv", "Mul"]),
    "read elsewhere": ("c = Conv (x, k) p = Mul (c, m) y = Add (p, c)", ["Conv", "Mul", "Add"]),
    "after a ReLU": ("c = Conv (x, k) r = Relu (c) y = Mul (r, m)", ["Conv", "Relu", "Mul"]),
    "two of one kernel": ("c = Conv (x, k) d = Conv (x, k) p = Mul (c, m) y = Add (p, d)", ["Conv", "Conv", "Add"]),
}


def outputs_of(model):
    return onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})[0]


@pytest.mark.parametrize(("nodes", "left"), GRAPHS.values(), ids=GRAPHS)
def test_what_is_folded_gives_the_same(nodes, left):
    more = {"row": constant(5), "one": constant(1)}
    model = small_graph(nodes, "float[n, 3, 5, 6] x", "float[n, 4, 4, 5] y", **CONSTANTS, **more)
    expected = outputs_of(model)
    fold_into_convolutions(model.graph)
    assert [node.op_type for node in model.graph.node] == left
    np.testing.assert_allclose(outputs_of(model), expected, rtol=1e-5, atol=1e-5)
    assert {each.name for each in model.graph.initializer} <= {name for node in model.graph.node for name in node.input}
