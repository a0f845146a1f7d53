"""Deselection of slow and nightly tests by the plugin `speed_markers`."""

import pytest

pytest_plugins = ("pytester",)

TESTS = """
import pytest

def test_unmarked():
    pass

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.nightly
def test_nightly():
    pass
"""


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [([], 1), (["-k", "slow or nightly"], 0), (["-m", "slow"], 1), (["test_three.py"], 3), (["folder", "-k", "t"], 3)],
)
def test_without_path_and_mark_only_unmarked_tests_run(pytester, arguments, passed):
    pytester.makeini("[pytest]\ntestpaths = test_three.py\nmarkers =\n    slow\n    nightly")
    pytester.makepyfile(test_three=TESTS)
    pytester.mkdir("folder").joinpath("test_more.py").write_text(TESTS)
    pytester.runpytest("-p", "speed_markers", *arguments).assert_outcomes(passed=passed, deselected=3 - passed)
