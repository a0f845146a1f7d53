"""Which tests run a line, and what they cost: as `tiers/recording.py` wrote it under coverage."""

import ast
import json
import sqlite3
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
        read = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("seconds.*.json"))]
        self._seconds = {name: took for each in read for name, took in (each["tests"] | each["fixtures"]).items()}
        users = {test: each["users"][test] for each in read for test in each["tests"]}
        there = {test: shared for test, shared in users.items() if Path(module_of(test)).is_file()}
        self._parts = {test: {test, module_of(test), *shared} for test, shared in there.items()}
        if not self._lines or not self._parts:
            how = f"RECORD={folder} RECORD_LINES=yes scripts/test --tier all"
            raise SystemExit(f"nox -s mutate: {folder} does not hold which tests run which lines. {how} writes it.")

    def cheapest(self, file: str, line: int, budget: float) -> tuple[list[str], float]:
        """Tests that run a line, the cheapest first, as many as a budget of seconds allows; and what they take."""
        chosen, spent, made = [], 0.0, set()
        for test in sorted(self._tests(file, line), key=lambda test: (self._cost(self._parts[test]), test)):
            cost = self._cost(self._parts[test] - made)
            if spent + cost <= budget or not made:
                chosen.append(test)
                spent, made = spent + cost, made | self._parts[test]
        modules = [*dict.fromkeys(map(module_of, chosen))]  # each one's together: what they share is made once
        return sorted(chosen, key=lambda test: modules.index(module_of(test))), spent

    def _cost(self, parts: Iterable[str]) -> float:
        return sum(max(0.0, self._seconds.get(part, MODULE)) for part in parts)

    def _tests(self, file: str, line: int) -> set[str]:
        """The tests that run a line; of one that an import runs, those of the function, class or module around it."""
        tree = ast.parse(Path(file).read_text(encoding="utf-8"))
        nodes = (each for each in ast.walk(tree) if isinstance(each, ast.stmt))
        around = [each for each in nodes if each.lineno <= line <= each.end_lineno]
        places = [range(each.lineno, each.end_lineno + 1) for each in reversed(around)]  # the innermost first
        if any(isinstance(each, ast.FunctionDef) and each.body[0].lineno <= line for each in around):
            places = [[line], places[0]]  # a statement may go over several lines
        else:
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
        return {name.removeprefix("fixture ") for name in found}


def module_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]
