"""Attention inside of loops and branches keeps its lowering in the file, and the file is proven like any other."""

import shutil

import numpy as np
import onnx
import pytest
from bundles import reseal
from loop_models import LENGTH, Apart, Buffered, Greedy, Leaving, Nested, Refined, looped, samples_of

from keras_attn_export import export_model, load_bundle, verify_bundle
from keras_attn_export._analysis.first_difference import first_difference
from keras_attn_export._tracing import weights
from keras_attn_export._tracing.attention_calls import DOMAIN
from keras_attn_export._tracing.nodes import all_nodes, graphs_in


def file_of(bundle):
    return onnx.load(str(bundle.path / "model.onnx"), load_external_data=False)


def depth_of_calls(graph, above=()):
    """For each call of attention the nodes that it is in, outermost first."""
    found = {}
    for node in graph.node:
        if node.domain == DOMAIN and not node.op_type.endswith("_before_loop"):
            found[node.op_type] = above
        for inner in graphs_in(node):
            found |= depth_of_calls(inner, (*above, node.op_type))
    return found


def forms(bundle):
    return {layer["name"].split("/")[1]: (layer["lowering"], layer["form"]) for layer in bundle.manifest["layers"]}


def assert_like_keras(model, bundle, **sizes):
    inputs = samples_of(model, **sizes)
    found, expected = bundle.run(inputs), model(inputs)
    for name, array in expected.items():
        assert found[name].shape == array.shape
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)
    return found


@pytest.fixture(scope="module")
def greedy(tmp_path_factory):
    model = looped(Greedy)
    path = tmp_path_factory.mktemp("loops") / "greedy"
    return model, export_model(model, path, sample_inputs=samples_of(model), lowering="adaptive", report=True)


def test_a_decoder_keeps_its_layer_in_its_loop(greedy):
    _, bundle = greedy
    proto = file_of(bundle)
    assert depth_of_calls(proto.graph) == {"additive_0": ("Loop",)}
    assert "additive_0_before_loop" in {node.op_type for node in proto.graph.node}
    assert [function.name for function in proto.functions] == ["additive_0", "additive_0_before_loop"]
    assert forms(bundle)["attention"] == ("adaptive", "plain operators, by the sizes that the model fixes")
    assert verify_bundle(bundle.path).passed


def test_a_loop_that_ends_early_gives_all_its_steps(greedy):
    model, bundle = greedy
    found = assert_like_keras(model, bundle, rows=1, length=9)
    assert found["tokens"].shape == (1, LENGTH)
    for rows in (2, 5):
        assert_like_keras(model, bundle, rows=rows)


def test_a_loop_reads_the_memory_where_it_is(greedy):
    """What does not change is no state: of the numbers, the state of the cell, the tokens and who is done are."""
    (loop,) = [node for node in file_of(greedy[1]).graph.node if node.op_type == "Loop"]
    assert len(loop.input) == 2 + 4


def test_the_report_page_names_what_is_in_a_loop(greedy):
    page = greedy[1].path.with_name("greedy.html").read_text(encoding="utf-8")
    assert "loop/attention" in page


def test_a_difference_that_begins_in_a_loop_is_named_with_its_layer(greedy, tmp_path):
    folder = shutil.copytree(greedy[1].path, tmp_path / "wrong")
    proto = file_of(greedy[1])
    next(node for node in proto.functions[0].node if node.op_type == "Tanh").op_type = "Sigmoid"
    onnx.save(proto, str(folder / "model.onnx"))
    reseal(folder, "model.onnx")
    found = first_difference(load_bundle(folder), ["samples"], {"relative": 1e-3, "absolute": 1e-4})
    assert found.first is not None
    assert found.first.layer == "loop"


@pytest.mark.parametrize(
    ("lowering", "opset", "precision"),
    [
        pytest.param("portable", None, "float16", marks=pytest.mark.out_of_turn),
        ("ragged", 24, "int8"),
        pytest.param("auto", None, "float32", marks=pytest.mark.out_of_turn),
    ],
)
def test_loops_within_loops_and_branches(lowering, opset, precision, tmp_path):
    model = looped(Nested)
    bundle = export_model(model, tmp_path / "bundle", lowering=lowering, opset=opset, precision=precision)
    assert bundle.report.passed
    depths = depth_of_calls(file_of(bundle).graph)
    lowerings = set(forms(bundle)["attention"][0].split(" and "))
    assert lowerings <= {"portable", "adaptive", "ragged"} if lowering == "auto" else lowerings == {lowering}
    if lowering == "ragged":
        assert sorted(depths.values()) == [("If",), ("If",), ("Loop", "If"), ("Loop", "Loop")]
    if lowering == "portable":
        assert not depths
    if precision == "float32":
        assert_like_keras(model, bundle)


def test_rows_that_leave_and_a_cache_that_grows(tmp_path):
    model = looped(Leaving)
    bundle = export_model(model, tmp_path / "bundle", lowering="ragged")
    assert set(depth_of_calls(file_of(bundle).graph).values()) == {("Loop",)}
    assert_like_keras(model, bundle)


def test_loops_of_keras(tmp_path):
    model = looped(Buffered)
    bundle = export_model(model, tmp_path / "bundle", lowering="fused")
    assert forms(bundle)["attention"] == ("portable", "plain operators")
    assert_like_keras(model, bundle)


def test_products_in_a_loop_take_both_forms_by_size(tmp_path, monkeypatch):
    """Weights of the loop lie in a second file, as if there were gigabytes of them."""
    monkeypatch.setattr(weights, "LIMIT", 100)
    monkeypatch.setattr(weights, "LARGE", 64)
    model = looped(Refined)
    bundle = export_model(model, tmp_path / "bundle")
    proto = file_of(bundle)
    assert set(depth_of_calls(proto.graph).values()) == {("Loop",)}
    told = forms(bundle)
    assert told["ours"][0] == told["stock"][0] == "adaptive"
    assert bundle.report.coverage["small_only"] == []
    assert bundle.report.warnings == ()
    apart = {each.name for each in proto.graph.initializer if each.data_location == onnx.TensorProto.EXTERNAL}
    assert apart
    loop = next(node for node in proto.graph.node if node.op_type == "Loop")
    assert apart & {name for inner in graphs_in(loop) for node in all_nodes(inner) for name in node.input}


def test_a_function_and_a_condition_keep_what_is_in_them(tmp_path):
    model = looped(Apart)
    bundle = export_model(model, tmp_path / "bundle", lowering="ragged")
    assert not depth_of_calls(file_of(bundle).graph)
    lowering, form = forms(bundle)["attention"]
    assert lowering == "portable"
    assert "is in a `tf.function`" in form
    assert_like_keras(model, bundle)
