"""Which tests run a line, and what they cost: as pytest and coverage.py recorded it, with a context for each test."""

import ast
import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import closing
from functools import cached_property
from pathlib import Path

PACKAGES = {"keras_attn": "keras_attn", "export": "keras_attn_export"}  # folders, and what they are imported as
MODULE = 0.3  # seconds that a further module of tests takes
STAGES = (5, 20)  # seconds of tests after which the others get a process of their own
CONTEXTS = (
    "select context.context, line_bits.numbits from line_bits join file on file.id = line_bits.file_id "
    "join context on context.id = line_bits.context_id where file.path glob ?"
)

Places = Iterable[tuple[str, int]]  # lines of files


class Record:
    """The packages of a tree, and what a folder holds of its tests: `seconds.*.json`, and `lines.*` of coverage.py."""

    def __init__(self, folder: Path, root: Path) -> None:
        files = [file for package in PACKAGES for file in sorted((root / package).rglob("*.py"))]
        self.texts = {file.relative_to(root).as_posix(): file.read_text(encoding="utf-8") for file in files}
        self._seconds: dict[str, float] = {}
        self._parts: dict[str, set[str]] = {}  # of a test: itself, its module, and the fixtures that it shares
        self._users: dict[str, set[str]] = defaultdict(set)
        for file in sorted(folder.glob("seconds.*.json")):
            recorded = json.loads(file.read_text(encoding="utf-8"))
            self._seconds |= recorded["fixtures"] | recorded["tests"]
            for test in recorded["tests"]:
                if (root / module_of(test)).is_file():
                    shared = recorded["users"].get(test, [])
                    self._parts[test] = {test, module_of(test), *shared}
                    for fixture in shared:
                        self._users[f"fixture {fixture}"].add(test)
        self._lines = sorted(folder.glob("lines.*"))
        if not self._lines or not self._parts:
            how = f"RECORD={folder} RECORD_LINES=yes scripts/test --tier all"
            raise SystemExit(f"nox -s mutate: {folder} does not hold which tests run which lines. {how} writes it.")
        self._contexts: dict[str, dict[int, set[str]]] = {}

    def stages(self, file: str, line: int, budget: float) -> list[list[str]]:
        """The tests that run a line, the cheapest first, as many as a budget of seconds allows and at least one."""
        alone = {test: self.seconds([test]) for test in self.tests(file, line)}
        stages: list[list[str]] = [[] for _ in range(len(STAGES) + 1)]
        spent, made = 0.0, set()
        for test in sorted(alone, key=lambda test: (alone[test], test)):
            cost = sum(map(self._cost, self._parts[test] - made))
            if spent + cost <= budget or not made:
                stages[sum(spent > bound for bound in STAGES)].append(test)
                spent, made = spent + cost, made | self._parts[test]
        return [_by_module(stage) for stage in stages if stage]

    def seconds(self, tests: Iterable[str]) -> float:
        """What tests take in one process."""
        return sum(map(self._cost, set().union(*(self._parts[test] for test in tests))))

    def _cost(self, part: str) -> float:
        return max(0.0, self._seconds.get(part, MODULE))

    def tests(self, file: str, line: int) -> set[str]:
        """The tests that run a line; of one that an import runs, those of what hangs on it."""
        for places in self._places(file, line):
            contexts = set().union(*(self._contexts_of(name).get(number, set()) for name, number in places))
            found = set().union(*(self._users.get(each, {each}) for each in contexts)) & self._parts.keys()
            if found:
                return found
        return set()

    def _contexts_of(self, file: str) -> dict[int, set[str]]:
        if file not in self._contexts:
            from coverage.numbits import numbits_to_nums

            found = self._contexts[file] = defaultdict(set)
            for lines in self._lines:
                # Not by `CoverageData`, which erases what was recorded when a process that was forked opens it.
                with closing(sqlite3.connect(f"{lines.absolute().as_uri()}?mode=ro", uri=True)) as data:
                    for context, numbers in data.execute(CONTEXTS, [f"*/{file}"]):
                        for number in numbits_to_nums(numbers):
                            found[number].add(context)
        return self._contexts[file]

    def _places(self, file: str, line: int) -> Iterator[Places]:
        """The lines whose tests to take, or where there are none, others."""
        tree = ast.parse(self.texts[file])
        around = [node for node in ast.walk(tree) if isinstance(node, ast.stmt) and line in _lines(node)]
        innermost = around[-1]
        if any(line in _body(node) for node in around if isinstance(node, ast.FunctionDef)):
            yield [(file, line)]
            yield [(file, each) for each in _lines(innermost) if each not in _body(innermost)]
        elif isinstance(innermost, ast.FunctionDef):
            yield [(file, each) for each in _body(innermost)]
        else:
            names = [each for each in ast.walk(innermost) if isinstance(each, ast.Name)]
            bound = {each.id for each in names if isinstance(each.ctx, ast.Store)}
            yield [place for name in bound for place in self._mentions[name]]
            for node in [*reversed(around), tree]:
                yield [(file, each) for each in _lines_of_functions(node)]

    @cached_property
    def _mentions(self) -> dict[str, list[tuple[str, int]]]:
        """Of each word the lines of functions that have it."""
        found = defaultdict(list)
        for file, text in self.texts.items():
            lines = text.split("\n")
            for number in _lines_of_functions(ast.parse(text)):
                for word in set(re.findall(r"\w+", lines[number - 1])):
                    found[word].append((file, number))
        return found


def module_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


def _by_module(tests: list[str]) -> list[str]:
    """The same, each module's together: what they share is made once."""
    modules: dict[str, list[str]] = defaultdict(list)
    for test in tests:
        modules[module_of(test)].append(test)
    return [test for each in modules.values() for test in each]


def _lines(node: ast.stmt) -> range:
    first = min([node, *getattr(node, "decorator_list", ())], key=lambda each: each.lineno)
    return range(first.lineno, node.end_lineno + 1)


def _body(node: ast.AST) -> range:
    body = getattr(node, "body", None)
    return range(body[0].lineno, node.end_lineno + 1) if body else range(0)


def _lines_of_functions(node: ast.AST) -> set[int]:
    functions = (each for each in ast.walk(node) if isinstance(each, ast.FunctionDef))
    return {line for function in functions for line in _body(function)}
