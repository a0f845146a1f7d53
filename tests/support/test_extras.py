"""A test that lacks what an extra brings is not selected, and the last lines say how many, and what runs them."""

import pytest
from extras import summary

pytest_plugins = ("pytester",)

TESTS = """
import pytest

@pytest.mark.needs("no_such_module")
@pytest.mark.parametrize("number", range(3))
def test_of_an_extra(number):
    import no_such_module

@pytest.mark.needs("json", "re")
def test_of_what_is_there():
    pass

@pytest.mark.parametrize("name", ["a", pytest.param("b", marks=pytest.mark.needs("json", "no_such_module"))])
def test_in_part(name):
    assert name == "a"
"""


@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_missing_is_not_selected(pytester, workers):
    pytester.makeini("[pytest]\nmarkers =\n    needs(module, ...): what an extra brings")
    pytester.makepyfile(TESTS)
    done = pytester.runpytest("-p", "left_out", "-p", "extras", "-n", workers, "--strict-markers")
    done.assert_outcomes(passed=2, deselected=0 if workers == "2" else 4)
    done.stdout.fnmatch_lines("not selected: 4 for want of no_such_module: scripts/setup dev and scripts/test")


def test_each_command_is_named_with_what_it_brings():
    assert summary([]) == ""
    assert summary([frozenset({"ray"}), frozenset({"jax"}), frozenset({"torch"}), frozenset({"selenium", "ray"})]) == (
        "not selected: 2 for want of ray, selenium: scripts/setup dev and scripts/test; "
        "2 for want of jax, torch: .venv/bin/nox -s interop"
    )
