"""`keras-attn doctor`: installed packages, and missing ones with their extra."""

import sys
from importlib import metadata

import keras
import onnxruntime
import pytest
from small_bundle import run_python

from keras_attn_export._cli import doctor
from keras_attn_export._cli.main import main


def told(capsys):
    """Return the output of the command, in one line."""
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return " ".join(out.split())


def test_doctor_lists_installed_versions(capsys):
    said = told(capsys)
    assert f"keras {keras.__version__}" in said
    assert f"onnxruntime {onnxruntime.__version__}" in said
    assert "CPUExecutionProvider" in said


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("no-such-package>=1; extra == 'plot'", 'heat maps missing no-such-package: pip install "keras-attn[plot]"'),
        ("numpy>=99; extra == 'plot'", f"heat maps numpy {metadata.version('numpy')}, which should be >=99"),
    ],
)
def test_doctor_names_missing_packages_and_their_extra(line, expected, capsys, monkeypatch):
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: [line])
    assert expected in told(capsys)


def test_doctor_reports_a_missing_onnxruntime(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    said = told(capsys)
    assert "onnxruntime cannot be used" in said
    assert 'pip install "keras-attn[runtime]"' in said


def test_doctor_warns_of_two_onnxruntimes(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "find_version", lambda name: "1.0")
    assert "overwrite each other" in told(capsys)


def test_doctor_needs_neither_tensorflow_nor_keras(tmp_path):
    done = run_python("-m", "keras_attn_export", "doctor", cwd=tmp_path, blocked=("tensorflow", "keras", "onnx"))
    assert done.returncode == 0, done.stderr
