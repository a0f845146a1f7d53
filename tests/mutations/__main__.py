"""Puts faults into the packages, one at a time, and lists those that no test sees.

A fault is tried by the tests that run its line, as recorded. Processes that tests start do not have the fault.
"""

import argparse
import gc
import json
import linecache
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from importlib import import_module
from importlib.machinery import SourceFileLoader
from multiprocessing import current_process, get_context
from pathlib import Path
from typing import Any, NoReturn

import pytest

from .draw import NAMED, Fault, drawn, faults, mutated
from .record import Record, module_of

PACKAGES = ("keras_attn", "export")
PRELOADED = ("tensorflow", "keras", "onnx", "onnxruntime", "tf2onnx")
LIMIT = 60  # seconds of a trial beside 5 times what its tests took
MEMORY = 8 << 30  # bytes of data: a fault may ask for any number of them
OUTCOMES = {0: "survived", 5: "not run", -signal.SIGALRM: "timed out"}  # by exit codes; with all others a test failed


def main(argv: Sequence[str] | None = None, preloaded: Sequence[str] = PRELOADED) -> None:
    """Tries faults."""
    parser = argparse.ArgumentParser(prog="nox -s mutate", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, metavar="N", help="how many to draw (20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="what they are drawn from (0)")
    parser.add_argument("--since", metavar="REV", help="only on lines that differ from this revision of git")
    parser.add_argument("--from", dest="earlier", type=Path, metavar="FILE", help="the faults of an earlier --json")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="faults at a time (1)")
    parser.add_argument("--budget", type=float, default=60, metavar="S", help="seconds of tests for a fault (60)")
    parser.add_argument("--coverage", type=Path, default=Path("build/coverage"), metavar="FOLDER", help="the record")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each")
    given = parser.parse_args(argv)
    os.environ.pop("PYTHONPATH", None)  # which nox -s mutate sets for this process alone
    record = Record(given.coverage)
    tasks = [(fault, *record.cheapest(fault.file, fault.line, given.budget)) for fault in chosen(given)]
    for name in preloaded:
        import_module(name)
    gc.freeze()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(130))  # so that each process ends those that it has started
    signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
    verdicts = []
    with get_context("fork").Pool(given.jobs) as pool:
        for verdict in pool.imap_unordered(tried, tasks):
            verdicts.append(verdict)
            print("{outcome:9} {seconds:5.1f} s  {file}:{line}  {kind}, {what}  {test}".format(**verdict), flush=True)
            if verdict["outcome"] == "survived":
                print(f"  - {verdict['text']}\n  + {verdict['after']}\n    {len(verdict['ran'])} tests ran")
            if given.json:
                given.json.write_text(json.dumps(verdicts, indent=1) + "\n", encoding="utf-8")
    counts = Counter(verdict["outcome"] for verdict in verdicts)
    print(f"\n{len(verdicts)} faults:", ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    print(f"{(counts['caught'] + counts['timed out']) / max(1, len(verdicts)):.1%} caught")


def chosen(given: argparse.Namespace) -> list[Fault]:
    """Faults that are drawn; or those of an earlier file on whatever line they are now, the nearest of several."""
    files = [file for package in PACKAGES for file in sorted(Path(package).rglob("*.py"))]
    there = [fault for file in files for fault in faults(file.as_posix(), file.read_text(encoding="utf-8"))]
    if given.earlier:
        lasting, found = [name for name in NAMED if name != "line"], []
        for named in json.loads(given.earlier.read_text(encoding="utf-8")):
            same = [each for each in there if all(getattr(each, name) == named[name] for name in lasting)]
            found += sorted(same, key=lambda each: abs(each.line - named["line"]))[:1]
        return found
    changed = changed_lines(given.since) if given.since else None
    return drawn((each for each in there if changed is None or each[:2] in changed), given.faults, given.seed)


def changed_lines(revision: str) -> set[tuple[str, int]]:
    """The lines that are not as they were."""
    command = ["git", "diff", "--no-ext-diff", "--unified=0", revision, "--", *PACKAGES]
    found, file = set(), ""
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            found |= {(file, int(match[1]) + index) for index in range(int(match[2] or 1))}
    return found


def tried(task: tuple[Fault, list[str], float]) -> dict[str, Any]:
    """A fault, the line `after` it, its `outcome`, the `test` that saw it, and those that `ran`."""
    fault, tests, seconds = task
    text, after = mutated(Path(fault.file).read_text(encoding="utf-8"), fault)
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant.", ignore_cleanup_errors=True) as folder:
        child = os.fork()
        if child == 0:
            run(tests, LIMIT + 5 * seconds, fault.file, text, folder)
        os.setpgid(child, child)
        try:
            os.waitid(os.P_PID, child, os.WEXITED | os.WNOWAIT)
        finally:
            os.killpg(child, signal.SIGKILL)  # with all that the tests have started
        outcome = OUTCOMES.get(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), "caught")
        failed = "".join(path.read_text(encoding="utf-8") for path in Path(folder).glob("failed"))
    took = round(time.monotonic() - start, 1)
    verdict = {"after": after, "outcome": outcome, "test": failed, "ran": tests, "seconds": took}
    return dict(zip(NAMED, fault, strict=False)) | verdict


def run(tests: Sequence[str], limit: float, file: str, text: str, folder: str) -> NoReturn:
    """Runs tests until one fails, for at most so many seconds, on a file of another text; and ends the process."""

    class Watch:
        @pytest.hookimpl(wrapper=True, tryfirst=True)
        def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Any:
            found = {item.nodeid: item for item in items}
            yield
            items[:] = [found[test] for test in tests if test in found]  # whatever marks and options say

        def pytest_runtest_logreport(self, report: pytest.TestReport | pytest.CollectReport) -> None:
            if report.failed:
                Path(folder, "failed").write_text(report.nodeid, encoding="utf-8")
                os._exit(1)

        pytest_collectreport = pytest_runtest_logreport

    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        current_process().daemon = False  # or tests might start no processes
        signal.setitimer(signal.ITIMER_REAL, limit)
        resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
        log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.environ["TMPDIR"] = tempfile.tempdir = folder
        replace(os.path.realpath(file), text)
        plain = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--basetemp={folder}/tests"]
        code = pytest.main([*plain, *dict.fromkeys(map(module_of, tests))], [Watch()]) if tests else 5
    finally:  # whatever happened: nothing that follows is this process's
        os._exit(code)


def replace(path: str, text: str) -> None:
    """Gives a file another text when it is imported: for `inspect`, and so for AutoGraph, too."""

    def get_code(loader: SourceFileLoader, name: str, get_own: Any = SourceFileLoader.get_code) -> Any:
        if os.path.realpath(loader.path) != path:
            return get_own(loader, name)
        linecache.cache[loader.path] = len(text), None, text.splitlines(keepends=True), loader.path
        return compile(text, loader.path, "exec", dont_inherit=True)

    SourceFileLoader.get_code = get_code


if __name__ == "__main__":
    main()
