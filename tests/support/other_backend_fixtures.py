"""The backends other than TensorFlow that are there.

A pytest plugin: a test file that wants `backend` says `pytest_plugins = ("other_backend_fixtures",)`.
"""

import importlib.util

import pytest
from other_backend_processes import BACKENDS


@pytest.fixture(scope="module", params=BACKENDS)
def backend(request):
    if importlib.util.find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed; .ci/run runs this file with JAX and torch")
    return request.param
