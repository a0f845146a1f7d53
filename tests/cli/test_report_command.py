"""`keras-attn report`: options, required packages, and refused arguments."""

import json

import numpy as np
import pytest
from small_bundle import draw_small_inputs, list_names, run_python


def test_report_needs_neither_tensorflow_nor_keras(bundle, tmp_path):
    blocked = ("tensorflow", "keras", "keras_attn", "tf2onnx")
    result = run_python("-m", "keras_attn_export", "report", bundle.name, cwd=tmp_path, blocked=blocked)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{bundle.with_name('bundle.html')}: ")
    assert "Matches Keras on these cases." in bundle.with_name("bundle.html").read_text("utf-8")


@pytest.mark.slow
def test_report_takes_inputs_labels_and_output(exported, tmp_path, succeeds):
    inputs, labels, page = tmp_path / "x.npz", tmp_path / "labels.json", tmp_path / "page.html"
    np.savez(inputs, **draw_small_inputs(B=1))
    labels.write_text(json.dumps({"valid_lens": ["none", "one", "two"]}), encoding="utf-8")
    succeeds("report", exported, "--inputs", inputs, "--labels", labels, "--output", page)
    text = page.read_text("utf-8")
    assert "Your inputs, and the predictions of the ONNX model." in text
    assert '<dt>valid_lens</dt><dd class="text">one</dd>' in text


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("nothing", "No bundle at nothing"),
        ("bundle --inputs nothing.npz", "There is no file nothing.npz"),
        ("bundle --labels bundle/model.onnx", "is not JSON in UTF-8"),
    ],
)
def test_report_refuses_bad_arguments_and_writes_nothing(bundle, tmp_path, fails, arguments, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("report", *arguments.split(), message=message)
    assert list_names(tmp_path) == ["bundle"]
