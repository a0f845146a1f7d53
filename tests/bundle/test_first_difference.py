"""`verify --trace`: the first tensor of the ONNX file that differs from the tensor of the SavedModel."""

import json
import re

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from onnx import TensorProto, helper
from small_bundle import alter_golden_outputs, assert_one_line, read_manifest, refresh_checksum, run_python

from keras_attn_export import Bundle, BundleError, export_model
from keras_attn_export._bundle.first_difference import (
    _find_best_match,
    _permute_axes,
    find_first_difference,
    format_layers,
)
from keras_attn_export._bundle.onnx_tensors import OnnxGraph
from keras_attn_export._bundle.saved_model_tensors import SavedGraph
from keras_attn_export._format import names
from keras_attn_export._format.cases import load_cases

TOLERANCE = {"relative": 1e-5, "absolute": 1e-6}
CASES = ("base", "batch 2")


def find_difference(folder, cases=CASES, tolerance=TOLERANCE):
    """Compare without the checks of `load_bundle`, which would refuse an altered bundle."""
    return find_first_difference(Bundle(folder, read_manifest(folder)), cases, tolerance)


def scale_weight(folder, name_part, factor=1.5):
    """Multiply the only weight of the ONNX file that has `name_part` in its name."""
    model = onnx.load(folder / "model.onnx")
    floats = [tensor for tensor in model.graph.initializer if tensor.data_type == TensorProto.FLOAT]
    (weight,) = (tensor for tensor in floats if name_part in tensor.name)
    weight.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(weight) * np.float32(factor), weight.name))
    onnx.save(model, folder / "model.onnx")


@pytest.mark.slow
def test_trace_names_the_layer_of_a_changed_weight(bundle):
    scale_weight(bundle, "/W_q_1/Cast/ReadVariableOp")
    result = find_difference(bundle)
    assert (result.first.layer, result.first.dtype, result.first.passed) == ("attention/W_q", "float32", False)
    assert result.first.tensor.endswith("/W_q_1/Cast/ReadVariableOp:0")
    assert "`attention/W_q`" in result.finding
    rows = {row.layer: row for row in result.layers}
    assert list(rows) == ["attention/W_q", "attention/W_k", "attention"]
    assert rows["attention"].differing > 0
    assert result.first.max_rel == pytest.approx(0.5, rel=1e-5)
    assert rows["attention/W_k"].differing == 0
    assert [line.split()[0] for line in format_layers(result.layers, result.first)[1:]] == [*rows]


@pytest.mark.slow
@pytest.mark.parametrize("opset", [18, 24])
def test_trace_names_the_layer_of_a_changed_operator(tmp_path, opset):
    dense_layers = [layers.Dense(3, "tanh", name="before"), layers.Dense(2, name="after")]
    folder = export_model(keras.Sequential([keras.Input((4,)), *dense_layers]), tmp_path / "bundle", opset=opset).path
    onnx_model = onnx.load(folder / "model.onnx")
    (tanh,) = (node for node in onnx_model.graph.node if node.op_type == "Tanh")
    tanh.op_type = "Sigmoid"
    onnx.save(onnx_model, folder / "model.onnx")
    result = find_difference(folder, cases=("base",))
    assert (result.first.layer, result.first.tensor.rpartition("/")[2]) == ("before", "Tanh:0")


def test_trace_names_a_changed_output(bundle):
    model = onnx.load(bundle / "model.onnx")
    (product,) = (node for node in model.graph.node if "context" in node.output)
    product.output[0] = "before"
    model.graph.node.append(helper.make_node("Neg", ["before"], ["context"]))
    onnx.save(model, bundle / "model.onnx")
    first = find_difference(bundle).first
    assert (first.layer, first.tensor) == ("attention", "context")


@pytest.mark.slow
def test_trace_of_an_unchanged_bundle_finds_no_difference(exported):
    result = find_difference(exported)
    assert (result.first, result.cases) == (None, CASES)
    assert result.finding.startswith("No tensor differs when onnxruntime returns every tensor")
    assert all(row.differing == 0 and row.max_rel < 1e-5 for row in result.layers)
    assert sum(row.tensors for row in result.layers) > 5


@pytest.mark.slow
def test_trace_names_changed_golden_outputs(bundle):
    alter_golden_outputs(bundle)
    (_, second, *_) = (case.name for case in load_cases(bundle / names.CASES_FILE))
    result = find_difference(bundle, [second])
    assert result.first is None
    assert "parity/cases.npz or saved_model/ is from another export" in result.finding


@pytest.mark.slow
def test_trace_follows_loops_convolutions_and_shared_names(tmp_path):
    stack = [
        layers.Conv1D(5, 3, padding="same", activation="gelu", name="convolution"),
        layers.LayerNormalization(name="norm"),
        layers.LSTM(4, return_sequences=True, name="memory"),
        layers.Softmax(name="shares"),
        layers.Dense(3, name="classes"),
    ]
    folder = export_model(keras.Sequential([keras.Input((None, 6)), *stack]), tmp_path / "bundle").path
    layer_names = [layer.name for layer in stack]
    for layer, op in (("convolution", "Conv"), ("memory", "LSTM"), ("classes", "MatMul")):
        original = (folder / "model.onnx").read_bytes()
        graph = onnx.load(folder / "model.onnx").graph
        weights = {tensor.name for tensor in graph.initializer if tensor.data_type == TensorProto.FLOAT}
        (node,) = (node for node in graph.node if node.op_type == op)
        scale_weight(folder, next(name for name in node.input if name in weights))
        result = find_difference(folder, ["base"])
        if layer == "memory":  # tf2onnx moves its transpose past the softmax: the LSTM's output has no name
            assert result.first.tensor.endswith("/shares_1/Softmax:0")
            assert re.search(r"inputs agree \(from `memory`\); between them are .*LSTM", result.finding)
        else:
            assert result.first.layer == layer
        assert [row.layer for row in result.layers] == layer_names
        assert all(row.differing == 0 for row in result.layers[: layer_names.index(layer)])
        (folder / "model.onnx").write_bytes(original)


