"""Package versions in a manifest: distributions with another name, and packages that are not installed."""

import sys
import types

import numpy as np
import pytest

import keras_attn
from keras_attn_export._export import package_versions
from keras_attn_export._export.package_versions import read_versions


@pytest.fixture
def nightly_distribution(monkeypatch):
    """Environment with one installed distribution, a nightly build of `engine`."""

    def get_version(name):
        if name != "engine-nightly":
            raise package_versions.PackageNotFoundError(name)
        return "3.1.dev7"

    monkeypatch.setattr(package_versions, "version", get_version)
    monkeypatch.setattr(package_versions, "packages_distributions", lambda: {"engine": ["engine-nightly"]})
    monkeypatch.delitem(sys.modules, "engine", raising=False)


@pytest.mark.parametrize(
    ("module", "expected"),
    [(types.SimpleNamespace(__version__="3.0"), "3.0"), (types.SimpleNamespace(), "3.1.dev7"), (None, "3.1.dev7")],
)
def test_version_of_the_module_precedes_that_of_the_distribution(nightly_distribution, monkeypatch, module, expected):
    monkeypatch.setitem(sys.modules, "engine", module)
    versions = {"numpy": np.__version__, "keras-attn": keras_attn.__version__, "engine": expected}
    assert read_versions([*versions, "other"]) == versions | {"other": "unknown"}
