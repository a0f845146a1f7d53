"""Measurement of one question: options, description of the machine, results and their table."""

import importlib
import os
import platform
import tempfile
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from _calibration import MAX_ATTEMPTS, has_speed_changed
from _race import Case, race
from _tables import COLUMNS, Row, flatten_case, format_markdown, pivot_contestants, read_csv, write_csv

from keras_attn_export._machine import count_usable_cpus, read_processor_name

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
DISTURBED_RESULTS = HERE.parent / "build" / "benchmarks"  # results of runs that other processes disturbed
# Each question is a module with a function `run_cases(options)`.
QUESTIONS = ("layers", "models", "thresholds", "int8", "training", "export_cost", "batch", "decoding")
PACKAGES = ("keras-attn", "keras", "tensorflow", "onnxruntime", "torch", "jax", "numpy")


@dataclass(frozen=True)
class Options:
    """Options of a measurement.

    Attributes:
        quick: True to check only that all cases run, with tiny sizes and few repeats; the times are not comparable.
        threads: Number of threads of a run.
        folder: Folder for temporary files.
    """

    quick: bool
    threads: int
    folder: Path

    def race(self, case: Case, rounds: int = 15, turn_seconds: float = 0.1) -> dict[str, Any]:
        """Race a case, and repeat the race if the speed of the machine changed; if quick, with few, short rounds.

        Without rounds, only the build of each contestant is timed, such as an export.
        """
        if self.quick:
            rounds, turn_seconds = min(rounds, 3), min(turn_seconds, 0.01)
        for _ in range(MAX_ATTEMPTS if rounds and not self.quick else 1):
            folder = Path(tempfile.mkdtemp(dir=self.folder))
            result = race(case, folder, threads=self.threads, rounds=rounds, turn_seconds=turn_seconds)
            if not has_speed_changed(result["calibration"]):
                break
        return result


def measure(question: str, quick: bool, threads: int, results: Path) -> None:
    """Measure a question, write its results, and print its table."""
    results.mkdir(parents=True, exist_ok=True)
    conditions = describe_environment(threads)
    with tempfile.TemporaryDirectory(prefix="keras_attn_bench_") as folder:
        cases = importlib.import_module(question).run_cases(Options(quick, threads, Path(folder)))
        rows = [row for case in cases for row in flatten_case(case)]
    num_disturbed = sum(has_speed_changed(case["calibration"]) for case in cases if "calibration" in case)
    # Disturbed results do not replace the results in the repository.
    if num_disturbed and results == RESULTS:
        results = DISTURBED_RESULTS
        results.mkdir(parents=True, exist_ok=True)
        print(
            f"{num_disturbed} of {len(cases)} cases were disturbed by other processes in all {MAX_ATTEMPTS} attempts. "
            f"The table stays; the new results are in {DISTURBED_RESULTS.relative_to(HERE.parent)}/.",
            flush=True,
        )
    write_csv(results / f"{question}.csv", rows, conditions)
    print(f"### {question}\n\n{render_table(question, results)}\n", flush=True)


def render_table(question: str, results: Path) -> str:
    """Return the Markdown table of a question, followed by the day and the machine."""
    file = results / f"{question}.csv"
    if not file.exists():
        return f"There are no results; `scripts/bench {question}` measures them."
    rows, conditions = read_csv(file)
    return f"{format_markdown(select_table_rows(question, rows))}\n\n{conditions}"


def select_table_rows(question: str, rows: list[Row]) -> list[Row]:
    """Return the rows of a question's table."""
    if question in SUMMARIES:
        module, function = SUMMARIES[question]
        summary: list[Row] = getattr(importlib.import_module(module), function)(rows)
        return summary
    return pivot_contestants(rows, COLUMNS_BY_QUESTION.get(question, COLUMNS))


# Tables with other columns than the default. The modules of questions do not define them, because they import packages
# that are not needed to read results.
SUMMARIES = {"thresholds": ("_rules", "summarize_rules")}
COLUMNS_BY_QUESTION = {
    "layers": {"ms": "ms", "speed": "speed", "extra_mib": "extra MiB"},
    "models": {"best_ms": "best ms", "speed_of_best": "speed"},
    "int8": {"accuracy": "accuracy", "size": "size", "best_ms": "best ms", "speed_of_best": "speed"},
    "training": {"ms": "ms", "speed": "speed", "extra_mib": "extra MiB"},
    "export_cost": {"seconds": "seconds", "peak_gb": "peak GB", "child_gb": "GB of a child process"},
    "batch": {"rows_per_second": "rows/s", "extra_mib": "extra MiB"},
}


def describe_environment(threads: int) -> str:
    """Return the day, the machine and the versions on which the numbers depend."""
    versions = {name: text for name in PACKAGES if (text := _find_version(name))}
    versions = {"python": platform.python_version(), **versions}
    load = round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else "unknown"
    machine = f"{read_processor_name()}, {count_usable_cpus()} cores ({platform.system()} {platform.machine()})"
    software = ", ".join(f"{name} {number}" for name, number in versions.items())
    day = datetime.now(UTC).date().isoformat()
    return f"Measured {day}: {machine}, {threads} threads, system load {load} before; {software}."


def _find_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
