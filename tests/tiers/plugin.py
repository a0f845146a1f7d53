"""Options of pytest that choose tests by tier, by turn and by what changed.

Without more said, quick tests run (see plan.py); `--tier rest` is all others, `--turn K` one slice of them, and
`--near REV` those that run what changed since a revision. Files that are named run whole, but for what is marked
`out_of_turn`; a test that is named runs, and so do those of a mark.
"""

import subprocess
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

import keras
import pytest
from left_out import leave_out

from . import plan, records
from .recording import shared_fixtures

ROOT = Path(__file__).resolve().parents[2]
TIERS = ("quick", "rest", "file", "all")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("which tests run")
    group.addoption("--tier", choices=TIERS, help="quick tests (default where no file is named), the rest, or all")
    group.addoption("--turn", type=int, metavar="K", help="one slice of the tier: the one whose turn it is, K modulo N")
    group.addoption("--slice", type=float, default=plan.SLICE, metavar="S", help="seconds in a slice (%(default)s)")
    group.addoption("--near", metavar="REV", help="also tests of what changed since a revision of git")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Settles the tier, alike in each worker of xdist, which gets the same arguments."""
    if config.getoption("--tier") is None:
        named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
        config.option.tier = tier_of(named, config.invocation_params.args)


def tier_of(named: Sequence[str], arguments: Sequence[str]) -> str:
    """The tier that goes with what is asked for: a test, files, a mark, a word, or nothing."""
    if any("::" in each for each in named) or any(each.startswith("-m") for each in arguments):
        return "all"
    return "file" if named or any(each.startswith("-k") for each in arguments) else "quick"


@pytest.hookimpl(trylast=True)  # of what -m and -k leave
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    durations = records.load(keras.backend.backend())
    tests = [as_test(item) for item in items]
    chosen, said = choose(config, tests, durations)
    leave_out(config, items, [item for item in items if item.nodeid not in chosen], f"tier {said}")
    items[:] = longest_file_first(items, durations)


def choose(config: pytest.Config, tests: list[plan.Item], durations: records.Durations) -> tuple[Collection[str], str]:
    """The tests that run, and a line that says which."""
    tier, turn, since, size = (config.getoption(name) for name in ("--tier", "--turn", "--near", "--slice"))
    quick = plan.quick(tests, durations)
    within = {
        "quick": lambda test: test.nodeid in quick,
        "rest": lambda test: test.nodeid not in quick,
        "file": lambda test: test.smoke or not test.later,
        "all": lambda test: True,
    }[tier]
    pool = [test for test in tests if within(test)]
    chosen, said = {test.nodeid for test in pool}, f"{tier}: {len(pool)} of {len(tests)} tests"
    if turn is not None:
        packed = plan.slices(pool, durations, size=size)
        if len(packed) > plan.MOST_SLICES:
            raise pytest.UsageError(
                f"What takes turns fills {len(packed)} slices of {size:g} s, and may fill {plan.MOST_SLICES}: "
                "a test would wait too long. Make tests cheaper, or fewer."
            )
        chosen = set(packed[turn % len(packed)])
        said += f", slice {turn % len(packed) + 1} of {len(packed)}: {len(chosen)}"
    if since is not None:
        candidates = pool if tier == "rest" else tests  # beside the rest, quick tests have run
        found, left = plan.near(changed_since(since), candidates, durations, plan.touched_lines())
        said += f", near what changed since {since}: {len(set(found) - chosen)} more"
        said += f" ({left} left out, for want of time)" if left else ""
        chosen |= set(found)
    return chosen, said


def as_test(item: pytest.Item) -> plan.Item:
    smoke, later = (item.get_closest_marker(name) is not None for name in ("smoke", "out_of_turn"))
    return plan.Item(item.nodeid, tuple(shared_fixtures(item)), smoke, later)


def longest_file_first(items: list[pytest.Item], durations: records.Durations) -> list[pytest.Item]:
    """So that the workers of xdist, which take a file at a time, end together."""
    costs: Counter[str] = Counter()
    for item in items:
        costs[records.split(item.nodeid)[0]] += durations.seconds(item.nodeid)
    return sorted(items, key=lambda item: -costs[records.split(item.nodeid)[0]])  # keeps the order within a file


def changed_since(revision: str) -> list[str]:
    """Files that differ from a revision, those not committed included, as paths from the root."""
    command = ["git", "diff", "--name-only", "--no-renames", revision]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise pytest.UsageError(f"--near {revision}: {done.stderr.strip()}")
    return done.stdout.splitlines()
