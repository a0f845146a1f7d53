"""What a run of tests has left in a folder, as `recording.py` wrote it."""

import ast
import json
from collections import defaultdict
from pathlib import Path
from typing import Any


class Measured:
    """Seconds by test and by shared fixture, what each collected test `shares`, and in `lines` who ran which."""

    def __init__(self, folder: Path) -> None:
        self.tests: dict[str, float] = {}
        self.fixtures: dict[str, float] = {}
        self.shares: dict[str, list[str]] = {}
        for path in sorted(folder.glob("seconds.*.json")):
            part = json.loads(path.read_text(encoding="utf-8"))
            self.tests |= part["tests"]
            self.shares |= part["users"]
            for name, took in part["fixtures"].items():  # of a session it is made in each process
                self.fixtures[name] = max(self.fixtures.get(name, 0.0), took)
        self.lines = [opened(path) for path in sorted(folder.glob("lines.*"))]
        self._users: dict[str, set[str]] = defaultdict(set)  # by context of coverage; the import of modules has none
        for test in self.tests:
            for context in (test, *(f"fixture {name}" for name in self.shares[test])):
                self._users[context].add(test)

    def tests_of(self, source: Path) -> dict[int, set[str]]:
        """The tests that ran a line, or share what did, for each line within the functions of a source file."""
        within, found = lines_of_functions(source), defaultdict(set)
        for data in self.lines:
            contexts = data.contexts_by_lineno(str(source.resolve()))
            for line in within & contexts.keys():
                found[line].update(*(self._users[context] for context in contexts[line]))
        return found


def opened(path: Path) -> Any:
    """Lines that coverage.py has written."""
    import coverage

    data = coverage.CoverageData(str(path))
    data.read()
    return data


def lines_of_functions(path: Path) -> set[int]:
    """Lines that run when a function is called, and not when the module is imported."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {line for node in functions for line in range(node.body[0].lineno, node.end_lineno + 1)}