@pytest.mark.slow
def test_trace_reads_external_weights(bundle):
    scale_weight(bundle, "/W_k_1/Cast/ReadVariableOp")
    model = onnx.load(bundle / "model.onnx")
    onnx.save(model, bundle / "model.onnx", save_as_external_data=True, location="model.onnx.data", size_threshold=90)
    result = find_difference(bundle)
    assert (result.first.layer, result.first.tensor.rpartition("/")[2]) == ("attention/W_k", "Tensordot:0")


@pytest.mark.parametrize("fill", [-np.inf, -1e9])
def test_scores_next_to_fill_values_are_compared(fill):
    expected_scores, changed_scores = np.array([1, 2, fill], "float32"), np.array([1, 2.1, fill], "float32")
    assert _find_best_match("base", "scores", expected_scores, [expected_scores], TOLERANCE)["passed"]
    row = _find_best_match("base", "scores", expected_scores, [changed_scores], TOLERANCE)
    assert row["max_rel"] == pytest.approx(0.05)
    assert not row["passed"]
    unmasked_scores = np.array([1, 2, 3], "float32")
    assert not _find_best_match("base", "scores", expected_scores, [unmasked_scores], TOLERANCE)["passed"]
    float16_scores = np.array([1, 2, max(fill, -65504)], "float16")
    assert _find_best_match("base", "scores", expected_scores, [float16_scores], TOLERANCE)["passed"]


def test_tensor_with_permuted_axes_is_equal():
    array = np.arange(24).reshape(2, 3, 4)
    (permutation,) = _permute_axes(array.transpose(2, 0, 1), (2, 3, 4))
    np.testing.assert_array_equal(permutation, array)
    assert list(_permute_axes(array, (4, 6))) == []
    assert len(list(_permute_axes(np.zeros((3, 3)), (3, 3)))) == 2


def test_several_nodes_of_one_name_are_versions_of_a_tensor(tmp_path):
    reciprocal = "norm/Rsqrt.Reciprocal"
    chain = [("Sqrt", "x", "norm/Rsqrt:0"), ("Reciprocal", "norm/Rsqrt:0", reciprocal)]
    chain.append(("Neg", reciprocal, "y"))
    nodes = [helper.make_node(operator, [source], [target]) for operator, source, target in chain]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "one", values[:1], values[1:])
    onnx.save(helper.make_model(graph), tmp_path / "model.onnx")
    onnx_graph = OnnxGraph(tmp_path / "model.onnx")
    assert onnx_graph.tensors == ["norm/Rsqrt:0", reciprocal, "y"]
    assert onnx_graph.find_versions("norm/Rsqrt:0") == ["norm/Rsqrt:0", reciprocal]
    assert onnx_graph.find_versions("y") == ["y"]
    assert onnx_graph.sources["y"] == {reciprocal}


def test_trace_refuses_files_that_cannot_be_loaded(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"no model")
    with pytest.raises(BundleError, match=r"onnx cannot read .*model\.onnx"):
        OnnxGraph(tmp_path / "model.onnx")
    with pytest.raises(BundleError, match="TensorFlow cannot load"):
        SavedGraph(tmp_path, "model", ())


@pytest.fixture
def altered_bundle(bundle):
    scale_weight(bundle, "/W_k_1/Cast/ReadVariableOp")
    refresh_checksum(bundle, "model.onnx")
    return bundle


@pytest.mark.slow
@pytest.mark.parametrize("has_tensorflow", [True, False])
def test_verify_trace_names_the_layer_and_needs_tensorflow_only(altered_bundle, tmp_path, has_tensorflow):
    """The trace needs neither Keras nor the code of the model."""
    blocked = ("keras", "keras_attn", "tf2onnx") if has_tensorflow else ("tensorflow",)
    result = run_python("-m", "keras_attn_export", "verify", altered_bundle, "--trace", cwd=tmp_path, blocked=blocked)
    assert result.returncode == 1
    assert_one_line(result.stderr)
    assert "FAILED: is outside the tolerance" in result.stdout
    if has_tensorflow:
        (row,) = (line for line in result.stdout.splitlines() if line.endswith(", the first is here"))
        assert row.startswith("attention/W_k ")
        assert "The first tensor that differs is in layer `attention/W_k`:" in " ".join(result.stdout.split())
    else:
        assert "Finding the first difference needs more packages" in result.stderr


@pytest.mark.slow
def test_verify_trace_prints_json(altered_bundle, call):
    code, out, err = call("verify", altered_bundle, "--trace", "--json")
    assert code == 1
    assert_one_line(err)
    assert json.loads(out)["first_difference"]["first"]["layer"] == "attention/W_k"


def test_verify_trace_of_an_unchanged_bundle_reports_no_difference(exported, succeeds):
    out = succeeds("verify", exported, "--trace")
    assert out.splitlines()[-1] == "Nothing differs, so there is nothing to trace."
