"""Attention inside of loops and branches keeps its lowering in the file, and the file is proven like any other."""

import shutil

import numpy as np
import onnx
import pytest
from attention_loop_models import LENGTH, Buffered, Greedy, Leaving, Nested, Refined, build_loop_model, draw_samples
from small_bundle import refresh_checksum
from unchecked_export import UncheckedExport

from keras_attn_export import export_model, load_bundle, verify_bundle
from keras_attn_export._bundle.first_difference import find_first_difference
from keras_attn_export._onnx import external_data
from keras_attn_export._onnx.traced_model import FUNCTION_DOMAIN
from keras_attn_export._onnx.traversal import iter_nodes, iter_subgraphs
from keras_attn_export._tracing import weight_inputs


def file_of(bundle):
    return onnx.load(str(bundle.path / "model.onnx"), load_external_data=False)


def depth_of_calls(graph, above=()):
    """For each call of attention the nodes that it is in, outermost first."""
    found = {}
    for node in graph.node:
        if node.domain == FUNCTION_DOMAIN and not node.op_type.endswith("_before_loop"):
            found[node.op_type] = above
        for inner in iter_subgraphs(node):
            found |= depth_of_calls(inner, (*above, node.op_type))
    return found


def assert_like_keras(model, run, **sizes):
    inputs = draw_samples(model, **sizes)
    found, expected = run(inputs), model(inputs)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    return found


@pytest.fixture(scope="module")
def greedy(tmp_path_factory):
    model = build_loop_model(Greedy)
    path = tmp_path_factory.mktemp("loops") / "greedy"
    return model, export_model(model, path, sample_inputs=draw_samples(model), lowering="adaptive")


@pytest.mark.slow
def test_decoder_keeps_its_layer_in_its_loop(greedy):
    _, bundle = greedy
    proto = file_of(bundle)
    assert depth_of_calls(proto.graph) == {"additive_0": ("Loop",)}
    assert "additive_0_before_loop" in {node.op_type for node in proto.graph.node}
    assert [function.name for function in proto.functions] == ["additive_0", "additive_0_before_loop"]
    (layer,) = bundle.manifest["layers"]
    assert (layer["name"], layer["lowering"]) == ("loop/attention", "adaptive")
    assert layer["form"] == "plain operators, since the model fixes the sizes"
    assert verify_bundle(bundle.path).passed


def test_loop_that_ends_early_returns_all_its_steps(greedy):
    model, bundle = greedy
    found = assert_like_keras(model, bundle.run, rows=1, length=9)
    assert found["tokens"].shape == (1, LENGTH)
    for rows in (2, 5):
        assert_like_keras(model, bundle.run, rows=rows)


def test_constant_memory_is_no_state_of_the_loop(greedy):
    """What does not change is no state: of the numbers, the state of the cell, the tokens and who is done are."""
    (loop,) = [node for node in file_of(greedy[1]).graph.node if node.op_type == "Loop"]
    assert len(loop.input) == 2 + 4


@pytest.mark.slow
def test_difference_in_a_loop_names_its_layer(greedy, tmp_path):
    folder = shutil.copytree(greedy[1].path, tmp_path / "wrong")
    proto = file_of(greedy[1])
    next(node for node in proto.functions[0].node if node.op_type == "Tanh").op_type = "Sigmoid"
    onnx.save(proto, str(folder / "model.onnx"))
    refresh_checksum(folder, "model.onnx")
    found = find_first_difference(load_bundle(folder), ["samples"], {"relative": 1e-3, "absolute": 1e-4})
    assert found.first is not None
    assert found.first.layer == "loop"


# ------------------------------------------------- what is in other loops


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "lowering", "opset", "depths"),
    [
        (Nested, "adaptive", 24, [("If",), ("If",), ("Loop", "If"), ("Loop", "Loop")]),
        (Nested, "portable", None, []),
        (Leaving, "adaptive", None, [("Loop",)] * 2),  # rows that leave, and a cache that grows
        (Buffered, "fused", None, []),  # loops of Keras
    ],
)
def test_attention_calls_stay_in_their_loops(layer, lowering, opset, depths, tmp_path):
    traced = UncheckedExport(build_loop_model(layer))
    file = traced.write(tmp_path, lowering, opset, large=True)
    assert sorted(depth_of_calls(file.traced.model.graph).values()) == depths
    assert file.lowerings == {"attention": lowering if depths else "portable"}
    assert_like_keras(traced.model, file.run)
    assert_like_keras(traced.model, file.run, rows=2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("layer", "lowering", "precision"),
    [(Nested, "adaptive", "int8"), (Nested, "portable", "float16"), (Leaving, "adaptive", "float32")],
)
def test_models_with_loops_export_and_match(layer, lowering, precision, tmp_path):
    assert export_model(
        build_loop_model(layer), tmp_path / "bundle", lowering=lowering, precision=precision
    ).report.passed


@pytest.mark.slow
def test_products_in_a_loop_take_both_forms_by_size(tmp_path, monkeypatch):
    """Weights of the loop lie in a second file, as if there were gigabytes of them."""
    monkeypatch.setattr(external_data, "MAX_EMBEDDED_WEIGHT_BYTES", 100)
    monkeypatch.setattr(weight_inputs, "MIN_INPUT_BYTES", 64)
    bundle = export_model(build_loop_model(Refined), tmp_path / "bundle")
    proto = file_of(bundle)
    assert set(depth_of_calls(proto.graph).values()) == {("Loop",)}
    assert [layer["lowering"] for layer in bundle.manifest["layers"]] == ["adaptive"] * 2
    assert bundle.report.coverage["small_only"] == []
    assert not any("long enough" in warning for warning in bundle.report.warnings)
    apart = {each.name for each in proto.graph.initializer if each.data_location == onnx.TensorProto.EXTERNAL}
    assert apart
    loop = next(node for node in proto.graph.node if node.op_type == "Loop")
    assert apart & {name for inner in iter_subgraphs(loop) for node in iter_nodes(inner) for name in node.input}
