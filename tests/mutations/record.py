"""Which tests run a line, and what they cost: as pytest and coverage.py recorded it, with a context for each test."""

import ast
import json
import sqlite3
from collections import defaultdict
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

MODULE = 0.3  # seconds that a further module of tests takes
CONTEXTS = (
    "select context from line_bits join file on file.id = file_id join context on context.id = context_id "
    "where path glob ? and numbits_any_intersection(numbits, ?)"
)


class Record:
    """What a folder holds of the tests: `seconds.*.json`, and `lines.*` of coverage.py."""

    def __init__(self, folder: Path) -> None:
        self._lines = sorted(folder.glob("lines.*"))
        self._seconds: dict[str, float] = {}
        self._parts: dict[str, set[str]] = {}  # of a test: itself, its module, and the fixtures that it shares
        for file in sorted(folder.glob("seconds.*.json")):
            recorded = json.loads(file.read_text(encoding="utf-8"))
            self._seconds |= {f"fixture {name}": took for name, took in recorded["fixtures"].items()}
            self._seconds |= recorded["tests"]
            for test in recorded["tests"]:
                if Path(module_of(test)).is_file():
                    shared = (f"fixture {name}" for name in recorded["users"].get(test, []))
                    self._parts[test] = {test, module_of(test), *shared}
        if not self._lines or not self._parts:
            how = f"RECORD={folder} RECORD_LINES=yes scripts/test --tier all"
            raise SystemExit(f"nox -s mutate: {folder} does not hold which tests run which lines. {how} writes it.")

    def cheapest(self, file: str, line: int, budget: float) -> tuple[list[str], float]:
        """Tests that run a line, the cheapest first, as many as a budget of seconds allows; and what they take."""
        chosen: dict[str, list[str]] = defaultdict(list)  # each module's together: what they share is made once
        spent, made = 0.0, set()
        for test in sorted(self.tests(file, line), key=lambda test: (self._cost(self._parts[test]), test)):
            cost = self._cost(self._parts[test] - made)
            if spent + cost <= budget or not made:
                chosen[module_of(test)].append(test)
                spent, made = spent + cost, made | self._parts[test]
        return [test for each in chosen.values() for test in each], spent

    def _cost(self, parts: Iterable[str]) -> float:
        return sum(max(0.0, self._seconds.get(part, MODULE)) for part in parts)

    def tests(self, file: str, line: int) -> set[str]:
        """The tests that run a line; of one that an import runs, those of the function, class or module around it."""
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        nodes = (each for each in ast.walk(tree) if isinstance(each, ast.stmt))
        around = [each for each in nodes if each.lineno <= line <= each.end_lineno]  # the innermost is the last
        if any(isinstance(each, ast.FunctionDef) and each.body[0].lineno <= line for each in around):
            body = getattr(around[-1], "body", None)  # its head may go over several lines
            places = [[line], range(around[-1].lineno, body[0].lineno if body else around[-1].end_lineno + 1)]
        else:
            places = [range(each.lineno, each.end_lineno + 1) for each in reversed(around)]
            places.append(range(1, tree.body[-1].end_lineno + 1))
        for lines in places:
            contexts = self._contexts(file, lines)
            if found := {test for test, parts in self._parts.items() if not parts.isdisjoint(contexts)}:
                return found
        return set()

    def _contexts(self, file: str, lines: Iterable[int]) -> set[str]:
        from coverage.numbits import nums_to_numbits, register_sqlite_functions

        found = set()
        for recorded in self._lines:
            with closing(sqlite3.connect(recorded)) as data:
                register_sqlite_functions(data)
                found.update(name for (name,) in data.execute(CONTEXTS, [f"*/{file}", nums_to_numbits(lines)]))
        return found


def module_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]
