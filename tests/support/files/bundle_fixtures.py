"""Pytest plugin: one small bundle, exported once per session."""

import shutil
import warnings

import pytest
from small_bundle import build_small_model

from keras_attn_export import export_model


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    """Keras file of the small model."""
    file = tmp_path_factory.mktemp("model") / "small.keras"
    build_small_model().save(file)
    return file


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Bundle of the small model, shared by all tests; a test that alters the files uses `bundle`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # one golden case has one key, and Keras warns of its softmax
        return export_model(build_small_model(), tmp_path_factory.mktemp("exported") / "bundle").path


@pytest.fixture
def bundle(exported, tmp_path):
    """Copy of the bundle of the small model."""
    return shutil.copytree(exported, tmp_path / "bundle")
