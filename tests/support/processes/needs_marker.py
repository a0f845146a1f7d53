"""Pytest plugin for the mark `needs`: `pytest.mark.needs("ray")` skips a test if `ray` is not installed.

A requirement is the name of a Python module, or a key of `REQUIREMENT_CHECKS`. The reason of the skip names the
command that installs the missing requirement.
"""

import importlib.util
import shutil
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# For each requirement that is no Python module, a function that returns a true value if the requirement is installed
REQUIREMENT_CHECKS = {
    "node": lambda: shutil.which("node") and (ROOT / "web/node_modules/.complete").is_file(),
    "runtimes": lambda: any((ROOT / ".nox/runtimes").glob("onnxruntime-*")),
    "serving": (ROOT / ".nox/serving/bin/uvicorn").is_file,
}
REQUIREMENTS_BY_COMMAND = {
    ".venv/bin/nox -s interop": {"flax", "jax", "paddle", "torch"},
    ".venv/bin/nox -s runtimes": {"runtimes"},
    ".venv/bin/nox -s serving": {"serving"},
    ".venv/bin/nox -s web": {"node"},
    "scripts/setup zoo": {"keras_hub", "tensorflow_text"},
}


@cache
def is_missing(name):
    return not REQUIREMENT_CHECKS[name]() if name in REQUIREMENT_CHECKS else importlib.util.find_spec(name) is None


def find_install_command(name):
    return next((command for command, names in REQUIREMENTS_BY_COMMAND.items() if name in names), "scripts/setup dev")


@pytest.hookimpl(tryfirst=True)  # before fixtures that import the missing module
def pytest_runtest_setup(item):
    for mark in item.iter_markers("needs"):
        for name in filter(is_missing, mark.args):
            pytest.skip(f"needs {name}: {find_install_command(name)}")
