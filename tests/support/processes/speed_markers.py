"""Pytest plugin: slow and nightly tests are deselected if the command line has neither a path nor `-m`."""

import pytest


@pytest.hookimpl(tryfirst=True)  # before xdist starts workers, which copy the options
def pytest_configure(config):
    if config.args_source is not pytest.Config.ArgsSource.ARGS and not config.option.markexpr:
        config.option.markexpr = "not slow and not nightly"
