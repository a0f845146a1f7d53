"""Which layers an ONNX file has: nodes by the names that Keras and tf2onnx give them, and nothing lost."""

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnx
import pytest
from bundles import read_manifest
from onnx import TensorProto, helper, numpy_helper

from keras_attn_export import BundleError, ExportError
from keras_attn_export._report.layers import OTHER, Port, read_layers

pytest_plugins = ("bundle_fixtures",)

IN = "StatefulPartitionedCall/net_1/"


def written(folder: Path, nodes, weights=(), inputs=("x",), outputs=("y",)) -> Path:
    """A file of nodes (name, operator, inputs, outputs); in names, `~` is the scope of the model. It is not run."""

    def full(name):
        return name.replace("~", IN)

    made = [
        helper.make_node(op, [*map(full, read)], [*map(full, out)], name=full(name), **dict(*more))
        for name, op, read, out, *more in nodes
    ]
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names] for names in (inputs, outputs)
    ]
    constants = [numpy_helper.from_array(np.asarray(array), full(name)) for name, array in dict(weights).items()]
    onnx.save(helper.make_model(helper.make_graph(made, "g", *ports, constants)), folder / "model.onnx")
    return folder / "model.onnx"


def matrix(rows=3, columns=4, dtype="float32"):
    return np.zeros((rows, columns), dtype)


def members(graph):
    return {layer.name: [node.removeprefix(IN) for node in layer.nodes] for layer in graph.layers}


def dense(name, read, out, weight=None):
    return (f"~{name}_1/MatMul", "MatMul", [read, weight or f"{name}/kernel"], [out])


def assert_nothing_lost(file, graph):
    proto = onnx.load(file, load_external_data=False)
    nodes = [node for layer in graph.layers for node in layer.nodes]
    assert len(nodes) == len(set(nodes)) == len(proto.graph.node)
    assert sum(sum(layer.operators.values()) for layer in graph.layers) == len(nodes)
    arrays = [numpy_helper.to_array(each) for each in proto.graph.initializer]
    assert sum(layer.weights for layer in graph.layers) == sum(a.size for a in arrays if a.dtype.kind == "f" and a.ndim)
    formulas = [a.t for n in proto.graph.node for a in n.attribute if a.HasField("t")]
    sizes = sum(a.nbytes for a in (*arrays, *map(numpy_helper.to_array, formulas)))
    assert sum(layer.weight_bytes for layer in graph.layers) == sizes


def test_a_bundle(exported):
    file = exported / "model.onnx"
    graph = read_layers(file, [layer["name"] for layer in read_manifest(exported)["layers"]])
    (attention,) = [layer for layer in graph.layers if layer.kind == "attention"]
    assert (attention.name, attention.weights) == ("attention", 3 * (4 + 6 + 1))
    assert {port.name for port in graph.inputs} == {"queries", "keys", "values", "valid_lens"}
    assert Port("context", ("attention",)) in graph.outputs
    proto = onnx.load(file)
    assert sum(len(layer.nodes) for layer in graph.layers) == len(proto.graph.node)
    assert sum(layer.weights for layer in graph.layers) == sum(
        numpy_helper.to_array(each).size
        for each in proto.graph.initializer
        if each.data_type == TensorProto.FLOAT and each.dims
    )


def test_ops_between_layers_join_those(tmp_path):
    file = written(
        tmp_path,
        [
            dense("first", "x", "a"),
            ("Erf__7", "Erf", ["a"], ["b"]),
            dense("second", "b", "c"),
            ("~Add", "Add", ["b", "c"], ["d"]),
            ("~norm_1/Mean", "ReduceMean", ["d"], ["e"]),
            ("~norm_1/Sub", "Sub", ["d", "e"], ["f"]),
            ("~Add_1", "Add", ["f", "c"], ["g"]),
            dense("third", "g", "h"),
            dense("fourth", "g", "i"),
            ("~Add_2", "Add", ["h", "i"], ["y"]),
        ],
        {f"{name}/kernel": matrix() for name in ("first", "second", "third", "fourth")},
    )
    graph = read_layers(file, [])
    assert members(graph) == {
        "first": ["first_1/MatMul", "Erf__7"],
        "second": ["second_1/MatMul"],
        "norm": ["Add", "norm_1/Mean", "norm_1/Sub"],
        OTHER: ["Add_1"],
        "third": ["third_1/MatMul"],
        "fourth": ["fourth_1/MatMul"],
        f"{OTHER} (2)": ["Add_2"],
    }
    assert ("first", "norm") in graph.edges
    assert (graph.inputs, graph.outputs) == ((Port("x", ("first",)),), (Port("y", (f"{OTHER} (2)",)),))
    assert [layer.kind for layer in graph.layers][:4] == ["dense", "dense", "operators", "add"]
    assert_nothing_lost(file, graph)


