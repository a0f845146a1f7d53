"""What every benchmark does: it has options, describes the machine, writes its results and prints their tables."""

import importlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from _calibration import AGAIN, moved
from _race import Case, race
from _tables import markdown

from keras_attn_export._machine import processor, usable_cpus

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
ASIDE = HERE.parent / "build" / "benchmarks"  # of runs that write no tables

# The scripts, one a question, and the parts of each: functions in it that measure, whose results have a file and a
# table by that name.
QUESTIONS = {
    "against_keras": (
        "layers", "additive_inference", "dot_product_inference", "order_of_positions", "cost_against_keys",
        "thresholds",
    ),
    "whole_models": ("models",),
    "int8": ("int8",),
    "training": ("additive_training", "training_defaults", "multi_head_training"),
    "export_cost": ("export_cost",),
    "batch": ("predict", "serving"),
    "decoding": ("decoding",),
}  # fmt: skip


PACKAGES = ("keras-attn", "keras", "tensorflow", "onnxruntime", "torch", "jax", "numpy")


@dataclass(frozen=True)
class Options:
    """How to measure.

    Attributes:
        quick: Tiny sizes and few repeats, to see that it runs; the numbers mean nothing.
        threads: How many threads a run uses.
        results: Where the results are written.
        work: A folder for files of no further use.
    """

    quick: bool
    threads: int
    results: Path
    work: Path

    def race(self, case: Case, rounds: int = 15, turn: float = 0.1) -> dict[str, Any]:
        """Race a case for so many rounds, again where the machine changed meanwhile; fewer and shorter when quick.

        Without rounds nothing is timed but how long each takes to be made: of that, several races tell the median.
        """
        if self.quick:
            rounds, turn = min(rounds, 3), min(turn, 0.01)
        for _ in range(AGAIN if rounds and not self.quick else 1):
            folder = Path(tempfile.mkdtemp(dir=self.work))
            found = race(case, folder, threads=self.threads, rounds=rounds, turn=turn)
            if not moved(found["calibration"]):
                break
        return found


def measure(question: str, parts: Sequence[str], quick: bool, threads: int, results: Path) -> None:
    """Measure parts of a question, write the results of each, and print their tables."""
    results.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="keras_attn_bench_") as work:
        for part in parts:
            (own := Path(work) / part).mkdir()
            options = Options(quick, threads, results, own)
            result = {"name": part, "quick": quick, "environment": environment_of(threads), "bars": []}
            result = _rounded(result | getattr(importlib.import_module(question), part)(options))
            print(f"### {part}\n\n{markdown(result)}\n", flush=True)
            disturbed = [case for case in result["cases"] if moved(case.get("calibration", [1.0]))]
            written = results
            if disturbed and results == RESULTS:
                (written := ASIDE).mkdir(parents=True, exist_ok=True)
                print(
                    f"{len(disturbed)} of {len(result['cases'])} cases were disturbed by other processes in all "
                    f"{AGAIN} attempts. The tables are left unchanged; the new results are in "
                    f"{ASIDE.relative_to(HERE.parent)}/.",
                    flush=True,
                )
            told = json.dumps(result, indent=1).replace(f"{own}/", "")  # what runtimes say of files
            (written / f"{part}.json").write_text(told + "\n", encoding="utf-8")


def environment_of(threads: int) -> dict[str, Any]:
    """Return what the numbers depend on."""
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": processor(),
        "cores": usable_cpus(),
        "system": f"{platform.system()} {platform.machine()}",
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "threads": threads,
        "versions": {"python": platform.python_version(), **{name: v for name in PACKAGES if (v := _version(name))}},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _rounded(value: Any) -> Any:
    """Return the results with five digits of each number: more are noise, and change every line of a difference."""
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(item) for item in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value
