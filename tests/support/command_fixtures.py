"""What runs the `keras-attn` command in this process, and a file of inputs for it.

A pytest plugin: a test file that wants it says `pytest_plugins = ("bundle_fixtures", "command_fixtures")`.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bundles import small_inputs

from keras_attn_export._cli.main import main


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    """Return a file of inputs of the small model."""
    np.savez(tmp_path / "samples.npz", **small_inputs())
    return tmp_path / "samples.npz"


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `main` here and gives the exit code and what was written to both streams."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return run
