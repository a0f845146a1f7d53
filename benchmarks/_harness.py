"""Measurement of one question: options, the machine, the results and their table."""

import importlib
import os
import platform
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from _calibration import AGAIN, moved
from _race import Case, race
from _tables import COLUMNS, Row, markdown, pivot, read_csv, rows_of_case, write_csv

from keras_attn_export._machine import processor, usable_cpus

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DISTURBED = HERE.parent / "build" / "benchmarks"  # results of runs that other processes disturbed
# Each question is a module with `cases(options)`.
QUESTIONS = ("layers", "models", "thresholds", "int8", "training", "export_cost", "batch", "decoding")
PACKAGES = ("keras-attn", "keras", "tensorflow", "onnxruntime", "torch", "jax", "numpy")


@dataclass(frozen=True)
class Options:
    """Options of a measurement.

    Attributes:
        quick: Whether sizes are tiny and repeats few, to check that everything runs; the numbers mean nothing.
        threads: Number of threads of a run.
        work: Folder for temporary files.
    """

    quick: bool
    threads: int
    work: Path

    def race(self, case: Case, rounds: int = 15, turn: float = 0.1) -> dict[str, Any]:
        """Race a case, again if the speed of the machine changed meanwhile; with fewer, shorter rounds if quick.

        Without rounds only the making of each contestant is timed, as in an export; repeated races give its median.
        """
        if self.quick:
            rounds, turn = min(rounds, 3), min(turn, 0.01)
        for _ in range(AGAIN if rounds and not self.quick else 1):
            folder = Path(tempfile.mkdtemp(dir=self.work))
            result = race(case, folder, threads=self.threads, rounds=rounds, turn=turn)
            if not moved(result["calibration"]):
                break
        return result


def measure(question: str, quick: bool, threads: int, results: Path) -> None:
    """Measure a question, write its results, and print its table."""
    results.mkdir(parents=True, exist_ok=True)
    measured = environment(threads)
    with tempfile.TemporaryDirectory(prefix="keras_attn_bench_") as work:
        cases = importlib.import_module(question).cases(Options(quick, threads, Path(work)))
        rows = [row for case in cases for row in rows_of_case(case)]
    disturbed = sum(moved(case["calibration"]) for case in cases if "calibration" in case)
    if disturbed and results == RESULTS:
        results = DISTURBED
        results.mkdir(parents=True, exist_ok=True)
        print(
            f"{disturbed} of {len(cases)} cases were disturbed by other processes in all {AGAIN} attempts. The table "
            f"stays; the new results are in {DISTURBED.relative_to(HERE.parent)}/.",
            flush=True,
        )
    write_csv(results / f"{question}.csv", rows, measured)
    print(f"### {question}\n\n{table(question, results)}\n", flush=True)


def table(question: str, results: Path) -> str:
    """Return the Markdown table of a question, with the day and the machine below it."""
    file = results / f"{question}.csv"
    if not file.exists():
        return f"There are no results; `scripts/bench {question}` measures them."
    rows, measured = read_csv(file)
    return f"{markdown(rows_of_table(question, rows))}\n\n{measured}"


def rows_of_table(question: str, rows: list[Row]) -> list[Row]:
    """Return the rows of a question's table."""
    if question in SUMMARIES:
        module, function = SUMMARIES[question]
        summary: list[Row] = getattr(importlib.import_module(module), function)(rows)
        return summary
    return pivot(rows, COLUMNS_OF.get(question, COLUMNS))


# Tables other than the default one. They are here because the modules of questions import packages that a reader of
# results may lack.
SUMMARIES = {"thresholds": ("_rules", "summary")}
COLUMNS_OF = {
    "layers": {"ms": "ms", "speed": "speed", "extra_mib": "extra MiB"},
    "models": {"best_ms": "best ms", "speed_of_best": "speed"},
    "int8": {"accuracy": "accuracy", "size": "size", "best_ms": "best ms", "speed_of_best": "speed"},
    "training": {"ms": "ms", "speed": "speed", "extra_mib": "extra MiB"},
    "export_cost": {"seconds": "seconds", "peak_gb": "peak GB", "child_gb": "GB of a child process"},
    "batch": {"rows_per_second": "rows/s", "extra_mib": "extra MiB"},
}


def environment(threads: int) -> str:
    """Return the day, the machine and the versions on which the numbers depend."""
    names = {"python": platform.python_version(), **{name: v for name in PACKAGES if (v := _version(name))}}
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else "unknown"
    machine = f"{processor()}, {usable_cpus()} cores ({platform.system()} {platform.machine()})"
    versions = ", ".join(f"{name} {number}" for name, number in names.items())
    day = datetime.now(UTC).date().isoformat()
    return f"Measured {day}: {machine}, {threads} threads, system load {load} before; {versions}."


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
