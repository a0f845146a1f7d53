"""Which layers an ONNX file has: nodes by the names that Keras and tf2onnx give them, and nothing lost."""

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from bundles import read_manifest
from onnx import TensorProto, helper, numpy_helper

from keras_attn_export import BundleError, ExportError
from keras_attn_export._report.layers import OTHER, read_layers

SCOPE = "StatefulPartitionedCall/net_1/"  # of the model, before every name that is not tf2onnx's own
SHAPES = {"kernel": (3, 4), "bias": (4,), "scale": (4,), "point": (4,), "half": (), "axes": (2,), "W": (2, 8, 3)}
SHAPES |= {"R": (2, 8, 2), "outer": (7,), "quantized": (3, 4)}
DTYPES = {"axes": "int64", "point": "int8", "quantized": "int8"}
BODY = helper.make_graph(
    [helper.make_node("Mul", ["outer", "inner"], ["out"])],
    "body",
    [],
    [helper.make_tensor_value_info("out", TensorProto.FLOAT, None)],
    [numpy_helper.from_array(np.zeros(5, "float32"), "inner")],
)


def saved(folder: Path, nodes, weights=()) -> Path:
    ports = [[helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names] for names in ("xl", "y")]
    onnx.save(helper.make_model(helper.make_graph(nodes, "g", *ports, weights)), folder / "model.onnx")
    return folder / "model.onnx"


def written(folder: Path, lines: str, more: str = "") -> Path:
    """A file of nodes, `NAME = OPERATOR INPUT ... > OUTPUT`, and of the weights that they read. It is not run."""
    nodes, read, made = [], dict.fromkeys(more.split()), {"x", "l", "-"}
    for line in lines.split("\n"):
        name, _, op, *inputs, _, output = line.split()
        full = SCOPE + name if "/" in name or "__" not in name else name
        body = {"body": BODY} if op == "Loop" else {}
        inputs = [SCOPE + each if each.endswith(":0") else each for each in inputs]
        nodes.append(helper.make_node(op, [each.strip("-") for each in inputs], [output], full, **body))
        read |= dict.fromkeys((*inputs, "outer") if body else inputs)
        made.add(output)
    weights = []
    for name in read.keys() - made:
        kind = next(each for each in SHAPES if name.endswith((f"/{each}", f"_{each}")) or name.split("__")[0] == each)
        weights.append(numpy_helper.from_array(np.zeros(SHAPES[kind], DTYPES.get(kind, "float32")), name))
    return saved(folder, nodes, weights)


