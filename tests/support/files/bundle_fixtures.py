"""A plugin of pytest: one small real bundle, exported once a session."""

import shutil
import warnings

import pytest
from small_bundle import build_small_model

from keras_attn_export import export_model


@pytest.fixture(scope="session")
def model_file(tmp_path_factory):
    file = tmp_path_factory.mktemp("model") / "small.keras"
    build_small_model().save(file)
    return file


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """Return the bundle of the small model; it is shared, so a test that alters it takes `bundle`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns of a softmax over one key, which a golden case is
        return export_model(build_small_model(), tmp_path_factory.mktemp("exported") / "bundle").path


@pytest.fixture
def bundle(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "bundle")
