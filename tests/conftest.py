"""Every test starts from the same seed and from float32, and leaves no global policy behind."""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # before TensorFlow is imported, or it has no effect

from collections.abc import Iterator

import keras
import pytest

SEED = 20141


@pytest.fixture(autouse=True)
def _fresh_keras_state() -> Iterator[None]:
    keras.utils.set_random_seed(SEED)
    yield
    keras.config.set_dtype_policy("float32")
    keras.config.set_floatx("float32")
