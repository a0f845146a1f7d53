"""The backends other than TensorFlow.

A pytest plugin: a test file that wants `backend` says `pytest_plugins = ("other_backend_fixtures",)`.
"""

import pytest
from other_backend_processes import BACKENDS


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.needs(name)) for name in BACKENDS])
def backend(request):
    return request.param
