"""Tests on a module with a fault in it, in a process that is forked for them from one that has imported the rest."""

import linecache
import os
import resource
import signal
import tempfile
from collections.abc import Iterator, Sequence
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import NoReturn

import pytest

MEMORY = 8 << 30  # bytes of data: a fault may ask for any number of them
OUTCOMES = {0: "survived", 5: "not run", -signal.SIGALRM: "timed out"}  # by exit codes; with all others a test failed


class Trial:
    """Tests that run until one fails, for at most so many seconds, in a process with a group of its own."""

    def __init__(self, tests: Sequence[str], limit: float, file: str = "", text: str = "") -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="mutant.", ignore_cleanup_errors=True)
        self.process = os.fork()
        if self.process == 0:
            self._run(tests, limit, file, text)
        os.setpgid(self.process, self.process)

    def end(self) -> tuple[str, str]:
        """Ends it with all that the tests have started: the outcome, and the test that failed."""
        os.killpg(self.process, signal.SIGKILL)
        code = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        failed = Path(self._folder.name, "failed")
        name = failed.read_text(encoding="utf-8") if failed.exists() else ""
        self._folder.cleanup()
        return OUTCOMES.get(code, "caught"), name

    def _run(self, tests: Sequence[str], limit: float, file: str, text: str) -> NoReturn:
        code, folder = 1, self._folder.name
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            signal.setitimer(signal.ITIMER_REAL, limit)
            resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
            log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.environ["TMPDIR"] = tempfile.tempdir = folder
            if file:
                _put(os.path.realpath(file), text)
            files = dict.fromkeys(test.partition("::")[0] for test in tests)
            plain = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/tests"]
            code = pytest.main([*plain, *files], plugins=[_Watch(tests, Path(folder, "failed"))])
        finally:  # whatever happened: nothing that follows is this process's
            os._exit(code)


def _put(path: str, text: str) -> None:
    """Gives a file another text when it is imported: for `inspect`, and so for AutoGraph, too."""
    get_code = SourceFileLoader.get_code

    def get_other_code(loader: SourceFileLoader, fullname: str) -> CodeType | None:
        if os.path.realpath(loader.path) != path:
            return get_code(loader, fullname)
        linecache.cache[loader.path] = len(text), None, text.splitlines(keepends=True), loader.path
        return compile(text, loader.path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_other_code


class _Watch:
    """Selects tests whatever marks and options say, and ends with the first that fails."""

    def __init__(self, tests: Sequence[str], failed: Path) -> None:
        self._tests, self._failed = tests, failed

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        found = {item.nodeid: item for item in items}
        yield
        items[:] = [found[test] for test in self._tests if test in found]

    def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
        if report.failed:
            self._failed.write_text(report.nodeid, encoding="utf-8")
            os._exit(1)

    pytest_collectreport = pytest_runtest_logreport

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, exitstatus: int) -> None:
        os._exit(exitstatus)  # a summary takes hypothesis a second
