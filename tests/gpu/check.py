"""The way of a check: each stage on each bundle, in a process that may break, and what was found kept after each."""

import argparse
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import machine
from .apart import Apart, ApartError
from .contract import checked
from .index import Entry, Row
from .page import page, write_document
from .peers import peers
from .plans import CONTRACT, PORTABLE, TIMING
from .replay import replayed
from .results import FILE, PAGE, STAGES, Results, failures, read, told
from .sessions import opens
from .standalone import ROOT
from .timing import timings

OUTPUT = ROOT / "build" / "gpu"
DOCUMENT = ROOT / "docs" / "gpu.md"
Task = tuple[str, Entry, Callable[..., list[Row]], tuple[Any, ...]]


def is_there(entry: Entry) -> bool:
    """Whether a bundle came of a plan."""
    return "problem" not in entry and "left_out" not in entry


def check(arguments: argparse.Namespace, entries: list[Entry], apart: Apart | None = None) -> int:
    """Run the stages; what was found by then is kept when it is interrupted.

    Raises:
        ApartError: No session can be opened on the provider.
    """
    apart = apart or Apart()
    results = Results(arguments.output or OUTPUT, arguments.provider, quick=arguments.quick)
    there = [entry for entry in entries if is_there(entry)]
    results.content["left_out"] = [
        {"bundle": entry["name"], "reason": entry.get("left_out") or f"not exported: {entry['problem']}"}
        for entry in entries
        if not is_there(entry)
    ]
    before = signal.signal(signal.SIGTERM, _interrupt)  # as a time limit ends it
    try:
        apart(opens, arguments.bundles / there[0]["name"], arguments.provider)
        results.content["machine"] = apart(machine.of_onnxruntime, arguments.provider) | Apart.once(machine.of_torch)
        results.save()
        with tempfile.TemporaryDirectory() as scratch:
            for stage, entry, function, more in tasks(arguments, there, Path(scratch)):
                rows = _rows_of(apart, stage, entry, function, (arguments.bundles, entry, *more))
                results.add(stage, rows)
                say(stage, entry, rows)
        results.content["ended"] = "to its end"
    except KeyboardInterrupt:
        results.content["ended"] = "interrupted"
        print("Interrupted: what was found by then is kept.", file=sys.stderr)
    finally:
        apart.close()
        signal.signal(signal.SIGTERM, before)
    results.save()
    return _verdict(arguments, results)


def tasks(arguments: argparse.Namespace, entries: list[Entry], scratch: Path) -> list[Task]:
    """What is to be run, in order: the stage, the bundle, the function, its further arguments."""
    provider, quick = arguments.provider, arguments.quick
    timed = [entry for entry in entries if entry["use"] == TIMING]
    plain = [entry for entry in timed if (entry["form"], entry["precision"]) == (PORTABLE, "float32")]
    found: list[Task] = [
        *(("replay", entry, replayed, (provider,)) for entry in entries),
        *(("contract", entry, checked, (provider, quick)) for entry in entries if entry["use"] == CONTRACT),
        *(("timing", entry, timings, (provider, scratch, quick)) for entry in timed),
        *(("timing", entry, peers, (scratch, quick)) for entry in plain),
    ]
    return [task for task in found if task[0] in arguments.stages]


def _rows_of(
    apart: Apart, stage: str, entry: Entry, function: Callable[..., list[Row]], arguments: tuple[Any, ...]
) -> list[Row]:
    """The rows of a task; where it gave none, one that says why. What broke CUDA has no say in what comes next."""
    try:
        if function is peers:
            rows: list[Row] = Apart.once(function, *arguments)
        else:
            rows = apart(function, *arguments)
    except ApartError as error:
        facts = {key: entry[key] for key in ("layer", "form", "precision")} | {"bundle": entry["name"]}
        where = {"where": "", "tf32": False, "size": "", "fill": ""} if stage == "timing" else {}
        rows = [{**facts, **where, "problem": str(error), "passed": False}]
    if any("cuda" in (row["problem"] or "").lower() for row in rows):
        apart.close()
    return rows


def say(stage: str, entry: Entry, rows: list[Row]) -> None:
    wrong = [row for row in rows if not row["passed"]]
    print(f"{stage} {entry['name']}: {len(rows) - len(wrong)} of {len(rows)} passed", flush=True)
    for row in wrong[:5]:
        print(f"  FAILED {told(row)}", flush=True)


def _verdict(arguments: argparse.Namespace, results: Results) -> int:
    content = read(results.folder / FILE)
    (results.folder / PAGE).write_text(page(content), encoding="utf-8")
    is_whole = content["ended"] == "to its end" and not (arguments.quick or arguments.only)
    if arguments.provider == "cuda" and arguments.output is None and is_whole and {*arguments.stages} == {*STAGES}:
        write_document(DOCUMENT, content)
    count, wrong = sum(len(content[stage]) for stage in STAGES), failures(content)
    print(f"{count - len(wrong)} of {count} rows passed on {arguments.provider}: {results.folder / FILE}")
    return 0 if not wrong and content["ended"] == "to its end" else 1


def _interrupt(*_: Any) -> None:
    raise KeyboardInterrupt
