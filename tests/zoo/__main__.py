"""Exports the models of the zoo by ours and by Keras's own exporter: `nox -s zoo-page`.

What came of each model is kept in artifacts/zoo, so that a run that was interrupted goes on where it was; once all
models were tried, docs/models.md is written.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from . import ZOO
from .exports import KERAS, Result, tried, ways
from .registry import Architecture
from .table import page

ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is asked for; 0 when every model is exported or refused as the zoo says."""
    parser = argparse.ArgumentParser(prog="nox -s zoo-page --", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*ZOO], default=[*ZOO], help="these models alone")
    parser.add_argument("--again", action="store_true", help="also what is in artifacts/zoo already")
    parser.add_argument("--seed", type=int, default=0, help="other weights by ours alone, of which no page is written")
    arguments = parser.parse_args(argv)
    kept = ROOT / "artifacts" / (f"zoo-{arguments.seed}" if arguments.seed else "zoo")
    kept.mkdir(parents=True, exist_ok=True)
    chosen = [ZOO[name] for name in arguments.only]
    pool = a_process()
    for each in chosen:
        results = {} if arguments.again else read(kept, each.name)
        for way in [*dict(ways(each)), *([] if arguments.seed else [KERAS])]:
            if way not in results:
                try:
                    results[way] = pool.submit(tried, each.name, way, arguments.seed).result()
                except BrokenProcessPool:
                    results[way], pool = {"error": "its process crashes"}, a_process()
                (kept / f"{each.name}.json").write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
                print(f"{each.name}: {way}: {results[way]}", flush=True)
    pool.shutdown()
    results = {name: read(kept, name) for name in ZOO}
    if all(KERAS in each for each in results.values()):  # of other seeds it is in none
        (ROOT / "docs" / "models.md").write_text(page(results), encoding="utf-8")
    wrong = [each.name for each in chosen if not as_expected(each, results[each.name])]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} models as the zoo says", *wrong, sep="\n  ")
    return 1 if wrong else 0


def a_process() -> ProcessPoolExecutor:
    """Return what runs one export after the other, apart from here: Keras's own exporter may crash."""
    return ProcessPoolExecutor(1, get_context("spawn"))


def read(folder: Path, name: str) -> dict[str, Result]:
    """Return what came of a model, by the way it was tried."""
    file = folder / f"{name}.json"
    found: dict[str, Result] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    return found


def as_expected(each: Architecture, results: dict[str, Result]) -> bool:
    """Whether all of ours passed, or all were refused where the zoo says so."""
    return all(("error" in results[way]) == bool(each.refused) for way, _ in ways(each))


if __name__ == "__main__":
    sys.exit(main())
