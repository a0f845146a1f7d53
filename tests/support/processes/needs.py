"""Skips tests whose mark `needs` names something that is not installed: `pytest.mark.needs("ray")`.

A pytest plugin. A name is that of a Python module, or one of `PROGRAMS`. The reason of the skip names the command that
installs what is missing and runs the test.
"""

import importlib.util
import shutil
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROGRAMS = {
    "node": lambda: shutil.which("node") and (ROOT / "web/node_modules/.complete").is_file(),
    "runtimes": lambda: any((ROOT / ".nox/runtimes").glob("onnxruntime-*")),
    "serving": (ROOT / ".nox/serving/bin/uvicorn").is_file,
}
SESSIONS = {
    "interop": {"flax", "jax", "paddle", "torch"},
    "runtimes": {"runtimes"},
    "serving": {"serving"},
    "web": {"node"},
    "zoo": {"keras_hub", "tensorflow_text"},
}


@cache
def is_missing(name):
    return not PROGRAMS[name]() if name in PROGRAMS else importlib.util.find_spec(name) is None


def command_for(name):
    session = next((session for session, names in SESSIONS.items() if name in names), None)
    return f".venv/bin/nox -s {session}" if session else "scripts/setup dev"


@pytest.hookimpl(tryfirst=True)  # before fixtures that import what is missing
def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for name in filter(is_missing, mark.args):
            pytest.skip(f"needs {name}: {command_for(name)}")
