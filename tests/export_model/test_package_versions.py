"""The versions in a manifest, also where a package goes by another name or was never installed."""

import sys
import types

import numpy as np
import pytest

import keras_attn
from keras_attn_export._export import package_versions
from keras_attn_export._export.package_versions import read_versions


@pytest.fixture
def installed(monkeypatch):
    """Pretend that just one distribution is installed: a nightly build of `engine`."""

    def version(name):
        if name != "engine-nightly":
            raise package_versions.PackageNotFoundError(name)
        return "3.1.dev7"

    monkeypatch.setattr(package_versions, "version", version)
    monkeypatch.setattr(package_versions, "packages_distributions", lambda: {"engine": ["engine-nightly"]})
    monkeypatch.delitem(sys.modules, "engine", raising=False)


@pytest.mark.parametrize(
    ("module", "expected"),
    [
        (types.SimpleNamespace(__version__="3.0"), "3.0"),
        (types.SimpleNamespace(), "3.1.dev7"),
        (None, "3.1.dev7"),
    ],
)
def test_version_of_the_module_precedes_that_of_the_distribution(installed, monkeypatch, module, expected):
    monkeypatch.setitem(sys.modules, "engine", module)
    own = {"numpy": np.__version__, "keras-attn": keras_attn.__version__, "engine": expected}
    assert read_versions([*own, "other"]) == own | {"other": "unknown"}
