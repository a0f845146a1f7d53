"""Every test starts from the same seed and from float32, and leaves no global policy behind."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

from collections.abc import Iterator

import keras
import pytest

SEED = 20141


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("how much of what is drawn at random")
    group.addoption("--fuzz", type=int, default=320, metavar="N", help="models to draw, export and compare")
    group.addoption("--flips", type=int, default=2000, metavar="N", help="bytes to change in a bundle")
    group.addoption("--kills", type=int, default=20, metavar="N", help="exports to kill, and 10 times as many renames")
    group.addoption("--random-seed", type=int, default=SEED, metavar="N", help="what they are all drawn from")


def pytest_report_header(config: pytest.Config) -> str:
    return f"what is drawn at random: --random-seed {config.getoption('--random-seed')}"


@pytest.fixture(scope="session")
def random_seed(request: pytest.FixtureRequest) -> int:
    """Return the seed of what is drawn at random; a test that uses it says so when it fails."""
    seed = request.config.getoption("--random-seed")
    print(f"--random-seed {seed}")
    assert isinstance(seed, int)
    return seed


@pytest.fixture(autouse=True)
def _fresh_keras_state() -> Iterator[None]:
    keras.utils.set_random_seed(SEED)
    yield
    keras.config.set_dtype_policy("float32")
    keras.config.set_floatx("float32")
