"""`provider="openvino"` all the way, where onnxruntime-openvino is installed: nox -s runtimes."""

import subprocess
import sys

import numpy as np
import onnx
import pyarrow
import pytest
import runtime_models as models
from keras import layers
from pyarrow import parquet

from keras_attn_export import BundleError, ExportError, ProviderError, export_model, predict, verify_bundle
from keras_attn_export._analysis.bench_bundle import bench_bundle
from keras_attn_export._cli.main import main
from keras_attn_export._standalone import verify

pytestmark = [pytest.mark.nightly, pytest.mark.needs("runtimes")]
NAME = "OpenVINOExecutionProvider"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return export_model(models.three_layers(), tmp_path_factory.mktemp("openvino") / "bundle", provider="openvino")


def test_the_proof_is_of_it(bundle):
    assert bundle.report.provider == "openvino"
    assert bundle.report.passed
    assert max(row.of_limit for row in bundle.report.rows) < 0.5, "no leniency is needed"
    assert {layer["form"] for layer in bundle.manifest["layers"]} == {"plain operators"}


@pytest.mark.parametrize(
    ("build", "options"),
    [
        (models.scores, {}),
        (models.block, {"precision": "float16"}),
        (models.block, {"precision": "int8"}),
        (models.convolutions, {}),
        (models.recurrent, {}),
    ],
)
def test_what_else_it_runs(build, options, tmp_path):
    found = export_model(build(), tmp_path / "bundle", provider=NAME, **options)
    assert found.report.provider == "openvino"
    assert found.report.passed


def test_a_loop_of_the_models_own_is_refused(tmp_path):
    with pytest.raises(
        ExportError,
        match=r"cannot load .* not found in graph cache\. OpenVINO's provider loads no `Loop`.* runs on 'cpu'\.",
    ):
        export_model(models.recurrent(layers.GRU), tmp_path / "bundle", provider="openvino")
    assert not (tmp_path / "bundle").exists()


def test_a_file_for_another_provider_is_refused(tmp_path):
    found = export_model(models.block(), tmp_path / "bundle")
    with pytest.raises(BundleError, match="Those of attention an export with `provider='openvino'` leaves out"):
        verify_bundle(found.path, provider="openvino")


def test_every_way_to_run_a_bundle(bundle, tmp_path, capsys):
    assert verify_bundle(bundle.path, provider=NAME).provider == "openvino"
    case = verify.load_cases(bundle.path / verify.CASES)[0]
    assert bundle.session(NAME) is bundle.session("openvino")
    assert bundle.session("openvino").get_providers()[0] == NAME
    found = bundle.run(case.inputs, provider="openvino")
    np.testing.assert_allclose(found["found"], case.outputs["found"], atol=1e-5)
    assert bench_bundle(bundle.path, provider="openvino", seconds=0.1).provider == "openvino"
    assert main(["verify", str(bundle.path), "--provider", NAME]) == 0
    assert f"match over 19 cases on {NAME}" in " ".join(capsys.readouterr().out.split())
    page = bundle.write_report(tmp_path / "page.html", inputs=case.inputs, provider="openvino")
    assert "(openvino)" in page.read_text(encoding="utf-8")
    command = [sys.executable, str(bundle.path / "verify.py"), "--provider", "openvino"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == f"38 of 38 outputs match on {NAME}."


def test_a_table_of_many_rows(bundle, tmp_path):
    rows = [np.random.default_rng(n).normal(size=(3, 8)).astype("float32").tolist() for n in range(5)]
    table = pyarrow.table({"x": rows, "lengths": pyarrow.array([1, 2, 3, 0, 3], pyarrow.int32())})
    parquet.write_table(table, tmp_path / "rows.parquet")
    done = predict(bundle, tmp_path / "rows.parquet", tmp_path / "out", provider=NAME, progress=False)
    assert (done.rows, done.errors) == (5, 0)


def test_attention_that_it_leaves_to_the_cpu_is_named(tmp_path):
    text = """
        <ir_version: 8, opset_import: ["": 18]>
        g (float[2, 2] x) => (float y, float[2, 2] z) {
            y = Det (x)
            z = MatMul (x, x)
        }
    """
    model = onnx.parser.parse_model(text)
    model.graph.node[0].name, model.graph.node[1].name = "keras_attn/first/dot_0/Det_3", "dense"
    onnx.save(model, tmp_path / "model.onnx")
    case = verify.Case("base", {"x": np.ones((2, 2), "float32")}, {})
    with pytest.raises(
        ProviderError, match=rf"not run on {NAME} alone: of layer `first` Det_3 on CPUExecutionProvider"
    ):
        verify.run_cases(tmp_path / "model.onnx", [case], "openvino")
