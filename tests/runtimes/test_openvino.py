"""Exports, checks and runs with `provider="openvino"`; nox -s runtimes installs onnxruntime-openvino."""

import subprocess
import sys

import all_attention_models as models
import numpy as np
import pytest
from keras import layers

from keras_attn_export import BundleError, ExportError, export_model, verify_bundle
from keras_attn_export._bundle.bench_bundle import bench_bundle
from keras_attn_export._cli.main import main
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES_FILE

pytestmark = [pytest.mark.nightly, pytest.mark.needs("runtimes")]
NAME = "OpenVINOExecutionProvider"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return export_model(
        models.build_three_layers(), tmp_path_factory.mktemp("openvino") / "bundle", provider="openvino"
    )


def test_openvino_export_matches_keras(bundle):
    assert bundle.report.provider == "openvino"
    assert bundle.report.passed
    assert max(row.of_limit for row in bundle.report.rows) < 0.5, "no limit factor is needed"
    assert {layer["form"] for layer in bundle.manifest["layers"]} == {"plain operators"}


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (models.build_score_variants, {}),
        (models.build_transformer_block, {"precision": "int8"}),
        (models.build_convolutions, {}),
        (models.build_recurrent_model, {}),
    ],
)
def test_openvino_runs_the_model(build, options, tmp_path):
    exported_bundle = export_model(build(), tmp_path / "bundle", provider=NAME, **options)
    assert exported_bundle.report.provider == "openvino"
    assert exported_bundle.report.passed


def test_model_with_a_loop_is_refused(tmp_path):
    with pytest.raises(
        ExportError,
        match=r"cannot load .* not found in graph cache\. OpenVINO's provider supports no `Loop`.*provider 'cpu'\.",
    ):
        export_model(models.build_recurrent_model(layers.GRU), tmp_path / "bundle", provider="openvino")
    assert not (tmp_path / "bundle").exists()


def test_file_for_another_provider_is_refused(tmp_path):
    exported_bundle = export_model(models.build_transformer_block(), tmp_path / "bundle")
    with pytest.raises(BundleError, match="An export with `provider='openvino'` writes attention without both"):
        verify_bundle(exported_bundle.path, provider="openvino")


def test_bundle_runs_on_openvino_by_every_entry_point(bundle, tmp_path, capsys):
    assert verify_bundle(bundle.path, provider=NAME).provider == "openvino"
    case = load_cases(bundle.path / CASES_FILE)[0]
    assert bundle.session(NAME) is bundle.session("openvino")
    assert bundle.session("openvino").get_providers()[0] == NAME
    outputs = bundle.run(case.inputs, provider="openvino")
    np.testing.assert_allclose(outputs["found"], case.outputs["found"], atol=1e-5)
    assert bench_bundle(bundle.path, provider="openvino", seconds=0.1).provider == "openvino"
    assert main(["verify", str(bundle.path), "--provider", NAME]) == 0
    assert f"match over 19 cases on {NAME}" in " ".join(capsys.readouterr().out.split())
    page = bundle.write_report(tmp_path / "page.html", inputs=case.inputs, provider="openvino")
    assert "(openvino)" in page.read_text(encoding="utf-8")
    command = [sys.executable, str(bundle.path / "verify.py"), "--provider", "openvino"]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == f"all 38 outputs match on {NAME}."