# Nodes, paths of attention layers; name, kind, number of nodes, weights and their bytes of each layer.
CASES = [
    pytest.param(
        "first_1/MatMul = MatMul x first/kernel > a\n"
        "Erf__7 = Erf a > b\n"
        "second_1/MatMul = MatMul b second/kernel > c\n"
        "Add = Add b c > d\n"
        "norm_1/Mean = ReduceMean d > e\n"
        "norm_1/Sub = Sub d e > f\n"
        "Add_1 = Add f c > g\n"
        "third_1/MatMul = MatMul g third/kernel > h\n"
        "fourth_1/MatMul = MatMul g fourth/kernel > i\n"
        "Add_2 = Add h i > y",
        [],
        [
            *("first dense 2 12 48", "second dense 1 12 48", "norm operators 3 0 0"),
            *("third dense 1 12 48", "fourth dense 1 12 48", f"{OTHER} add 2 0 0"),
        ],
        id="operators between layers join those",
    ),
    pytest.param(
        "first_1/MatMul = MatMul x first/kernel > a\n"
        "first_1/Add = Add a bias > b\n"
        "tied_1/MatMul = MatMul b first/kernel > c\n"
        "scale_1/Mul = Mul c half > d\n"
        "scale_1/Sum = ReduceSum d axes > y",
        [],
        ["first dense 2 16 64", "tied dense 1 0 0", "scale operators 2 0 20"],
        id="weights count where they are read first",
    ),
    pytest.param(
        "dense_1/MatMul_quant = MatMulInteger x k_quantized - k_zero_point > a\n"
        "dense_1/Mul = Mul a k_scale > b\n"
        "loop_1/while = Loop - - b > y",
        [],
        ["dense dense 2 12 32", "loop loop 1 12 48"],
        id="weights of loops, and what quantizing adds",
    ),
    pytest.param(
        "twice_1/MatMul = MatMul x twice/kernel > a\n"
        "twice_3/MatMul = MatMul a twice/kernel > b\n"
        "twice_4/MatMul = MatMul b twice/kernel > c\n"
        "dense_1_2/MatMul = MatMul c dense_1/kernel > y",
        [],
        [
            *("twice dense 1 12 48", "twice (call 2) dense 1 0 0", "twice (call 3) dense 1 0 0"),
            "dense_1 dense 1 12 48",
        ],
        id="each call of a layer",
    ),
    pytest.param(
        "inner_1/attend_1/Tanh = Tanh x > a\ninner_1/norm_1/Tanh = Tanh a > b\nlast_1/Tanh = Tanh b > y",
        ["net/inner/attend"],
        ["inner/attend attention 1 0 0", "inner/norm tanh 1 0 0", "last tanh 1 0 0"],
        id="a nested model of few layers is taken apart",
    ),
    pytest.param(
        "heads_1/q_1/MatMul = MatMul x heads/q/kernel > q\n"
        "heads_1/k_1/MatMul = MatMul x heads/k/kernel > k\n"
        "heads_1/PartitionedCall = dot_product_0 q k > y",
        ["heads/dot_product"],
        ["heads attention 3 24 96"],
        id="attention is one layer with its projections",
    ),
    pytest.param(
        "both_1/forward_lstm_1/transpose = Transpose x > a\n"
        "LSTM__3 = LSTM a W__1 R__2 > b\n"
        "both_1/backward_lstm_1/Reverse = Identity b > c\n"
        "classes_1/MatMul = MatMul c classes/kernel > y",
        [],
        ["both recurrent 3 80 320", "classes dense 1 12 48"],
        id="a nameless LSTM of both directions",
    ),
    pytest.param(
        "before_1/MatMul = MatMul x before/kernel > a\n"
        "Gemm__12 = Gemm a attend/query/kernel > b\n"
        "attend_1/query_1/Add = Add b b > c\n"
        "attend_1/Softmax = Softmax c > d\n"
        "after_1/Add = Add b d > y",
        ["attend"],
        ["before dense 1 12 48", "attend attention 3 12 48", "after add 1 0 0"],
        id="a nameless product is known by its weight",
    ),
    pytest.param(  # tf2onnx keeps one of equal ops, named after any layer
        "second_1/Less = Less l l > mask\n"
        "first_1/MatMul = MatMul x first/kernel > a\n"
        "first_1/Where = Where mask a a > b\n"
        "second_1/MatMul = MatMul b second/kernel > c\n"
        "second_1/Where = Where mask c c > y",
        [],
        ["first dense 2 12 48", "second dense 3 12 48"],
        id="a mask that layers share",
    ),
    pytest.param(
        "conv_1/convolution = Conv x conv/kernel > a\n"
        "relu_1/Relu = Relu a > b\n"
        "conv_1/convolution__9 = Transpose b > c\n"
        "classes_1/MatMul = MatMul c classes/kernel > y",
        [],
        ["conv convolution 2 12 48", "relu relu 1 0 0", "classes dense 1 12 48"],
        id="a transposition behind later layers",
    ),
]


@pytest.mark.parametrize(("lines", "attention", "layers"), CASES)
def test_layers_are_read_in_the_order_in_which_they_run(tmp_path, lines, attention, layers):
    found = read_layers(written(tmp_path, lines), attention)
    assert [f"{a.name} {a.kind} {sum(a.operators.values())} {a.weights} {a.weight_bytes}" for a in found] == layers


def test_layers_of_a_bundle_cover_all_nodes_and_weights(exported):
    file = exported / "model.onnx"
    layers = read_layers(file, [layer["name"] for layer in read_manifest(exported)["layers"]])
    (attention,) = [layer for layer in layers if layer.kind == "attention"]
    assert (attention.name, attention.weights) == ("attention", 3 * (4 + 6 + 1))
    proto = onnx.load(file)
    assert sum(sum(layer.operators.values()) for layer in layers) == len(proto.graph.node)
    assert sum(layer.weights for layer in layers) == sum(
        numpy_helper.to_array(each).size
        for each in proto.graph.initializer
        if each.data_type == TensorProto.FLOAT and each.dims
    )


def test_external_weights_are_counted_without_reading_them(tmp_path):
    file = written(tmp_path, "large_1/MatMul = MatMul x large/kernel > y")
    proto = onnx.load(file)
    (weight,) = proto.graph.initializer
    weight.ClearField("raw_data")
    weight.dims[:] = [70_000, 70_000]
    weight.data_location = TensorProto.EXTERNAL
    weight.external_data.add(key="location", value="not_there.data")
    file.write_bytes(proto.SerializeToString())
    (layer,) = read_layers(file, [])
    assert (layer.weights, layer.weight_bytes) == (4_900_000_000, 19_600_000_000)


def test_damaged_onnx_file_is_refused(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(BundleError, match=r"onnx cannot read .*model\.onnx"):
        read_layers(tmp_path / "model.onnx", [])


def test_layers_need_onnx(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(ExportError, match="Reading the graph of an ONNX file needs more packages"):
        read_layers(tmp_path / "model.onnx", [])
