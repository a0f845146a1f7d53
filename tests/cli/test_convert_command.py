"""`keras-attn convert`: what it prints and writes, and how it ends."""

import json
import re

import pytest
from bundles import alter_manifest, assert_one_line, names, python, reseal
from export_models import dict_inputs_and_outputs

from keras_attn_export import ParityReport, export_model
from keras_attn_export._cli.main import main
from keras_attn_export._export import convert_bundle
from keras_attn_export._standalone import verify

pytest_plugins = ("bundle_fixtures", "command_fixtures")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a bundle that converts; a test that alters it takes `bundle`."""
    return export_model(dict_inputs_and_outputs(), tmp_path_factory.mktemp("exported") / "bundle").path


def test_convert_says_what_it_made(exported, tmp_path, call):
    file = tmp_path / "model.tflite"
    code, out, err = call("convert", exported, file, "--to", "litert")
    assert (code, err) == (0, "")
    made, verdict, largest = out.splitlines()
    assert re.fullmatch(rf"{re.escape(str(file))}: \d+\.\d kB", made)
    assert re.fullmatch(r"all (\d+) comparisons match over \d+ cases in LiteRT", verdict)
    assert re.fullmatch(r"largest difference .* of its limit", largest)
    assert names(tmp_path) == ["model.tflite"]
    code, out, err = call("convert", exported, file, "--to", "litert")
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: {file} already exists.")


def test_convert_json(exported, tmp_path, call):
    file = tmp_path / "model.tflite"
    file.write_text("earlier")
    code, out, err = call("convert", exported, file, "--to", "litert", "--overwrite", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["provider"] == "litert"
    assert ParityReport.from_json(out).passed
    assert file.read_bytes()[4:8] == b"TFL3"


def test_convert_tells_a_mismatch_in_one_line(bundle, tmp_path, call):
    cases = verify.load_cases(bundle / verify.CASES)
    cases[1].outputs["context"][...] += 1
    verify.save_cases(bundle / verify.CASES, cases)
    reseal(bundle, verify.CASES)
    said = f"`context` in case `{cases[1].name}` is outside the tolerance ("
    for more in ([], ["--json"]):
        code, out, err = call("convert", bundle, tmp_path / "model.tflite", "--to", "litert", *more)
        assert code == 1
        assert_one_line(err, "error: 1 of ")
        assert said in err
        assert "max abs 1.0e+00" in err
        assert names(tmp_path) == ["bundle"]
        assert json.loads(out)["passed"] is False if more else out == ""


def test_convert_shows_warnings(bundle, tmp_path, call):
    file = bundle / "parity" / "report.json"
    report = json.loads(file.read_text())
    coverage = report["coverage"] | {"axes": {"batch": [2]}, "small_only": ["attention"]}
    file.write_text(json.dumps(report | {"coverage": coverage}))
    reseal(bundle, "parity/report.json")
    code, out, err = call("convert", bundle, tmp_path / "model.tflite", "--to", "litert")
    assert (code, err) == (0, "")
    assert re.findall("^warning: (.*)", out, flags=re.MULTILINE) == [
        "Axis `batch` is called dynamic, but only size 2 was compared."
    ]


def test_convert_needs_the_interpreter(exported, tmp_path):
    done = python(
        "-m", "keras_attn_export", "convert", exported, "x", "--to", "litert", cwd=tmp_path, blocked=("ai_edge_litert",)
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert_one_line(done.stderr)
    assert done.stderr.endswith("pip install 'keras-attn[litert]'\n")
    assert not (tmp_path / "x").exists()


@pytest.mark.out_of_turn
@pytest.mark.fresh_process
def test_nothing_else_is_printed(exported, tmp_path):
    command = ("-m", "keras_attn_export", "convert", exported, "model.tflite", "--to", "litert", "--json")
    done = python(*command, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert ParityReport.from_json(done.stdout).passed


def test_ctrl_c_is_said(bundle, tmp_path, call, monkeypatch):
    def ctrl_c(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(convert_bundle, "to_litert", ctrl_c)
    assert call("convert", bundle, tmp_path / "x", "--to", "litert") == (130, "", "interrupted: nothing was written\n")
    assert names(tmp_path) == ["bundle"]


def test_other_precisions_are_told(bundle, tmp_path, call):
    alter_manifest(bundle, precision="int8")
    code, out, err = call("convert", bundle, tmp_path / "x", "--to", "litert")
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: {bundle} is of precision int8, ")


def test_the_target_must_be_named(capsys):
    for arguments in (["convert", "bundle", "out"], ["convert", "bundle", "out", "--to", "coreml"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert "--to" in capsys.readouterr().err


def test_help_says_whose_code_runs(capsys):
    with pytest.raises(SystemExit):
        main(["convert", "--help"])
    assert "which is code of whoever made the bundle" in " ".join(capsys.readouterr().out.split())
