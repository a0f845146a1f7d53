"""Tests on a module with a fault in it, in a process that is forked for them from one that has imported the rest."""

import linecache
import os
import resource
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from itertools import islice
from pathlib import Path
from types import CodeType
from typing import Any, NoReturn

import pytest

from .draw import Fault, mutated
from .record import PACKAGES, Record

MEMORY = 8 << 30  # bytes of data: a fault may ask for any number of them
PAUSE = 0.02  # seconds between two looks at a process
PASSED, NOT_FOUND = 0, 5  # pytest's exit codes; with all others something has failed
CAUGHT = ("caught", "timed out")
JUDGED = (*CAUGHT, "survived", "not run by any test")

Verdict = dict[str, Any]  # a fault, the line `after` it, its `outcome`, the `tests` that saw it, those that `ran`


class Trials:
    """Tries faults with the tests that run their lines."""

    def __init__(self, record: Record, budget: float, limit: float) -> None:
        self.record, self._budget, self._limit = record, budget, limit

    def verdict(self, fault: Fault) -> Verdict:
        """What becomes of a fault."""
        start, ran, outcome, seen = time.monotonic(), [], "not run by any test", []
        text, after = mutated(self.record.texts.get(fault.file, ""), fault)
        for stage in self.record.stages(fault.file, fault.line, self._budget) if text else ():
            outcome, seen = self._run(stage, Mutant(fault.file, text), "--exitfirst")
            ran += stage
            if outcome in CAUGHT:
                break
        found = {"after": after, "outcome": outcome if text else "gone", "tests": seen, "ran": ran}
        return fault._asdict() | found | {"seconds": round(time.monotonic() - start, 1)}

    def check_without_fault(self, chosen: Sequence[Fault]) -> None:
        """Raises SystemExit unless some tests pass that are run like all others, but without a fault."""
        stages = (stage for fault in chosen for stage in self.record.stages(fault.file, fault.line, self._budget))
        for stage in islice(stages, 1):
            outcome, tests = self._run(stage, None, "--exitfirst")
            if outcome != "survived":
                raise SystemExit(f"nox -s mutate: without a fault {outcome}: {' '.join(tests or stage)}")

    def confirm(self, verdicts: Sequence[Verdict]) -> None:
        """Takes back what was caught by tests that fail without a fault too."""
        caught = [verdict for verdict in verdicts if verdict["outcome"] == "caught"]
        tests = sorted({test for verdict in caught for test in verdict["tests"] if "::" in test})
        outcome, failed = self._run(tests, None) if tests else ("survived", [])
        print(f"\nThe {len(tests)} tests that saw a fault, without one: {outcome}", *failed)
        for verdict in caught:
            if outcome != "survived" and not {*verdict["tests"]}.isdisjoint(failed):
                verdict["outcome"] = "fails without it too"

    def _run(self, tests: Sequence[str], mutant: "Mutant | None", *options: str) -> tuple[str, list[str]]:
        limit = self._limit + 5 * self.record.seconds(tests)
        return run_tests(tests, limit, mutant, *options)


class Mutant(SourceFileLoader):
    """Finds and loads one module, with another text than its own: for `inspect`, and so for AutoGraph, too."""

    def __init__(self, file: str, text: str) -> None:
        package, *rest = Path(file).with_suffix("").parts
        super().__init__(".".join([PACKAGES[package], *rest]).removesuffix(".__init__"), str(Path(file).absolute()))
        self._text = text

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        """Where the module is."""
        return spec_from_file_location(name, self.path, loader=self) if name == self.name else None

    def get_code(self, fullname: str) -> CodeType:
        """The code with the fault, past what is compiled already."""
        linecache.cache[self.path] = len(self._text), None, self._text.splitlines(keepends=True), self.path
        return compile(self._text, self.path, "exec", dont_inherit=True)


def run_tests(tests: Sequence[str], limit: float, mutant: Mutant | None, *options: str) -> tuple[str, list[str]]:
    """Runs tests in a process of their own, for at most so many seconds; the outcome, and which tests it hangs on."""
    with tempfile.TemporaryDirectory(prefix="mutant.", ignore_cleanup_errors=True) as folder:
        process = os.fork()
        if process == 0:
            _run(tests, Path(folder), mutant, options)
        with suppress(PermissionError):  # where the process was faster
            os.setpgid(process, process)
        try:
            has_ended = _wait(process, limit)
        finally:
            os.killpg(process, signal.SIGKILL)  # what the tests have started too
            code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        names = sorted(Path(folder).glob("*.nodeids"))  # of what failed before what was started last
        seen = names[0].read_text(encoding="utf-8").splitlines() if names else []
        if not has_ended:
            return "timed out", seen
        return {PASSED: ("survived", []), NOT_FOUND: ("not found", [])}.get(code, ("caught", seen))


def _wait(process: int, limit: float) -> bool:
    """Whether a process ends within so many seconds, without those for which this one is stopped."""
    for _ in range(round(limit / PAUSE) + 1):
        if os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            return True
        time.sleep(PAUSE)
    return False


def _run(tests: Sequence[str], folder: Path, mutant: Mutant | None, options: Sequence[str]) -> NoReturn:
    code = 1
    try:
        with suppress(PermissionError):
            os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        if mutant is not None:
            sys.meta_path.insert(0, mutant)
        files = dict.fromkeys(test.partition("::")[0] for test in tests)
        plain = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/tests"]
        code = pytest.main([*plain, *options, *files], plugins=[_Watch(tests, folder)])
    finally:  # whatever happened: nothing that follows is this process's
        os._exit(code)


class _Watch:
    """Selects tests whatever marks and options say, and writes down how far they are."""

    def __init__(self, tests: Sequence[str], folder: Path) -> None:
        self._order = {test: number for number, test in enumerate(tests)}
        self._folder = folder

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        chosen = [item for item in items if item.nodeid in self._order]
        yield
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        os._exit(exitstatus)  # a summary takes hypothesis a second

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        (self._folder / "started.nodeids").write_text(nodeid, encoding="utf-8")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self._add(report)

    def _add(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            with (self._folder / "failed.nodeids").open("a", encoding="utf-8") as file:
                file.write(f"{report.nodeid}\n")
