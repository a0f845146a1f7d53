"""What runs the `keras-attn` command in this process, and a file of inputs for it.

A pytest plugin: a test file that wants it says `pytest_plugins = ("bundle_fixtures", "command_fixtures")`.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from bundles import assert_one_line, small_inputs

from keras_attn_export._cli.main import main


@pytest.fixture
def samples(tmp_path: Path) -> Path:
    np.savez(tmp_path / "samples.npz", **small_inputs())
    return tmp_path / "samples.npz"


@pytest.fixture
def call(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Return a function that runs `main` here and gives the exit code and what was written to both streams."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def succeeds(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Return a function that runs a command that ends well says nothing on standard error, and gives the output."""

    def run(*arguments: object) -> str:
        code, out, err = call(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def fails(call: Callable[..., tuple[int, str, str]]) -> Callable[..., str]:
    """Return a function that runs a command that ends with 1, says why in one line and prints nothing else."""

    def run(*arguments: object, said: str) -> str:
        code, out, err = call(*arguments)
        assert (code, out) == (1, "")
        assert_one_line(err)
        assert said in err
        return err

    return run


@pytest.fixture
def wrong_usage(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that runs a command whose arguments are refused, and gives what is said of them."""

    def run(*arguments: object) -> str:
        with pytest.raises(SystemExit) as caught:
            main([str(argument) for argument in arguments])
        assert caught.value.code == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("usage: keras-attn")
        assert "Traceback" not in err
        return err

    return run
