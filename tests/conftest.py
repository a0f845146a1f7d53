"""Plugins, options and seeds of all tests, and the selection of layer tests on JAX and torch."""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")  # for the processes that tests start as well
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect
# By default TensorFlow enables oneDNN on some processors only. Without it, convolutions refuse channels_first, and
# softmax of infinities gives another result.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
# By default tf2onnx copies the graph before each optimizer, and restores it if the optimizer raises. In tests the error
# must be raised, and the copy takes time.
os.environ.setdefault("TF2ONNX_CATCH_ERRORS", "FALSE")

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import keras
import pytest
from backend_neutral_tests import is_layer_test
from backends import BACKEND, enable_x64

SEED = 20141
pytest_plugins = ["speed_markers", "needs_marker"]
if BACKEND == "tensorflow":
    pytest_plugins += ["provider_option", "fast_exports", "bundle_fixtures", "command_fixtures"]


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    if BACKEND != "tensorflow" and collection_path.suffix == ".py" and not is_layer_test(collection_path):
        return True
    return None


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("randomized tests")
    group.addoption("--fuzz", type=int, default=320, metavar="N", help="models to draw, export and compare")
    group.addoption("--flips", type=int, default=2000, metavar="N", help="bytes to change in a bundle")
    group.addoption("--requests", type=int, default=600, metavar="N", help="requests to a server from 16 clients")
    group.addoption("--random-seed", type=int, default=SEED, metavar="N", help="the seed of randomized tests")


def pytest_report_header(config: pytest.Config) -> str:
    return f"backend: {BACKEND}; randomized tests: --random-seed {config.getoption('--random-seed')}"


@pytest.fixture(scope="session")
def random_seed(request: pytest.FixtureRequest) -> int:
    """Seed of randomized tests; it is printed, so pytest shows it if a test fails."""
    seed = request.config.getoption("--random-seed")
    print(f"--random-seed {seed}")
    assert isinstance(seed, int)
    return seed


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[object]) -> None:
    """Set the seed before each shared fixture, so that its weights do not depend on the test that requests it first."""
    if fixturedef.scope != "function":
        keras.utils.set_random_seed(SEED)


@pytest.fixture(autouse=True)
def _fresh_keras_state(request: pytest.FixtureRequest) -> Iterator[None]:
    keras.utils.set_random_seed(SEED)
    with enable_x64() if request.node.get_closest_marker("x64") else nullcontext():
        yield
    keras.config.set_dtype_policy("float32")
    keras.config.set_floatx("float32")
