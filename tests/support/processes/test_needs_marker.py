"""Mark `needs`: skipped tests and the install command in the reason."""

import pytest
from needs_marker import find_install_command

pytest_plugins = ("pytester",)

TESTS = """
import pytest

@pytest.fixture(scope="session")
def imported():
    import no_such_module

@pytest.mark.needs("no_such_module")
@pytest.mark.parametrize("number", range(3))
def test_of_a_missing_module(number, imported):
    raise AssertionError

@pytest.mark.needs("json", "re")
def test_of_modules_that_are_installed():
    pass
"""


def test_missing_module_skips_tests_before_fixtures(pytester):
    pytester.makeini("[pytest]\nmarkers =\n    needs(name, ...): a module or a program")
    pytester.makepyfile(TESTS)
    result = pytester.runpytest("-p", "needs_marker", "-ra", "--strict-markers")
    result.assert_outcomes(passed=1, skipped=3)
    result.stdout.fnmatch_lines("SKIPPED [[]3[]] *: needs no_such_module: scripts/setup dev")


@pytest.mark.parametrize(("name", "command"), [("jax", ".venv/bin/nox -s interop"), ("ray", "scripts/setup dev")])
def test_skip_reason_names_the_install_command(name, command):
    assert find_install_command(name) == command