def test_weights_count_where_they_are_read_first(tmp_path):
    constants = {"first/kernel": matrix(), "bias": np.zeros(4, "float32"), "half": np.float32(0.5)}
    constants |= {"axes": np.array([1, 2]), "unused": matrix(2, 2)}
    nodes = [
        dense("first", "x", "a"),
        ("~first_1/Add", "Add", ["a", "bias"], ["b"]),
        dense("tied", "b", "c", weight="first/kernel"),
        ("~scale_1/Mul", "Mul", ["c", "half"], ["d"]),
        ("~scale_1/Sum", "ReduceSum", ["d", "axes"], ["y"]),
    ]
    file = written(tmp_path, nodes, constants)
    graph = read_layers(file, [])
    assert [(layer.weights, layer.weight_bytes) for layer in graph.layers] == [(16, 64), (0, 0), (4, 4 + 16 + 16)]
    assert_nothing_lost(file, graph)


def test_weights_of_loops_and_what_quantizing_adds(tmp_path):
    body = helper.make_graph(
        [helper.make_node("Mul", ["outer", "inner"], ["out"])],
        "body",
        [],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.zeros(5, "float32"), "inner")],
    )
    nodes = [
        ("~dense_1/MatMul_quant", "MatMulInteger", ["x", "k_quantized", "", "k_zero_point"], ["a"]),
        ("~dense_1/Mul", "Mul", ["a", "k_scale"], ["b"]),
        ("~loop_1/while", "Loop", ["", "", "b"], ["y"], {"body": body}),
    ]
    constants = {"k_quantized": matrix(dtype="int8"), "k_zero_point": np.zeros(4, "int8")}
    constants |= {"k_scale": np.zeros(4, "float32"), "outer": np.zeros(7, "float32")}
    graph = read_layers(written(tmp_path, nodes, constants), [])
    assert [(layer.name, layer.kind, layer.weights, layer.weight_bytes) for layer in graph.layers] == [
        ("dense", "dense", 12, 12 + 4 + 16),
        ("loop", "loop", 12, 48),
    ]


def test_each_call_of_a_layer(tmp_path):
    nodes = [
        dense("twice", "x", "a"),
        ("~twice_3/MatMul", "MatMul", ["a", "twice/kernel"], ["b"]),
        ("~dense_1_2/MatMul", "MatMul", ["b", "dense_1/kernel"], ["y"]),
    ]
    graph = read_layers(written(tmp_path, nodes, {"twice/kernel": matrix(), "dense_1/kernel": matrix()}), [])
    assert [(layer.name, layer.weights) for layer in graph.layers] == [
        ("twice", 12),
        ("twice (call 2)", 0),
        ("dense_1", 12),
    ]
    assert graph.edges == (("twice", "twice (call 2)"), ("twice (call 2)", "dense_1"))


@pytest.mark.parametrize("more", [0, 8])
def test_nested_models_are_taken_apart_where_that_is_few_layers(tmp_path, more):
    parts = ("attend", "dense", "norm")
    names = ["x", *(f"inner_{part}" for part in parts), *(f"after_{n}" for n in range(more)), "y"]
    scopes = [*(f"~inner_1/{part}_1" for part in parts), *(f"~after_{n}_1" for n in range(more)), "~last_1"]
    nodes = [(f"{scope}/Tanh", "Tanh", [a], [b]) for scope, (a, b) in zip(scopes, pairwise(names), strict=True)]
    graph = read_layers(written(tmp_path, nodes), ["net/inner/attend"])
    inner = ["inner"] if more else ["inner/attend", "inner/dense", "inner/norm"]
    assert [layer.name for layer in graph.layers] == [*inner, *(f"after_{n}" for n in range(more)), "last"]
    assert graph.layers[0].kind == ("attention block" if more else "attention")


def test_attention_is_one_layer_with_its_projections(tmp_path):
    nodes = [
        *((f"~heads_1/W_{a}_1/MatMul", "MatMul", ["x", f"heads/W_{a}/kernel"], [a]) for a in "qkv"),
        ("~heads_1/PartitionedCall", "dot_product_0", ["q", "k", "v"], ["y"], {"domain": "keras_attn"}),
    ]
    graph = read_layers(
        written(tmp_path, nodes, {f"heads/W_{a}/kernel": matrix() for a in "qkv"}), ["heads/dot_product"]
    )
    assert [(layer.name, layer.kind, layer.weights) for layer in graph.layers] == [("heads", "attention", 36)]


def test_a_nameless_lstm_of_both_directions(tmp_path):
    nodes = [
        ("~both_1/forward_lstm_1/transpose", "Transpose", ["x"], ["a"]),
        ("LSTM__3", "LSTM", ["a", "W__1", "R__2"], ["b"]),
        ("~both_1/backward_lstm_1/Reverse", "Identity", ["b"], ["c"]),
        dense("classes", "c", "y"),
    ]
    constants = {"W__1": np.zeros((2, 8, 3), "float32"), "R__2": np.zeros((2, 8, 2), "float32")}
    graph = read_layers(written(tmp_path, nodes, constants | {"classes/kernel": matrix()}), [])
    assert [(layer.name, layer.kind, layer.weights) for layer in graph.layers] == [
        ("both", "recurrent", 80),
        ("classes", "dense", 12),
    ]


