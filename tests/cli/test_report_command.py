"""`keras-attn report` as a user runs it."""

import json

import numpy as np
import pytest
from bundles import assert_one_line, python, small_inputs

pytest_plugins = ("bundle_fixtures", "command_fixtures")


def report(cwd, *arguments, blocked=("tensorflow", "keras", "keras_attn", "tf2onnx")):
    return python("-m", "keras_attn_export", "report", *arguments, cwd=cwd, blocked=blocked)


def test_it_writes_a_page_without_tensorflow(bundle, tmp_path):
    done = report(tmp_path, bundle.name)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"{bundle.with_name('bundle.html')}: ")
    assert "Proven equal to Keras." in bundle.with_name("bundle.html").read_text("utf-8")


def test_inputs_labels_and_a_place_of_ones_own(bundle, tmp_path):
    np.savez(tmp_path / "x.npz", **small_inputs(B=1))
    (tmp_path / "labels.json").write_text(json.dumps({"valid_lens": ["none", "one", "two"]}), encoding="utf-8")
    done = report(tmp_path, bundle.name, "--inputs", "x.npz", "--labels", "labels.json", "--output", "page.html")
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "page.html").read_text("utf-8")
    assert '"name":"your inputs"' in page
    assert '[["valid_lens","one"]]' in page


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nothing"], "No bundle at nothing"),
        (["bundle", "--inputs", "nothing.npz"], "There is no file nothing.npz"),
        (["bundle", "--labels", "nothing.json"], "Cannot read nothing.json"),
        (["bundle", "--labels", "bundle/model.onnx"], "is not JSON in UTF-8"),
        (["bundle", "--output", "missing/page.html"], "There is no folder missing"),
        (["bundle", "--live"], "takes onnxruntime-web along, which is not installed here"),
    ],
)
def test_what_cannot_be_is_said_in_a_line(bundle, tmp_path, arguments, said, monkeypatch):
    monkeypatch.delenv("NODE_PATH", raising=False)
    done = report(tmp_path, *arguments)
    assert done.returncode == 1
    assert_one_line(done.stderr)
    assert said in done.stderr
    assert [path.name for path in tmp_path.glob("*.html")] == []
