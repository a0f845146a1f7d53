"""Attention in loops and branches: lowering, depth of the calls, parity, and the first difference."""

import shutil

import numpy as np
import onnx
import pytest
from attention_loop_models import (
    LENGTH,
    BufferLoop,
    GreedyLoop,
    NestedLoop,
    RefinementLoop,
    ShrinkingLoop,
    build_loop_model,
    draw_samples,
)
from small_bundle import refresh_checksum
from unchecked_export import UncheckedExport

from keras_attn_export import export_model, load_bundle, verify_bundle
from keras_attn_export._bundle.first_difference import find_first_difference
from keras_attn_export._onnx import external_data
from keras_attn_export._onnx.traced_model import FUNCTION_DOMAIN
from keras_attn_export._onnx.traversal import iter_nodes, iter_subgraphs
from keras_attn_export._tracing import weight_inputs


def load_model(bundle):
    return onnx.load(str(bundle.path / "model.onnx"), load_external_data=False)


def find_enclosing_nodes(graph, parents=()):
    """Return the operators around each attention call, outermost first."""
    enclosing = {}
    for node in graph.node:
        if node.domain == FUNCTION_DOMAIN and not node.op_type.endswith("_before_loop"):
            enclosing[node.op_type] = parents
        for inner in iter_subgraphs(node):
            enclosing |= find_enclosing_nodes(inner, (*parents, node.op_type))
    return enclosing


def assert_equals_keras(model, run, **sizes):
    inputs = draw_samples(model, **sizes)
    outputs, expected = run(inputs), model(inputs)
    for name, array in expected.items():
        assert outputs[name].shape == array.shape
        np.testing.assert_allclose(outputs[name], array, rtol=1e-4, atol=1e-5)
    return outputs


@pytest.fixture(scope="module")
def greedy(tmp_path_factory):
    """Model of a greedy decoder, and its bundle."""
    model = build_loop_model(GreedyLoop)
    path = tmp_path_factory.mktemp("loops") / "greedy"
    return model, export_model(model, path, sample_inputs=draw_samples(model), lowering="adaptive")


@pytest.mark.slow
def test_decoder_keeps_its_layer_in_its_loop(greedy):
    _, bundle = greedy
    proto = load_model(bundle)
    assert find_enclosing_nodes(proto.graph) == {"additive_0": ("Loop",)}
    assert "additive_0_before_loop" in {node.op_type for node in proto.graph.node}
    assert [function.name for function in proto.functions] == ["additive_0", "additive_0_before_loop"]
    (layer,) = bundle.manifest["layers"]
    assert (layer["name"], layer["lowering"]) == ("loop/attention", "adaptive")
    assert layer["form"] == "plain operators, since the model fixes the sizes"
    assert verify_bundle(bundle.path).passed


def test_loop_that_ends_early_returns_all_its_steps(greedy):
    model, bundle = greedy
    outputs = assert_equals_keras(model, bundle.run, rows=1, length=9)
    assert outputs["tokens"].shape == (1, LENGTH)
    for rows in (2, 5):
        assert_equals_keras(model, bundle.run, rows=rows)


def test_constant_memory_is_no_state_of_the_loop(greedy):
    """The loop has four states: step number, cell state, tokens and finished rows."""
    (loop,) = [node for node in load_model(greedy[1]).graph.node if node.op_type == "Loop"]
    assert len(loop.input) == 2 + 4


@pytest.mark.slow
def test_difference_in_a_loop_names_its_layer(greedy, tmp_path):
    folder = shutil.copytree(greedy[1].path, tmp_path / "faulty")
    proto = load_model(greedy[1])
    next(node for node in proto.functions[0].node if node.op_type == "Tanh").op_type = "Sigmoid"
    onnx.save(proto, str(folder / "model.onnx"))
    refresh_checksum(folder, "model.onnx")
    difference = find_first_difference(load_bundle(folder), ["samples"], {"relative": 1e-3, "absolute": 1e-4})
    assert difference.first is not None
    assert difference.first.layer == "loop"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "lowering", "opset", "depths"),
    [
        (NestedLoop, "adaptive", 24, [("If",), ("If",), ("Loop", "If"), ("Loop", "Loop")]),
        (NestedLoop, "portable", None, []),
        (ShrinkingLoop, "adaptive", None, [("Loop",)] * 2),  # ended rows are dropped, and a cache grows
        (BufferLoop, "fused", None, []),  # loops of Keras
    ],
)
def test_attention_calls_stay_in_their_loops(layer, lowering, opset, depths, tmp_path):
    traced = UncheckedExport(build_loop_model(layer))
    file = traced.write(tmp_path, lowering, opset, large=True)
    assert sorted(find_enclosing_nodes(file.traced.model.graph).values()) == depths
    assert file.lowerings == {"attention": lowering if depths else "portable"}
    assert_equals_keras(traced.model, file.run)
    assert_equals_keras(traced.model, file.run, rows=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "lowering", "precision"),
    [(NestedLoop, "adaptive", "int8"), (NestedLoop, "portable", "float16"), (ShrinkingLoop, "adaptive", "float32")],
)
def test_models_with_loops_export_and_match(layer, lowering, precision, tmp_path):
    model = build_loop_model(layer)
    assert export_model(model, tmp_path / "bundle", lowering=lowering, precision=precision).report.passed


@pytest.mark.slow
def test_products_in_a_loop_have_both_forms_by_size(tmp_path, monkeypatch):
    """The low limits put the weights of the loop into a second file."""
    monkeypatch.setattr(external_data, "MAX_EMBEDDED_WEIGHT_BYTES", 100)
    monkeypatch.setattr(weight_inputs, "MIN_INPUT_BYTES", 64)
    bundle = export_model(build_loop_model(RefinementLoop), tmp_path / "bundle")
    proto = load_model(bundle)
    assert set(find_enclosing_nodes(proto.graph).values()) == {("Loop",)}
    assert [layer["lowering"] for layer in bundle.manifest["layers"]] == ["adaptive"] * 2
    assert bundle.report.coverage["small_only"] == []
    assert not any("long enough" in warning for warning in bundle.report.warnings)
    external = {tensor.name for tensor in proto.graph.initializer if tensor.data_location == onnx.TensorProto.EXTERNAL}
    assert external
    loop = next(node for node in proto.graph.node if node.op_type == "Loop")
    assert external & {name for body in iter_subgraphs(loop) for node in iter_nodes(body) for name in node.input}
