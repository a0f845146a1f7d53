"""Puts faults into the packages, one at a time, and lists those that no test sees.

A fault is tried by the tests that run its line, as recorded. Processes that tests start do not have the fault.
"""

import argparse
import gc
import json
import multiprocessing
import os
import re
import signal
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from .draw import Fault, drawn, faults
from .record import PACKAGES, Record
from .trial import CAUGHT, JUDGED, Trials, Verdict

# As in conftest.py, before TensorFlow is imported.
ENVIRONMENT = {"KERAS_BACKEND": "tensorflow", "TF_CPP_MIN_LOG_LEVEL": "3", "TF2ONNX_CATCH_ERRORS": "FALSE"}
PRELOADED = ("tensorflow", "keras", "onnx", "onnxruntime", "tf2onnx")
SHOWN = 5  # tests of a survivor


def main(argv: Sequence[str] | None = None) -> int:
    """Tries faults; 0 unless fewer are caught than asked for."""
    given = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.update(ENVIRONMENT | {**os.environ})
    os.environ.pop("PYTHONPATH", None)  # which nox -s mutate sets for this process alone
    sys.dont_write_bytecode = False  # or each process compiles the tests anew
    for name in given.preload:
        import_module(name)
    gc.freeze()
    trials = Trials(Record(given.coverage, Path.cwd()), given.budget, given.limit)
    chosen = _chosen(given, trials.record.texts)
    trials.check_without_fault(chosen)
    verdicts: list[Verdict] = []
    with multiprocessing.get_context("fork").Pool(given.jobs, _begin, (trials,)) as pool:
        for verdict in pool.imap(_verdict, chosen):
            verdicts.append(verdict)
            print(_line(verdict), flush=True)
            _write(verdicts, given.json)
    trials.confirm(verdicts)
    _write(verdicts, given.json)
    return _summary(verdicts, given.fail_below)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="nox -s mutate", description=__doc__)
    parser.add_argument("--faults", type=int, default=20, metavar="N", help="how many to draw (20)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="what they are drawn from (0)")
    parser.add_argument("--since", metavar="REV", help="only on lines that differ from this revision of git")
    parser.add_argument("--from", dest="earlier", type=Path, metavar="FILE", help="the faults of an earlier --json")
    parser.add_argument("--jobs", type=int, default=1, metavar="J", help="faults at a time (1)")
    parser.add_argument("--budget", type=float, default=60, metavar="S", help="seconds of tests for a fault (60)")
    parser.add_argument(
        "--limit", type=float, default=60, metavar="S", help="seconds beside 5 times what tests took (60)"
    )
    parser.add_argument("--coverage", type=Path, default=Path("build/coverage"), metavar="FOLDER", help="the record")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write what became of each")
    parser.add_argument("--fail-below", type=float, default=0, metavar="SHARE", help="fail if fewer are caught (0)")
    parser.add_argument("--preload", nargs="*", default=PRELOADED, metavar="MODULE", help="what is imported only once")
    return parser


def _chosen(given: argparse.Namespace, texts: dict[str, str]) -> list[Fault]:
    there = [fault for file, text in texts.items() for fault in faults(file, text)]
    if given.earlier:
        named = json.loads(given.earlier.read_text(encoding="utf-8"))
        return [_again(Fault(*(each[field] for field in Fault._fields)), there) for each in named]
    if given.since:
        changed = _changed(given.since)
        there = [fault for fault in there if fault.line in changed[fault.file]]
    return drawn(there, given.faults, given.seed)


def _again(fault: Fault, there: Sequence[Fault]) -> Fault:
    """The same fault, on whatever line it is now: the nearest, where several lines read so."""
    same = (each for each in there if each._replace(line=fault.line) == fault)
    return min(same, key=lambda each: abs(each.line - fault.line), default=fault)


def _changed(revision: str) -> dict[str, set[int]]:
    """The lines of each file that are not as they were."""

    def git(*arguments: str) -> list[str]:
        command = ["git", *arguments, "--", *PACKAGES]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()

    found: dict[str, set[int]] = defaultdict(set)
    for file in git("ls-files", "--others", "--exclude-standard"):
        found[file].update(range(1, 10**6))
    for line in git("diff", "--no-ext-diff", "--unified=0", revision):
        if line.startswith("+++ "):
            file = line.removeprefix("+++ b/")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            first, count = int(match[1]), int(match[2] or 1)
            found[file].update(range(first, first + count))
    return found


def _begin(trials: Trials) -> None:
    """Of a process that tries faults: it ends what it has started when it is told to end."""
    global TRIALS
    TRIALS = trials
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # which the process above heeds


def _verdict(fault: Fault) -> Verdict:
    return TRIALS.verdict(fault)


def _summary(verdicts: Sequence[Verdict], fail_below: float) -> int:
    for verdict in verdicts:
        if verdict["outcome"] == "survived":
            ran = verdict["ran"]
            print(f"\n{_line(verdict)}\n  - {verdict['text']}\n  + {verdict['after']}\n    {len(ran)} tests ran:")
            print(*(f"    {test}" for test in ran[:SHOWN]), sep="\n")
    counts = Counter(verdict["outcome"] for verdict in verdicts)
    share = sum(counts[outcome] for outcome in CAUGHT) / max(1, sum(counts[outcome] for outcome in JUDGED))
    print(f"\n{len(verdicts)} faults:", ", ".join(f"{count} {outcome}" for outcome, count in counts.most_common()))
    print(f"{share:.1%} caught")
    return int(share < fail_below)


def _line(verdict: Verdict) -> str:
    place = f"{verdict['file']}:{verdict['line']}"
    what = f"{verdict['kind']}, {verdict['what']}"
    return f"{verdict['outcome']:9} {verdict['seconds']:5.1f} s  {place}  {what}  {' '.join(verdict['tests'][:1])}"


def _write(verdicts: Sequence[Verdict], file: Path | None) -> None:
    if file is not None:
        part = file.with_suffix(".part")
        part.write_text(json.dumps(verdicts, indent=1) + "\n", encoding="utf-8")
        part.replace(file)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