def test_a_nameless_product_is_known_by_its_weight(tmp_path):
    nodes = [
        dense("before", "x", "a"),
        ("Gemm__12", "Gemm", ["a", "attend/query/kernel"], ["b"]),
        ("~attend_1/query_1/Add", "Add", ["b", "b"], ["c"]),
        ("~attend_1/Softmax", "Softmax", ["c"], ["d"]),
        ("~after_1/Add", "Add", ["b", "d"], ["y"]),
    ]
    graph = read_layers(
        written(tmp_path, nodes, {"before/kernel": matrix(), "attend/query/kernel": matrix()}), ["attend"]
    )
    assert [(layer.name, layer.weights) for layer in graph.layers] == [("before", 12), ("attend", 12), ("after", 0)]


def test_a_nameless_lstm_is_its_readers(tmp_path):
    nodes = [
        dense("before", "x", "a"),
        ("LSTM__3", "LSTM", ["a", "W__1", "R__2"], ["b"]),
        ("Squeeze__4", "Squeeze", ["b"], ["c"]),
        ("~memory_1/transpose", "Transpose", ["c"], ["y"]),
    ]
    constants = {"W__1": np.zeros((1, 8, 3), "float32"), "R__2": np.zeros((1, 8, 2), "float32")}
    graph = read_layers(written(tmp_path, nodes, constants | {"before/kernel": matrix()}), [])
    assert [(layer.name, layer.weights) for layer in graph.layers] == [("before", 12), ("memory", 40)]


def test_a_convolution_that_took_a_normalization_in(tmp_path):
    kernel = "~conv_1/convolution/merged_input:0"
    nodes = [("~norm_1/batchnorm/mul_1", "Conv", ["x", kernel], ["y"])]
    (layer,) = read_layers(written(tmp_path, nodes, {kernel: np.zeros((2, 3, 1, 1), "float32")}), []).layers
    assert (layer.name, layer.kind, layer.weights) == ("conv", "convolution", 6)


def test_a_mask_that_several_layers_share(tmp_path):
    """tf2onnx keeps one of the equal ops, which may be named after the last layer: that does not feed the first."""
    nodes = [
        ("~second_1/Less", "Less", ["lens", "lens"], ["mask"]),
        ("~first_1/MatMul", "MatMul", ["x", "first/kernel"], ["a"]),
        ("~first_1/Where", "Where", ["mask", "a", "a"], ["b"]),
        ("~second_1/MatMul", "MatMul", ["b", "second/kernel"], ["c"]),
        ("~second_1/Where", "Where", ["mask", "c", "c"], ["y"]),
    ]
    weights = {"first/kernel": matrix(), "second/kernel": matrix()}
    graph = read_layers(written(tmp_path, nodes, weights, inputs=("x", "lens")), [])
    assert members(graph)[OTHER] == ["second_1/Less"]
    assert set(graph.edges) == {(OTHER, "first"), (OTHER, "second"), ("first", "second")}


def test_a_transposition_that_was_moved_behind_later_layers(tmp_path):
    nodes = [
        ("~conv_1/convolution", "Conv", ["x", "conv/kernel"], ["a"]),
        ("~relu_1/Relu", "Relu", ["a"], ["b"]),
        ("~conv_1/convolution__9", "Transpose", ["b"], ["c"]),
        dense("classes", "c", "y"),
    ]
    weights = {"conv/kernel": np.zeros((2, 3, 1, 1), "float32"), "classes/kernel": matrix()}
    graph = read_layers(written(tmp_path, nodes, weights), [])
    assert graph.edges == (("conv", "relu"), ("relu", "classes"))


def test_names_that_are_there_twice_or_not_at_all(tmp_path):
    nodes = [("same", "Neg", ["x"], ["a"]), ("same", "Neg", ["a"], ["b"]), ("", "Neg", ["b"], ["y"])]
    (layer,) = read_layers(written(tmp_path, nodes), []).layers
    assert (layer.name, layer.kind, layer.nodes) == (OTHER, "neg", ("a", "b", "y"))


def test_weights_in_a_file_of_their_own_are_not_read(tmp_path):
    file = written(tmp_path, [dense("large", "x", "y")], {"large/kernel": matrix()})
    proto = onnx.load(file)
    (weight,) = proto.graph.initializer
    weight.ClearField("raw_data")
    weight.dims[:] = [70_000, 70_000]
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="not_there.data")
    file.write_bytes(proto.SerializeToString())
    (layer,) = read_layers(file, []).layers
    assert (layer.weights, layer.weight_bytes) == (4_900_000_000, 19_600_000_000)


@pytest.mark.parametrize("content", [None, b"no model"])
def test_no_onnx_file(tmp_path, content):
    file = tmp_path / "model.onnx"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(BundleError, match=r"onnx cannot read .*model\.onnx"):
        read_layers(file, [])


def test_without_onnx(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ExportError, match="pip install onnx"):
        read_layers(tmp_path / "model.onnx", [])
