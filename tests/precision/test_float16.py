"""Which ops of a graph run in float16, and that the casts between are right: on small graphs, with onnxruntime."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from keras_attn_export._precision import float16
from keras_attn_export._tracing.traced import Traced

RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((4, 4)).astype("float32")


def model(nodes, constants, outputs=("y",), inputs=("x",)):
    graph = helper.make_graph(
        [
            helper.make_node(op, list(takes), list(gives), f"{op}_{index}", **attributes)
            for index, (op, takes, gives, attributes) in enumerate(nodes)
        ],
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 4]) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def to_float16(given):
    return float16.to_float16(Traced(given)).model


def half_ops(converted):
    """Return the types of the ops that give float16, casts aside."""
    inferred = onnx.shape_inference.infer_shapes(converted, strict_mode=True)
    half = {each.name for each in inferred.graph.value_info if each.type.tensor_type.elem_type == TensorProto.FLOAT16}
    return [node.op_type for node in converted.graph.node if node.op_type != "Cast" and half & set(node.output)]


def run(each, **inputs):
    return onnxruntime.InferenceSession(each.SerializeToString()).run(None, inputs)


def assert_close_after_conversion(given, **inputs):
    converted = to_float16(given)
    onnx.checker.check_model(converted, full_check=True)
    for want, have in zip(run(given, **inputs), run(converted, **inputs), strict=True):
        assert have.dtype == want.dtype
        np.testing.assert_allclose(have, want, rtol=5e-3, atol=5e-3)
    return converted


X = RNG.standard_normal((3, 4)).astype("float32")


def test_a_product_and_what_follows_it():
    given = model(
        [("MatMul", "xw", "a", {}), ("Add", "ab", "c", {}), ("Tanh", "c", "y", {})],
        {"w": WEIGHTS, "b": WEIGHTS[0]},
    )
    before = given.SerializeToString()
    converted = assert_close_after_conversion(given, x=X)
    assert half_ops(converted) == ["MatMul", "Add", "Tanh"]
    assert {each.data_type for each in converted.graph.initializer} == {TensorProto.FLOAT16}
    assert given.SerializeToString() == before


@pytest.mark.parametrize("constant", [-3.4028235e38, 1e5, -np.inf, np.nan, 1e-7], ids=str)
def test_a_constant_that_float16_cannot_hold(constant):
    given = model(
        [("MatMul", "xw", "a", {}), ("Greater", "az", "m", {}), ("Where", "mac", "y", {})],
        {"w": WEIGHTS, "z": np.float32(0), "c": np.float32(constant)},
    )
    converted = assert_close_after_conversion(given, x=X)
    assert half_ops(converted) == ["MatMul"]


def test_weights_that_float16_cannot_hold():
    assert half_ops(to_float16(model([("MatMul", "xw", "y", {})], {"w": WEIGHTS * 1e6}))) == []


def test_squares_and_statistics():
    given = model(
        [
            ("MatMul", "xw", "a", {}),
            ("ReduceMean", "a", "m", {"keepdims": 1}),
            ("Sub", "am", "d", {}),
            ("Mul", "dd", "s", {}),
            ("Mul", "aa", "q", {}),
            ("Add", "sq", "y", {}),
        ],
        {"w": WEIGHTS * 100},
    )
    assert half_ops(assert_close_after_conversion(given, x=X / 100)) == ["MatMul"]
    large = run(to_float16(given), x=X * 100)
    np.testing.assert_allclose(large, run(given, x=X * 100), rtol=1e-2)


def test_scores_for_a_softmax_do_not_overflow():
    given = model(
        [
            ("MatMul", "xw", "q", {}),
            ("Transpose", "q", "k", {"perm": [1, 0]}),
            ("MatMul", "qk", "s", {}),
            ("Mul", "sc", "t", {}),
            ("Softmax", "t", "p", {}),
            ("MatMul", "pq", "y", {}),
        ],
        {"w": WEIGHTS, "c": np.float32(0.5)},
    )
    converted = to_float16(given)
    assert half_ops(converted) == ["MatMul", "Transpose", "MatMul"]
    assert np.isfinite(run(converted, x=X * 1000)).all()


def test_a_product_of_one_value_read_in_both_types():
    given = model(
        [("MatMul", "xw", "a", {}), ("Exp", "a", "e", {}), ("Erf", "a", "f", {}), ("Add", "ef", "y", {})],
        {"w": WEIGHTS},
        outputs=("y", "a"),
    )
    converted = assert_close_after_conversion(given, x=X)
    assert len({node.name for node in converted.graph.node}) == len(converted.graph.node)


def test_constants_of_both_types_and_constant_nodes():
    given = model(
        [
            ("Constant", "", "c", {"value": numpy_helper.from_array(WEIGHTS)}),
            ("MatMul", "xc", "a", {}),
            ("Exp", "c", "e", {}),
            ("MatMul", "ae", "y", {}),
        ],
        {},
    )
    assert half_ops(assert_close_after_conversion(given, x=X)) == ["MatMul", "MatMul"]


def loop(weights_name):
    """Return a model that multiplies x three times by weights which its loop carries along as state."""

    def value(name, dtype=TensorProto.FLOAT):
        return helper.make_tensor_value_info(name, dtype, [None, 4] if dtype == TensorProto.FLOAT else [])

    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "carried"], ["new"], "product"),
            helper.make_node("Identity", ["carried"], ["carried_on"], "on"),
            helper.make_node("Identity", ["condition"], ["condition_on"], "again"),
        ],
        "body",
        [value("step", TensorProto.INT64), value("condition", TensorProto.BOOL), value("state"), value("carried")],
        [value("condition_on", TensorProto.BOOL), value("new"), value("carried_on")],
    )
    return model(
        [("Loop", ["count", "", "x", weights_name], ["y", "unused"], {"body": body})],
        {"count": np.int64(3), "w": WEIGHTS},
        inputs=("x", "v"),
    )


def test_the_weights_a_loop_carries_are_read_from_outside():
    given = loop("w")
    converted = assert_close_after_conversion(given, x=X, v=X)
    (node,) = [node for node in converted.graph.node if node.op_type == "Loop"]
    assert list(node.input) == ["count", "", "x"]
    assert list(node.output) == ["y"]
    assert {each.name for each in converted.graph.initializer} == {"count", "w/float16"}


def test_what_a_loop_only_hands_on_is_cast_once_outside_of_it():
    square = RNG.standard_normal((4, 4)).astype("float32")
    converted = assert_close_after_conversion(loop("v"), x=X, v=square)
    cast, node = converted.graph.node
    assert (cast.op_type, list(cast.input), list(cast.output)) == ("Cast", ["v"], ["v/float16"])
    assert list(node.input) == ["count", "", "x"]
    assert [each.input[0] for each in node.attribute[0].g.node if each.op_type == "Cast"] == ["state", "new/float16"]
