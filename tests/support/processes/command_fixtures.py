"""Pytest plugin: fixtures that run the `keras-attn` command in this process, and a file of inputs."""

import numpy as np
import pytest
from small_bundle import assert_one_line, draw_small_inputs

from keras_attn_export._cli.main import main


@pytest.fixture
def samples(tmp_path):
    np.savez(tmp_path / "samples.npz", **draw_small_inputs())
    return tmp_path / "samples.npz"


@pytest.fixture
def call(capfd):
    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return run


@pytest.fixture
def succeeds(call):
    def run(*arguments):
        code, out, err = call(*arguments)
        assert (code, err) == (0, "")
        return out

    return run


@pytest.fixture
def fails(call):
    def run(*arguments, message):
        code, out, err = call(*arguments)
        assert (code, out) == (1, "")
        assert_one_line(err)
        assert message in err
        return err

    return run


@pytest.fixture
def wrong_usage(capsys):
    def run(*arguments):
        with pytest.raises(SystemExit) as error:
            main([str(argument) for argument in arguments])
        assert error.value.code == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("usage: keras-attn")
        assert "Traceback" not in err
        return err

    return run
