"""Which tests are quick, which slice each of the others is in, and which are near a change. Pure functions."""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .records import QUICK, TOUCHED, Durations

SLICE = 330.0  # seconds of tests that a slice holds, on two workers half of it
MOST_SLICES = 16  # beyond which tests wait too long for their turn; the zoo fills ten
NEAR = 240.0  # seconds of tests that are near a change, and run at once


@dataclass(frozen=True)
class Item:
    """A test as the plan sees it."""

    nodeid: str
    fixtures: tuple[str, ...] = ()  # those that it shares, by their names in the record
    smoke: bool = False  # it is quick whatever it takes
    later: bool = False  # it is not, whatever it takes

    @property
    def file(self) -> str:
        """The file it stands in."""
        return self.nodeid.partition("::")[0]


def quick(tests: Iterable[Item], durations: Durations) -> set[str]:
    """The tests that run each time: those of at most `QUICK` seconds, fixtures included, and those that are marked.

    A dear fixture that a marked test makes costs the others nothing more.
    """
    tests = list(tests)
    paid = {name for test in tests if test.smoke for name in test.fixtures}
    cheap = {
        test.nodeid
        for test in tests
        if durations.seconds(test.nodeid) <= QUICK
        and all(durations.fixtures.get(name, 0) <= QUICK or name in paid for name in test.fixtures)
    }
    return {test.nodeid for test in tests if test.smoke or (test.nodeid in cheap and not test.later)}


def cost(tests: Collection[Item], durations: Durations) -> float:
    """Seconds of tests and of the fixtures they share."""
    shared = {name for test in tests for name in test.fixtures}
    own = sum(durations.seconds(test.nodeid) for test in tests)
    return own + sum(durations.fixtures.get(name, 0) for name in shared)


def slices(tests: Collection[Item], durations: Durations, *, size: float = SLICE) -> list[list[str]]:
    """Tests in as few slices of about one size as hold them, the longest first into the emptiest.

    What shares a dear fixture stays together, and so do the cheap cases of a function.
    """
    groups: dict[tuple[str, ...], list[Item]] = defaultdict(list)
    for test in tests:
        dear = [name for name in test.fixtures if durations.fixtures.get(name, 0) > QUICK]
        alone = test.nodeid if durations.seconds(test.nodeid) > QUICK else test.nodeid.partition("[")[0]
        groups[test.file, *(dear or [alone])].append(test)
    costs = {key: cost(group, durations) for key, group in groups.items()}
    packed: list[list[str]] = [[] for _ in range(max(1, math.ceil(sum(costs.values()) / size)))]
    filled = [0.0 for _ in packed]
    for key in sorted(groups, key=lambda key: (-costs[key], key)):
        into = filled.index(min(filled))
        filled[into] += costs[key]
        packed[into] += [test.nodeid for test in groups[key]]
    return packed


def near(
    changed: Collection[str],
    tests: Sequence[Item],
    durations: Durations,
    touched: Mapping[str, Mapping[str, int]],
    *,
    limit: float = NEAR,
) -> tuple[list[str], int]:
    """The tests of what changed, and how many of them are left out for want of time.

    What is a case of a test, such as a page of the documentation, comes first, then files of tests that changed, then
    the others by how much of what they run (`touched`, see `touched_lines`) is in the files that changed. A file of
    tests runs whole, and the last that no longer fits in part.
    """
    totals: Counter[str] = sum(map(Counter, touched.values()), Counter())
    ran: Counter[str] = sum((Counter(lines) for source, lines in touched.items() if source in changed), Counter())
    shares = {file: count / totals[file] for file, count in ran.items()}
    shares |= {file: 2.0 for file in changed if file.startswith("tests/")}
    of_files: dict[str, list[Item]] = defaultdict(list)
    for test in tests:
        named = next((path for path in changed if f"[{path}]" in test.nodeid), None)  # a page that a test runs
        of_files[named or test.file].append(test)
        shares |= {named: 3.0} if named else {}
    chosen: list[str] = []
    left, room = 0, limit
    for file in sorted(set(shares) & set(of_files), key=lambda file: (-shares[file], file)):
        for test in sorted(of_files[file], key=lambda test: durations.seconds(test.nodeid)):
            room -= durations.seconds(test.nodeid)
            chosen += [test.nodeid] if room > 0 else []
            left += room <= 0
    return chosen, left


def touched_lines(path: Path = TOUCHED) -> dict[str, dict[str, int]]:
    """For each source file how many lines within its functions each file of tests ran, as it was measured."""
    recorded = json.loads(path.read_text(encoding="utf-8"))
    names, files = recorded["tests"], recorded["lines"]
    return {file: {names[int(number)]: count for number, count in lines.items()} for file, lines in files.items()}
