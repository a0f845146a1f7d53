"""What is done to a weight alone is done while the model is exported."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from traced_models import run

from keras_attn_export._tracing.folding import folded
from keras_attn_export._tracing.weights import with_weights

WEIGHT = np.random.default_rng(0).standard_normal((4, 6)).astype("float32")
X = np.random.default_rng(1).standard_normal((3, 4)).astype("float32")


def model(nodes, constants=None, outputs=("y",)):
    graph = helper.make_graph(
        [helper.make_node(op, list(takes), list(gives), **attributes) for op, takes, gives, attributes in nodes],
        "test",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 4]), value_info("w", WEIGHT.shape)],
        [value_info(name, None) for name in outputs],
        [numpy_helper.from_array(np.array(array), name) for name, array in (constants or {}).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def value_info(name, shape):
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


def outputs(given, weights=None):
    return run(with_weights(given, weights or {"w": WEIGHT}), x=X)


MATMUL = ("MatMul", ["x", "laid_out"], ["y"], {})
GRAPHS = {
    "transposed twice": [("Transpose", ["w"], ["t"], {"perm": [1, 0]}), ("Transpose", ["t"], ["laid_out"], {})],
    "reshaped": [("Reshape", ["w", "shape"], ["laid_out"], {})],
    "squeezed": [("Unsqueeze", ["w", "axes"], ["u"], {}), ("Squeeze", ["u", "axes"], ["laid_out"], {})],
    "its shape": [("Shape", ["w"], ["s"], {}), ("Reshape", ["w", "s"], ["laid_out"], {})],
}


@pytest.mark.parametrize("nodes", GRAPHS.values(), ids=GRAPHS)
def test_a_weight_laid_out_anew(nodes):
    given = model([*nodes, MATMUL], {"shape": [0, -1], "axes": [0, 2]})
    before = outputs(given)["y"]
    weights = folded(given.graph, {"w": WEIGHT})
    assert [node.op_type for node in given.graph.node] == ["MatMul"]
    assert list(weights) == ["w"]
    assert {value.name for value in given.graph.input} == {"x", "w"}
    assert not given.graph.initializer  # nothing reads them any more
    np.testing.assert_array_equal(outputs(given, weights)["y"], before)


def test_two_layouts_of_one_weight():
    given = model(
        [
            ("Transpose", ["w"], ["t"], {}),
            ("MatMul", ["x", "w"], ["a"], {}),
            ("MatMul", ["a", "t"], ["y"], {}),
        ]
    )
    before = outputs(given)["y"]
    weights = folded(given.graph, {"w": WEIGHT})
    assert {name: array.shape for name, array in weights.items()} == {"w": (4, 6), "t": (6, 4)}
    np.testing.assert_array_equal(outputs(given, weights)["y"], before)


def test_an_output_is_still_computed():
    given = model([("Transpose", ["w"], ["y"], {}), ("MatMul", ["x", "w"], ["z"], {})], outputs=("y", "z"))
    weights = folded(given.graph, {"w": WEIGHT})
    np.testing.assert_array_equal(outputs(given, weights)["y"], WEIGHT.T)
