"""Puts faults into a copy of the packages, one at a time: which of them do the tests that run the line not see?"""

import argparse
import difflib
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from tiers.measured import Measured

from .choose import cheapest
from .draw import drawn, faults, mutated

PACKAGES = ("keras_attn", "export")
PYTEST = "-qx --tb=no -p no:tiers.plugin -p no:cacheprovider"
ENDLESS = "-o faulthandler_timeout=60 -o faulthandler_exit_on_timeout=true"  # seconds of a test
OUTCOMES = {0: "survived", 4: "not started", 5: "not run"}  # by the exit codes of pytest; with others a test failed


def main() -> None:
    parser = argparse.ArgumentParser(prog="nox -s mutate", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, metavar="N", help="how many to draw (20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="what they are drawn from (0)")
    parser.add_argument("--since", metavar="REV", help="only on lines that differ from this revision of git")
    parser.add_argument("--budget", type=float, default=60, metavar="S", help="seconds of tests for a fault (60)")
    parser.add_argument("--coverage", type=Path, default=Path("build/coverage"), metavar="FOLDER", help="the record")
    given = parser.parse_args()
    measured, counts = Measured(given.coverage), Counter()
    if not measured.lines:
        parser.error(f"{given.coverage} holds no lines: RECORD={given.coverage} RECORD_LINES=yes scripts/test")
    files = [file for package in PACKAGES for file in sorted(Path(package).rglob("*.py"))]
    there = [fault for file in files for fault in faults(file, file.read_text())]
    if given.since:
        changed = {file: changed_lines(file, given.since) for file in files}
        there = [fault for fault in there if fault.old.lineno in changed[fault.file]]
    with tempfile.TemporaryDirectory() as scratch:
        for package in PACKAGES:
            shutil.copytree(package, Path(scratch, package))
        Path(scratch, "keras_attn_export").symlink_to("export")
        for fault in drawn(there, given.faults, given.seed):
            line, right, copy = fault.old.lineno, fault.file.read_text(), Path(scratch, fault.file)
            copy.write_text(wrong := mutated(right, fault))
            shown = difflib.unified_diff(right.splitlines(), wrong.splitlines(), n=0, lineterm="")
            print(f"\n{fault.file}:{line}: {fault.kind}", *shown, sep="\n", flush=True)
            tests = cheapest(measured, fault.file, line, given.budget)
            outcome = OUTCOMES.get(run(tests, scratch) if tests else 5, "caught")
            copy.write_text(right)
            counts[outcome] += 1
            print(outcome)
    print(f"\n{counts.total()} faults:", ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))


def changed_lines(file: Path, revision: str) -> set[int]:
    """The lines of a file that are not as they were."""
    command = ["git", "blame", "-s", f"^{revision}", "--", file]
    blamed = subprocess.run(command, capture_output=True, text=True, check=False).stdout.splitlines()
    return {number for number, line in enumerate(blamed, 1) if not line.startswith("^")}


def run(tests: list[str], scratch: str) -> int:
    """Runs tests on the packages in a folder until one fails, and returns pytest's exit code."""
    command = [sys.executable, "-P", "-m", "pytest", *PYTEST.split(), *ENDLESS.split(), "-m", "", *tests]
    resource.setrlimit(resource.RLIMIT_DATA, (8 << 30, 8 << 30))  # bytes, of which a fault may ask for any number
    resource.setrlimit(resource.RLIMIT_CPU, (1000, 1000))  # seconds: an import may not end either
    process = subprocess.Popen(command, env={**os.environ, "PYTHONPATH": scratch, "TMPDIR": scratch}, process_group=0)
    try:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # with all that the tests have started
    return process.wait()


if __name__ == "__main__":
    main()
