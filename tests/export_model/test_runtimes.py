"""Files with `target="standard"`: standard operators only, and equal outputs in the reference evaluator of onnx."""

import all_attention_models as models
import numpy as np
import onnx
import pytest
from keras import layers
from onnx.reference import ReferenceEvaluator

from keras_attn_export import ExportError, export_model, verify_bundle
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.compare import compare
from keras_attn_export._format.files import sha256
from keras_attn_export._format.manifest import read_manifest
from keras_attn_export._format.names import CASES_FILE, MODEL
from keras_attn_export._onnx import external_data
from keras_attn_export._onnx.external_data import DATA_FILE
from keras_attn_export._onnx.traversal import iter_nodes
from keras_attn_export._passes.finalize import check_standard
from keras_attn_export._tracing import weight_inputs

EXPORTS = {
    "three layers": (models.build_three_layers, {}),
    "fused": (models.build_three_layers, {"lowering": "fused"}),
    "float16": (models.build_three_layers, {"precision": "float16"}),
    "int8": (models.build_three_layers, {"precision": "int8"}),
    "scores": (models.build_score_variants, {}),
    "block": (models.build_transformer_block, {}),
    "convolutions": (models.build_convolutions, {}),
    "LSTM": (models.build_recurrent_model, {}),
}


def compare_in_reference_evaluator(folder, model=None):
    """Run the golden cases in the reference evaluator of onnx, and return the rows of the comparison with Keras."""
    evaluator = ReferenceEvaluator(model or str(folder / MODEL))
    cases = load_cases(folder / CASES_FILE)
    limits, rows = read_manifest(folder)["parity"]["tolerance"], []
    for case in cases:
        with np.errstate(all="ignore"):  # an unused branch of a sigmoid overflows
            outputs = dict(zip(evaluator.output_names, evaluator.run(None, case.inputs), strict=True))
        rows += compare(case, outputs, limits)
    return rows


@pytest.mark.slow
@pytest.mark.parametrize(("build", "options"), EXPORTS.values(), ids=EXPORTS)
def test_standard_file_matches_in_the_reference_evaluator(build, options, tmp_path):
    bundle = export_model(build(), tmp_path / "bundle", target="standard", **options)
    model = onnx.load(bundle.path / MODEL)
    onnx.checker.check_model(model, full_check=True)
    assert [opset.domain for opset in model.opset_import] == [""]
    assert not model.functions
    operators = {node.op_type for node in iter_nodes(model.graph)}
    assert operators.isdisjoint({"If", "Loop", "Scan"})
    assert ("Attention" in operators) == ("lowering" in options)
    rows = compare_in_reference_evaluator(bundle.path)
    assert len(rows) == len(bundle.report.rows)
    assert not [row for row in rows if not row["passed"]]


@pytest.mark.slow
def test_reference_evaluator_finds_a_changed_axis(tmp_path):
    bundle = export_model(models.build_transformer_block(), tmp_path / "bundle", target="standard")
    model = onnx.load(bundle.path / MODEL)
    softmax = [node for node in model.graph.node if node.op_type == "Softmax"][-1]
    softmax.attribute.append(onnx.helper.make_attribute("axis", 1))
    rows = compare_in_reference_evaluator(bundle.path, model)
    assert {row["case"] for row in rows if not row["passed"]} >= {"base"}


@pytest.mark.slow
def test_standard_file_with_external_weights_matches(tmp_path, monkeypatch):
    monkeypatch.setattr(external_data, "MAX_EMBEDDED_WEIGHT_BYTES", 100)
    monkeypatch.setattr(weight_inputs, "MIN_INPUT_BYTES", 64)
    bundle = export_model(models.build_transformer_block(), tmp_path / "bundle", target="standard")
    model = onnx.load(bundle.path / MODEL, load_external_data=False)
    onnx.checker.check_model(str(bundle.path / MODEL), full_check=True)
    metadata = {entry.key: entry.value for entry in model.metadata_props}
    assert metadata[f"sha256:{DATA_FILE}"] == bundle.manifest["sha256"][DATA_FILE] == sha256(bundle.path / DATA_FILE)
    assert verify_bundle(bundle.path).passed
    assert all(row["passed"] for row in compare_in_reference_evaluator(bundle.path))


def test_nonstandard_operators_are_refused(tmp_path):
    text = """
        <ir_version: 8, opset_import: ["": 18, "com.microsoft": 1, "own": 1]>
        g (float[2] x) => (float[2] y) { a = com.microsoft.Gelu (x)  y = own.f (a) }
        <domain: "own", opset_import: ["": 18]> f (a) => (b) { b = Tanh (a) }
    """
    onnx.save(onnx.parser.parse_model(text), tmp_path / "model.onnx")
    with pytest.raises(ExportError, match=r"needs: com\.microsoft\.Gelu, own\.f, the function f\. Leave out"):
        check_standard(tmp_path / "model.onnx")


@pytest.mark.slow
def test_reference_evaluator_concatenates_scan_outputs(tmp_path):
    """onnx 1.23.2 concatenates the scan outputs of a `Loop` along their first axis; ONNX stacks them on a new axis."""
    bundle = export_model(models.build_recurrent_model(layers.GRU), tmp_path / "bundle", target="standard")
    with pytest.raises(RuntimeError, match="Inconsistent permutation"):
        compare_in_reference_evaluator(bundle.path)
