"""`keras-attn doctor`: installed packages, and missing ones with their extra."""

import sys
from importlib import metadata

import keras
import onnxruntime
import pytest
from small_bundle import run_python

from keras_attn_export._cli import doctor
from keras_attn_export._cli.main import main


def run_doctor(capsys):
    """Run the command, and return its output in one line."""
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return " ".join(out.split())


def test_doctor_lists_installed_versions(capsys):
    text = run_doctor(capsys)
    assert f"keras {keras.__version__}" in text
    assert f"onnxruntime {onnxruntime.__version__}" in text
    assert "CPUExecutionProvider" in text


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("no-such-package>=1; extra == 'plot'", 'heat maps missing no-such-package: pip install "keras-attn[plot]"'),
        ("numpy>=99; extra == 'plot'", f"heat maps numpy {metadata.version('numpy')}, which should be >=99"),
    ],
)
def test_doctor_names_missing_packages_and_their_extra(line, expected, capsys, monkeypatch):
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: [line])
    assert expected in run_doctor(capsys)


def test_doctor_reports_a_missing_onnxruntime(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    text = run_doctor(capsys)
    assert "onnxruntime cannot be used" in text
    assert 'pip install "keras-attn[runtime]"' in text


def test_doctor_warns_of_two_onnxruntimes(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "find_version", lambda name: "1.0")
    assert "overwrite each other" in run_doctor(capsys)


def test_doctor_needs_neither_tensorflow_nor_keras(tmp_path):
    result = run_python("-m", "keras_attn_export", "doctor", cwd=tmp_path, blocked=("tensorflow", "keras", "onnx"))
    assert result.returncode == 0, result.stderr
