"""What each test took when it was recorded, and which source files it ran: files of JSON beside this one.

`durations.json` holds for each backend and test file its functions, and the fixtures that several tests share:

    "test_window": 0.012                                                    a function of one case
    "test_blocks": {"cases": 40, "seconds": 0.02, "dear": {"xla-4": 2.1}}   cases that take longer than `QUICK` apart

Seconds are those of a machine whose calibration takes `REFERENCE`, so that a slow hour does not count.
"""

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parent
DURATIONS, TOUCHED = HERE / "durations.json", HERE / "touched.json"
QUICK = 0.3  # seconds up to which a test is quick
REFERENCE = 0.75  # seconds that `calibration` takes on the machine whose seconds are recorded
UNKNOWN = 0.05  # seconds that a test is taken to take before it was recorded


@dataclass
class Function:
    """A test function: how many cases it has, what one takes, and those that take longer than `QUICK` apart."""

    cases: int = 1
    seconds: float = UNKNOWN
    dear: dict[str, float] = field(default_factory=dict)

    def of(self, case: str) -> float:
        """Seconds of one case."""
        return self.dear.get(case, self.seconds)

    @property
    def total(self) -> float:
        """Seconds of all cases."""
        return self.seconds * (self.cases - len(self.dear)) + sum(self.dear.values())


@dataclass
class Durations:
    """What was recorded on one backend: functions and shared fixtures, by file and name."""

    functions: dict[str, dict[str, Function]] = field(default_factory=dict)
    fixtures: dict[str, float] = field(default_factory=dict)

    def seconds(self, nodeid: str) -> float:
        """Seconds of a test, without the fixtures that it shares."""
        file, name, case = split(nodeid)
        return self.functions.get(file, {}).get(name, Function()).of(case)


def split(nodeid: str) -> tuple[str, str, str]:
    """File, function and case of a test."""
    file, _, rest = nodeid.partition("::")
    name, _, case = rest.partition("[")
    return file, name, case.removesuffix("]")


def load(backend: str, path: Path = DURATIONS) -> Durations:
    """What was recorded on a backend."""
    everything = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    recorded = everything.get(backend, {"tests": {}, "fixtures": {}})
    functions: dict[str, dict[str, Function]] = defaultdict(dict)
    for file, entries in recorded["tests"].items():
        for name, entry in entries.items():
            functions[file][name] = Function(**(entry if isinstance(entry, dict) else {"seconds": entry}))
    return Durations(dict(functions), recorded["fixtures"])


def save(backend: str, durations: Durations, path: Path = DURATIONS) -> None:
    """Writes what was recorded on a backend, a function a line, in one order."""
    recorded = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    fixtures = {name: round(took, 2) for name, took in sorted(durations.fixtures.items()) if took > QUICK}
    files = sorted(durations.functions.items())
    tests = {file: {name: _entry(each) for name, each in sorted(entries.items())} for file, entries in files}
    recorded[backend] = {"fixtures": fixtures, "tests": tests}
    path.write_text(as_lines(recorded), encoding="utf-8")


def merged(
    known: Durations, seen: Mapping[str, float], fixtures: Mapping[str, float], collected: Iterable[str]
) -> Durations:
    """The record after a run, from seconds by test and fixture: what was collected and did not run stays as it was."""
    cases: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    ran: dict[tuple[str, str], dict[str, float]] = defaultdict(dict)
    for file, name, case in map(split, collected):
        cases[file][name].append(case)
    for nodeid, seconds in seen.items():
        file, name, case = split(nodeid)
        ran[file, name][case] = max(seconds, 0.0)
    functions = {**known.functions}
    for file, names in cases.items():
        before = known.functions.get(file, {})
        known_or_ran = {name: of_name for name, of_name in names.items() if name in before or (file, name) in ran}
        found = {name: _recorded(before.get(name), ran[file, name], of_name) for name, of_name in known_or_ran.items()}
        functions |= {file: found} if found or before else {}
    return Durations(functions, {**known.fixtures, **fixtures})


def _recorded(before: Function | None, ran: Mapping[str, float], cases: list[str]) -> Function:
    before = before or Function()
    if len(cases) == 1:
        return Function(1, ran.get(cases[0], before.seconds))
    dear = {case: took for case, took in {**before.dear, **ran}.items() if took > QUICK and case in cases}
    cheap = [took for took in ran.values() if took <= QUICK]
    others = [*dear.values()] if len(dear) == len(cases) else [before.seconds]  # what a new case will take
    return Function(len(cases), float(np.mean(cheap or others)), dear)


def _entry(function: Function) -> Any:
    if function.cases == 1 and not function.dear:
        return round(function.seconds, 3)
    dear = {case: round(seconds, 2) for case, seconds in sorted(function.dear.items())}
    return {"cases": function.cases, "seconds": round(function.seconds, 3)} | ({"dear": dear} if dear else {})


def as_lines(value: Any, depth: int = 4, indent: str = "") -> str:
    """JSON with the outer levels a line an entry."""
    if depth == 0 or not isinstance(value, dict) or not value:
        return json.dumps(value)
    inner = indent + " "
    body = ",\n".join(f"{inner}{json.dumps(key)}: {as_lines(each, depth - 1, inner)}" for key, each in value.items())
    return f"{{\n{body}\n{indent}}}" + ("\n" if not indent else "")


def calibration() -> float:
    """Seconds of a fixed piece of work, half of it Python's and half NumPy's: how fast the machine is now."""
    start = time.perf_counter()
    total = 0
    for number in range(9_000_000):
        total += number & 7
    matrix = np.ones((600, 600), np.float32)
    for _ in range(230):
        matrix = matrix @ matrix / np.float32(600)
    return time.perf_counter() - start
