"""Puts faults into the packages, one at a time, and lists those that no test sees.

A fault is tried by the tests that run its line, as recorded. Processes that tests start do not have the fault.
"""

import argparse
import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from .draw import Fault, drawn, faults, mutated
from .record import Record
from .trial import Trial

PACKAGES = ("keras_attn", "export")
PRELOADED = ("tensorflow", "keras", "onnx", "onnxruntime", "tf2onnx")
LIMIT = 60  # seconds of a trial beside 5 times what its tests took
LASTING = ("file", "column", "kind", "what", "text")  # what a fault is known by, wherever its line is now
NAMED = (*LASTING, "line")

Verdict = dict[str, Any]  # a fault, the line `after` it, its `outcome`, the `test` that saw it, and those that `ran`


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
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.pop("PYTHONPATH", None)  # which nox -s mutate sets for this process alone
    record = Record(given.coverage)
    for name in preloaded:
        import_module(name)
    gc.freeze()
    verdicts = []
    for verdict in tried(chosen(given), record, given.budget, given.jobs):
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
        found = []
        for named in json.loads(given.earlier.read_text(encoding="utf-8")):
            same = [each for each in there if all(getattr(each, name) == named[name] for name in LASTING)]
            found += sorted(same, key=lambda each: abs(each.line - named["line"]))[:1]
        return found
    if given.since:
        changed = changed_lines(given.since)
        there = [fault for fault in there if fault.line in changed[fault.file]]
    return drawn(there, given.faults, given.seed)


def changed_lines(revision: str) -> dict[str, set[int]]:
    """The lines of each file that are not as they were."""
    found: dict[str, set[int]] = defaultdict(set)
    command = ["git", "diff", "--no-ext-diff", "--unified=0", revision, "--", *PACKAGES]
    for line in subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines():
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            found[file].update(range(int(match[1]), int(match[1]) + int(match[2] or 1)))
    return found


def tried(given: Sequence[Fault], record: Record, budget: float, jobs: int) -> Iterator[Verdict]:
    """What becomes of faults, so many at a time."""
    waiting, running = [*given], {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                fault = waiting.pop(0)
                text, after = mutated(Path(fault.file).read_text(encoding="utf-8"), fault)
                tests, seconds = record.cheapest(fault.file, fault.line, budget)
                verdict = {name: getattr(fault, name) for name in NAMED} | {"after": after, "ran": tests}
                if tests:
                    trial = Trial(tests, LIMIT + 5 * seconds, fault.file, text)
                    running[trial.process] = trial, verdict, time.monotonic()
                else:
                    yield verdict | {"outcome": "not run", "test": "", "seconds": 0.0}
            if running:
                ended = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
                trial, verdict, start = running.pop(ended.si_pid)
                outcome, test = trial.end()
                yield verdict | {"outcome": outcome, "test": test, "seconds": round(time.monotonic() - start, 1)}
    finally:
        for trial, *_ in running.values():
            trial.end()


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
