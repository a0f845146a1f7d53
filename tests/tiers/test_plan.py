"""Which tests are quick, how the others are packed, and which are near a change."""

from types import SimpleNamespace

import pytest

from . import plan, plugin, records
from .plan import Item
from .records import Durations, Function

FILE = "tests/a/test_a.py"
SOME = {"test_quick": Function(1, 0.1), "test_dear": Function(1, 2.0), "test_some": Function(3, 0.2, {"xla": 1.5})}
DURATIONS = Durations({FILE: SOME}, {f"{FILE}::bundle": 5.0, f"{FILE}::small": 0.1})


def named(name, *fixtures, **marks):
    return Item(f"{FILE}::{name}", tuple(f"{FILE}::{each}" for each in fixtures), **marks)


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        (named("test_quick"), True),
        (named("test_quick", later=True), False),
        (named("test_quick", "small"), True),
        (named("test_quick", "bundle"), False),
        (named("test_dear"), False),
        (named("test_dear", smoke=True), True),
        (named("test_dear", smoke=True, later=True), True),
        (named("test_some[eager]"), True),
        (named("test_some[xla]"), False),
        (named("test_new"), True),
    ],
    ids=str,
)
def test_what_is_quick(test, runs):
    assert plan.quick([test], DURATIONS) == ({test.nodeid} if runs else set())


def test_a_fixture_that_a_smoke_test_makes_costs_no_more():
    smoke, other = named("test_dear", "bundle", smoke=True), named("test_quick", "bundle")
    assert plan.quick([smoke, other, named("test_dear")], DURATIONS) == {smoke.nodeid, other.nodeid}


def test_slices_hold_every_test_once_and_are_of_one_size():
    tests = [Item(f"tests/test_{number % 7}.py::test_{number}") for number in range(100)]
    durations = Durations({})
    for number, test in enumerate(tests):
        durations.functions.setdefault(test.file, {})[f"test_{number}"] = Function(1, 1.0 + number % 3)
    packed = plan.slices(tests, durations, size=60)
    assert sorted(nodeid for each in packed for nodeid in each) == sorted(test.nodeid for test in tests)
    sums = [sum(durations.seconds(nodeid) for nodeid in each) for each in packed]
    assert len(packed) == 4
    assert max(sums) <= 60
    again = plan.slices(tests[::-1], durations, size=60)
    assert sorted(map(sorted, packed)) == sorted(map(sorted, again)), "the order in which tests are found is no matter"


def test_what_shares_a_dear_fixture_stays_together():
    tests = [named(f"test_{number}", "bundle") for number in range(30)]
    packed = plan.slices([*tests, named("test_dear")], DURATIONS, size=4)
    assert [len(each) for each in packed if len(each) > 1] == [30]
    assert plan.cost(tests, DURATIONS) == pytest.approx(5.0 + 30 * records.UNKNOWN)
    assert plan.slices([], DURATIONS) == [[]]


def test_near_a_change():
    tests = [Item(f"tests/test_{name}.py::test_{name}") for name in ("own", "wide", "other", "changed")]
    touched = {
        "export/a.py": {"tests/test_own.py": 10, "tests/test_wide.py": 10},
        "export/b.py": {"tests/test_wide.py": 90, "tests/test_other.py": 5},
    }
    changed = ["export/a.py", "tests/test_changed.py", "README.md"]
    for count, expected in ((3, ["changed", "own", "wide"]), (2, ["changed", "own"])):
        found, left = plan.near(changed, tests, Durations(), touched, limit=(count + 0.5) * records.UNKNOWN)
        assert ([nodeid.rpartition("_")[2] for nodeid in found], left) == (expected, 3 - count)
    page = Item("tests/documents/test_pages.py::test_page[README.md]")
    assert plan.near(changed, [*tests, page], Durations(), touched)[0][0] == page.nodeid
    assert plan.near(["export/b.py"], tests, Durations(), touched)[0][0].endswith("other")


def test_a_record_is_merged_saved_and_read(tmp_path):
    path = tmp_path / "durations.json"
    collected = [*(f"{FILE}::test_some[{case}]" for case in ("a", "b", "c", "xla")), f"{FILE}::test_quick"]
    seen = {f"{FILE}::test_some[a]": 0.1, f"{FILE}::test_some[xla]": 1.0, f"{FILE}::test_quick": 0.01}
    first = records.merged(Durations(), seen, {f"{FILE}::bundle": 2.0}, collected)
    records.save("tensorflow", first, path)
    assert records.load("tensorflow", path) == first
    assert first.functions[FILE]["test_some"] == Function(4, 0.1, {"xla": 1.0})
    # what ran counts anew, what did not stays, and what is no longer collected goes
    second = records.merged(first, {f"{FILE}::test_some[xla]": 0.2}, {}, collected[:4])
    assert second.functions[FILE] == {"test_some": Function(4, 0.2)}
    assert second.fixtures == first.fixtures
    # where all cases are dear, a new one is taken to be as well
    dear = records.merged(first, dict(zip(collected, (1.0, 2.0, 3.0, 4.0, 5.0), strict=True)), {}, collected)
    cases = {"a": 1.0, "b": 2.0, "c": 3.0, "xla": 4.0}
    assert dear.functions[FILE] == {"test_some": Function(4, 2.5, cases), "test_quick": Function(1, 5.0)}


@pytest.mark.parametrize(
    ("named", "arguments", "tier"),
    [
        ([], ["-q", "--tb=short"], "quick"),
        (["tests/layers"], [], "file"),
        ([], ["-k", "heatmaps"], "file"),
        (["tests/layers/test_window.py::test_counts"], [], "all"),
        ([], ["-m", "zoo"], "all"),
    ],
)
def test_the_tier_follows_from_what_is_asked_for(named, arguments, tier):
    assert plugin.tier_of(named, arguments) == tier


def test_near_adds_tests_that_are_not_quick_and_too_many_slices_are_refused(monkeypatch):
    """Whatever tier runs, but for the rest, beside which quick tests have run."""
    tests, asked = [named("test_quick"), named("test_dear")], {"--turn": None, "--near": "REV"}
    monkeypatch.setattr(plugin, "changed_since", lambda revision: [FILE])
    for tier, expected in (("quick", {"test_quick", "test_dear"}), ("rest", {"test_dear"})):
        config = SimpleNamespace(getoption=(asked | {"--tier": tier}).get)
        chosen, said = plugin.choose(config, tests, DURATIONS)
        assert {nodeid.rpartition("::")[2] for nodeid in chosen} == expected
    assert "near what changed since REV: 0 more" in said
    config = SimpleNamespace(getoption={"--tier": "all", "--turn": 0, "--slice": 0.1}.get)
    with pytest.raises(pytest.UsageError, match="fills 21 slices"):
        plugin.choose(config, tests, DURATIONS)
