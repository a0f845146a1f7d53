"""`keras-attn layout`: what it prints and writes, and how it ends."""

import json
import re

import pytest
from bundles import PACKAGES, names, python

pytest_plugins = ("bundle_fixtures", "command_fixtures")

STARTED_BY = {"triton": "tritonserver ", "tfserving": "tensorflow_model_server ", "mlserver": "MLSERVER_HOST="}


@pytest.mark.parametrize(("target", "server"), [("triton", "Triton"), ("mlserver", "MLServer")])
def test_layout_says_what_it_made_and_how_it_is_started(exported, tmp_path, succeeds, target, server):
    arguments = "layout", exported, tmp_path / "models", "--target", target
    first, *notes, said, command = succeeds(*arguments).splitlines()
    made = re.fullmatch(rf"(.*): for {server}, (\d+) files, \d+\.\d [kM]B", first)
    assert made[1] == str(tmp_path / "models" / "small")
    assert int(made[2]) == sum(path.is_file() for path in (tmp_path / "models").rglob("*"))
    assert len(notes) == {"triton": 2, "mlserver": 0}[target]
    assert said == "start it with:"
    assert command.startswith(STARTED_BY[target])
    assert str(tmp_path / "models") in command
    succeeds(*arguments, "--name", "other")
    assert names(tmp_path / "models") == ["other", "small"]


def test_layout_json(exported, tmp_path, succeeds):
    told = json.loads(succeeds("layout", exported, tmp_path, "--target", "triton", "--provider", "cuda", "--json"))
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


def test_layout_needs_neither_tensorflow_nor_keras_nor_the_server(exported, tmp_path):
    needless = [*(set(PACKAGES) - {"keras_attn_export"}), "mlserver", "tritonclient", "google.protobuf"]
    code = f"""
from keras_attn_export._cli.main import main
for target in {list(STARTED_BY)}:
    assert main(["layout", {str(exported)!r}, target, "--target", target]) == 0
"""
    done = python("-c", code, cwd=tmp_path, blocked=needless)
    assert (done.returncode, done.stderr) == (0, "")
    assert all(start in done.stdout for start in STARTED_BY.values())
