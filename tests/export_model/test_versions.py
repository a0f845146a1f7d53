"""The versions in a manifest, also where a package goes by another name or was never installed."""

import sys
import types

import numpy as np
import pytest

import keras_attn
from keras_attn_export._export import versions
from keras_attn_export._export.versions import versions_of


@pytest.fixture
def installed(monkeypatch):
    """Pretend that just one distribution is installed: a nightly build of `engine`."""

    def version(name):
        if name != "engine-nightly":
            raise versions.PackageNotFoundError(name)
        return "3.1.dev7"

    monkeypatch.setattr(versions, "version", version)
    monkeypatch.setattr(versions, "packages_distributions", lambda: {"engine": ["engine-nightly"]})
    monkeypatch.delitem(sys.modules, "engine", raising=False)


def test_what_modules_say_comes_before_what_is_installed(installed, monkeypatch):
    assert versions_of(["engine"]) == {"engine": "3.1.dev7"}
    monkeypatch.setitem(sys.modules, "engine", types.SimpleNamespace(__version__="3.0"))
    told = {"numpy": np.__version__, "keras-attn": keras_attn.__version__, "engine": "3.0"}
    assert versions_of(told) == told


@pytest.mark.parametrize("module", [None, types.SimpleNamespace(), types.SimpleNamespace(__version__=3)])
def test_what_nobody_knows_is_no_error(installed, monkeypatch, module):
    monkeypatch.setitem(sys.modules, "other", module)
    assert versions_of(["other"]) == {"other": "unknown"}
