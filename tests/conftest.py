"""Gives each test the same seed and float32 policies, and on JAX and torch selects the tests of layers."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # for the processes that tests start as well
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect
# By itself TensorFlow takes these kernels on some processors alone: others have no images with channels first, and
# another softmax of infinities.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# tf2onnx then copies no graph before each of its optimizers, to go back to where one fails: here that fails the test.
os.environ.setdefault("TF2ONNX_CATCH_ERRORS", "FALSE")

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import keras
import pytest
from backends import BACKEND, x64_enabled
from layer_tests import is_layer_test

SEED = 20141
OF_EXPORTS = ("providers", "cheap_exports", "bundle_fixtures", "command_fixtures") if BACKEND == "tensorflow" else ()
pytest_plugins = ("speeds", "needs", *OF_EXPORTS)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if BACKEND != "tensorflow" and collection_path.suffix == ".py" and not is_layer_test(collection_path):
        return True
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("how much of what is drawn at random")
    group.addoption("--fuzz", type=int, default=320, metavar="N", help="models to draw, export and compare")
    group.addoption("--flips", type=int, default=2000, metavar="N", help="bytes to change in a bundle")
    group.addoption("--kills", type=int, default=20, metavar="N", help="exports to kill, and 10 times as many renames")
    group.addoption("--requests", type=int, default=600, metavar="N", help="requests to a server from 16 clients")
    group.addoption("--random-seed", type=int, default=SEED, metavar="N", help="what they are all drawn from")


def pytest_report_header(config: pytest.Config) -> str:
    return f"backend: {BACKEND}; what is drawn at random: --random-seed {config.getoption('--random-seed')}"


@pytest.fixture(scope="session")
def random_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of what is drawn at random; a test that uses it says so when it fails."""
    seed = request.config.getoption("--random-seed")
    print(f"--random-seed {seed}")
    assert isinstance(seed, int)
    return seed


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    """What several tests share is made before the test's own seed: its weights must not hang on who came before."""
    if fixturedef.scope != "function":
        keras.utils.set_random_seed(SEED)


@pytest.fixture(autouse=True)
def _fresh_keras_state(request: pytest.FixtureRequest) -> Iterator[None]:
    keras.utils.set_random_seed(SEED)
    with x64_enabled() if request.node.get_closest_marker("x64") else nullcontext():
        yield
    keras.config.set_dtype_policy("float32")
    keras.config.set_floatx("float32")
