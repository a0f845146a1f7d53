"""`keras-attn convert`: what it prints and writes, and how it ends."""

import json
import re

import pytest
from bundles import assert_one_line, names, python, reseal
from export_models import dict_inputs_and_outputs

from keras_attn_export import ParityReport, export_model
from keras_attn_export._standalone import verify

pytest_plugins = ("bundle_fixtures", "command_fixtures")
pytestmark = pytest.mark.needs("ai_edge_litert")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a bundle that converts; a test that alters it takes `bundle`."""
    return export_model(dict_inputs_and_outputs(), tmp_path_factory.mktemp("exported") / "bundle").path


def test_convert_says_what_it_made_and_warns(bundle, tmp_path, succeeds, fails):
    report = bundle / "parity" / "report.json"
    content = json.loads(report.read_text())
    coverage = content["coverage"] | {"axes": {"batch": [2]}, "small_only": ["attention"]}
    report.write_text(json.dumps(content | {"coverage": coverage}))
    reseal(bundle, "parity/report.json")
    file = tmp_path / "model.tflite"
    made, verdict, largest, *warnings = succeeds("convert", bundle, file, "--to", "litert").splitlines()
    assert re.fullmatch(rf"{re.escape(str(file))}: \d+\.\d kB", made)
    assert re.fullmatch(r"all (\d+) comparisons match over \d+ cases in LiteRT", verdict)
    assert re.fullmatch(r"largest difference .* of its limit", largest)
    assert warnings == ["warning: Axis `batch` is called dynamic, but only size 2 was compared."]
    assert names(tmp_path) == ["bundle", "model.tflite"]
    fails("convert", bundle, file, "--to", "litert", said=f"error: {file} already exists.")
    file.write_text("earlier")
    fails("convert", bundle, file, "--to", "litert", "--overwrite", said="is there and is no LiteRT file")
    assert file.read_text() == "earlier"
    file.write_bytes(b"\x1c\0\0\0TFL3 of before")
    out = succeeds("convert", bundle, file, "--to", "litert", "--overwrite", "--json")
    assert json.loads(out)["provider"] == "litert"
    assert ParityReport.from_json(out).passed
    assert file.read_bytes()[4:8] == b"TFL3"


def test_convert_tells_a_mismatch_in_one_line(bundle, tmp_path, call):
    cases = verify.load_cases(bundle / verify.CASES)
    cases[1].outputs["context"][...] += 1
    verify.save_cases(bundle / verify.CASES, cases)
    reseal(bundle, verify.CASES)
    code, out, err = call("convert", bundle, tmp_path / "model.tflite", "--to", "litert", "--json")
    assert code == 1
    assert_one_line(err, "error: 1 of ")
    assert f"`context` in case `{cases[1].name}` is outside the tolerance (" in err
    assert "max abs 1.0e+00" in err
    assert names(tmp_path) == ["bundle"]
    assert json.loads(out)["passed"] is False


@pytest.mark.out_of_turn
@pytest.mark.fresh_process
def test_nothing_else_is_printed(exported, tmp_path):
    command = ("-m", "keras_attn_export", "convert", exported, "model.tflite", "--to", "litert", "--json")
    done = python(*command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert ParityReport.from_json(done.stdout).passed
