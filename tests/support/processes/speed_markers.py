"""Deselects slow and nightly tests, unless a path or `-m` is given. A pytest plugin."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before the workers of xdist are started, which get the options from here
def pytest_configure(config):
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = "not slow and not nightly"
