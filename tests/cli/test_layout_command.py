"""`keras-attn layout`: what it prints and writes, and how it ends."""

import json
import re

import pytest
from bundles import PACKAGES, alter_manifest, assert_one_line, names, python

from keras_attn_export._cli.main import main
from keras_attn_export._serving import copying

pytest_plugins = ("bundle_fixtures", "command_fixtures")

STARTED_BY = {"triton": "tritonserver ", "tfserving": "tensorflow_model_server ", "mlserver": "MLSERVER_HOST="}


@pytest.mark.parametrize(("target", "server"), [("triton", "Triton"), ("mlserver", "MLServer")])
def test_layout_says_what_it_made_and_how_it_is_started(exported, tmp_path, call, target, server):
    code, out, err = call("layout", exported, tmp_path / "models", "--target", target)
    assert (code, err) == (0, "")
    first, *notes, said, command = out.splitlines()
    made = re.fullmatch(rf"(.*): for {server}, (\d+) files, \d+\.\d [kM]B", first)
    assert made[1] == str(tmp_path / "models" / "small")
    assert int(made[2]) == sum(path.is_file() for path in (tmp_path / "models").rglob("*"))
    assert len(notes) == {"triton": 2, "mlserver": 0}[target]
    assert said == "start it with:"
    assert command.startswith(STARTED_BY[target])
    assert str(tmp_path / "models") in command


def test_layout_again_is_refused(exported, tmp_path, call):
    for name in ("one", "two"):
        assert call("layout", exported, tmp_path, "--target", "tfserving", "--name", name)[0] == 0
    code, out, err = call("layout", exported, tmp_path, "--target", "tfserving", "--name", "one")
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: {tmp_path / 'one'} already exists; ")
    assert names(tmp_path) == ["one", "two"]


def test_layout_json(exported, tmp_path, call):
    code, out, err = call("layout", exported, tmp_path, "--target", "triton", "--provider", "cuda", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    files = ["1/model.onnx", "config.pbtxt"]
    assert told.pop("command").startswith("tritonserver ")
    assert len(told.pop("notes")) == 2
    assert told == {
        "folder": str(tmp_path / "small"),
        "target": "triton",
        "model": "small",
        "files": files,
        "bytes": sum((tmp_path / "small" / name).stat().st_size for name in files),
    }
    assert "KIND_GPU" in (tmp_path / "small" / "config.pbtxt").read_text()


@pytest.mark.parametrize("target", STARTED_BY)
def test_layout_needs_neither_tensorflow_nor_keras_nor_the_server(exported, tmp_path, target):
    needless = [*(set(PACKAGES) - {"keras_attn_export"}), "mlserver", "tritonclient", "google.protobuf"]
    command = ("-m", "keras_attn_export", "layout", exported, "models", "--target", target)
    done = python(*command, cwd=tmp_path, blocked=needless)
    assert (done.returncode, done.stderr) == (0, "")
    assert STARTED_BY[target] in done.stdout


def test_ctrl_c_is_said(exported, tmp_path, call, monkeypatch):
    def ctrl_c(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(copying.shutil, "copyfile", ctrl_c)
    said = (130, "", "interrupted: nothing was written\n")
    assert call("layout", exported, tmp_path / "models", "--target", "triton") == said
    assert names(tmp_path) == []


def test_names_that_will_not_do_are_told_in_one_line(bundle, tmp_path, call):
    alter_manifest(bundle, model="a model of mine")
    code, out, err = call("layout", bundle, tmp_path / "models", "--target", "mlserver")
    assert (code, out) == (1, "")
    assert_one_line(err, "error: A server calls a model by letters, digits, ")


def test_the_target_must_be_named(capsys):
    for arguments in (["layout", "bundle", "models"], ["layout", "bundle", "models", "--target", "torchserve"]):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
        assert "--target" in capsys.readouterr().err
