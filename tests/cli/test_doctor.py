"""`keras-attn doctor`: what is here, and what is missing for what."""

import sys
import tomllib
from importlib import metadata
from pathlib import Path

import keras
import onnxruntime
import pytest
from bundles import python

from keras_attn_export._cli import doctor
from keras_attn_export._cli.main import main

PROJECT = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_CONTRIBUTORS = {"test", "check", "docs", "web", "dev", "bench", "zoo", "backends"}


def told(capsys):
    """What the command says, in one line."""
    assert main(["doctor"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return " ".join(out.split())


def test_it_says_what_is_here(capsys):
    said = told(capsys)
    assert f"keras {keras.__version__}" in said
    assert f"onnxruntime {onnxruntime.__version__}" in said
    assert "CPUExecutionProvider" in said


def test_every_extra_of_users_is_in_it():
    of_users = set(PROJECT["optional-dependencies"]) - FOR_CONTRIBUTORS
    assert {*doctor.PURPOSES, *doctor.RUNTIMES.values()} - {""} == of_users - {"export"}  # of `convert` and `runtime`


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("no-such-package>=1; extra == 'plot'", 'heat maps missing no-such-package: pip install "keras-attn[plot]"'),
        ("no-such-package>=1", "layers missing no-such-package: pip install keras-attn"),
        ("numpy>=99; extra == 'plot'", f"heat maps numpy {metadata.version('numpy')}, which should be >=99"),
        (
            "no-such-package; extra == 'tools'",
            'reports and tables missing no-such-package: pip install "keras-attn[tools]"',
        ),
    ],
)
def test_it_says_what_is_missing_for_what_and_how_to_install_it(line, expected, capsys, monkeypatch):
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: [line])
    assert expected in told(capsys)


def test_without_an_onnxruntime_it_says_so(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    said = told(capsys)
    assert "onnxruntime cannot be used" in said
    assert 'pip install "keras-attn[runtime]"' in said


def test_two_onnxruntimes_are_one_too_many(capsys, monkeypatch):
    monkeypatch.setattr(doctor, "installed", lambda name: "1.0")
    assert "overwrite each other" in told(capsys)


def test_it_needs_neither_tensorflow_nor_keras(tmp_path):
    done = python("-m", "keras_attn_export", "doctor", cwd=tmp_path, blocked=("tensorflow", "keras", "onnx"))
    assert done.returncode == 0, done.stderr
