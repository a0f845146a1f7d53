"""The faults that nox -s mutate-graphs puts into ONNX graphs: of every kind, one at a time, in a copy."""

import numpy as np
from mutations.graph_faults import graph_faults, mutated
from onnx import TensorProto, helper, numpy_helper

KINDS = {"exchanged", "dropped", "swapped", "comparison", "mask", "bias", "axes", "constant", "weight", "off by one"}


def model():
    """A graph with a loop's worth of what is mutated: weights, a mask, a slice, a branch."""
    floats = np.random.default_rng(0).standard_normal
    weights = {
        "kernel": floats((4, 4)).astype("float32"),
        "bias": floats(4).astype("float32"),
        "start": np.array([1]),
        "end": np.array([3]),
    }
    branch = helper.make_graph(
        [helper.make_node("Relu", ["h"], ["then"])], "then", [], [helper.make_tensor_value_info("then", 1, None)]
    )
    other = helper.make_graph(
        [helper.make_node("Tanh", ["h"], ["else"])], "else", [], [helper.make_tensor_value_info("else", 1, None)]
    )
    nodes = [
        helper.make_node("Gemm", ["x", "kernel", "bias"], ["h"], alpha=0.5),
        helper.make_node("Less", ["h", "bias"], ["below"]),
        helper.make_node("Where", ["below", "h", "bias"], ["chosen"]),
        helper.make_node("Transpose", ["chosen"], ["turned"], perm=[1, 0]),
        helper.make_node("Softmax", ["turned"], ["shares"], axis=-1),
        helper.make_node("Slice", ["shares", "start", "end"], ["part"]),
        helper.make_node("If", ["flag"], ["either"], then_branch=branch, else_branch=other),
        helper.make_node("Mul", ["part", "part"], ["y"]),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 4]),
        helper.make_tensor_value_info("flag", TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "either")]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return helper.make_model(helper.make_graph(nodes, "small", inputs, outputs, initializers))


def test_faults_of_every_kind_change_the_copy_and_not_the_original():
    original = model()
    before = original.SerializeToString()
    faults = graph_faults(original, np.random.default_rng(1))
    assert {fault.kind for fault in faults} == KINDS
    mutants = [mutated(original, fault).SerializeToString() for fault in faults]
    assert original.SerializeToString() == before
    assert before not in mutants
    assert len(set(mutants)) == len(faults)


def test_branches_and_weights_have_faults_too():
    original = model()
    faults = {fault.what: fault for fault in graph_faults(original, np.random.default_rng(1))}
    what = " ".join(faults)
    for each in ("Relu to Abs at then", "Tanh to Sigmoid at else", "2 % more of kernel", "element (0,), more of start"):
        assert each in what
    before, after = (
        {each.name: numpy_helper.to_array(each) for each in graph.graph.initializer}
        for graph in (original, mutated(original, faults["2 % more of bias (4,)"]))
    )
    np.testing.assert_allclose(after["bias"], before["bias"] * 1.02, rtol=1e-6)
    np.testing.assert_array_equal(after["kernel"], before["kernel"])
