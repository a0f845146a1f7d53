"""The list of faults fits the code: each has one place to be put, and tests that are there."""

from pathlib import Path

import pytest
from mutations.__main__ import FAULTS
from mutations.fault import StaleFaultError, arguments_for, fault, place_of, sources

ROOT = Path(__file__).resolve().parents[2]
TEXTS = sources(ROOT)


@pytest.mark.parametrize("each", FAULTS, ids=lambda each: each.name)
def test_a_fault_has_one_place_and_its_tests(each):
    file = place_of(each, TEXTS)
    assert each.snippet != each.replacement
    compile(TEXTS[file].replace(each.snippet, each.replacement), str(file), "exec")
    assert each.tests
    for tests in each.tests:
        assert arguments_for(ROOT, tests)


def test_every_fault_has_a_name_of_its_own():
    assert len({each.name for each in FAULTS}) == len(FAULTS) >= 120


@pytest.mark.parametrize("snippet", ["import", "no such line is anywhere"])
def test_a_snippet_that_is_ambiguous_or_gone_is_stale(snippet):
    with pytest.raises(StaleFaultError, match=r"must once"):
        place_of(fault("any", snippet, "", "test_mutations"), TEXTS)


def test_a_test_file_that_is_gone_is_stale():
    with pytest.raises(StaleFaultError, match="there are 0"):
        arguments_for(ROOT, "test_that_is_gone -k any")
