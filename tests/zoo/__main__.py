"""Exports the models of the zoo by ours and by Keras's own exporter, and writes docs/models.md: `scripts/zoo --help`.

What came of each model is kept in artifacts/zoo, so that a run that was interrupted goes on where it was.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from cheap_exports import WorkerRun

from keras_attn_export._export import export

from . import ZOO
from .exports import KERAS, Result, keep, kept, kerass_own, ours, ways
from .registry import Architecture
from .table import page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "models.md"
WAYS = ("float32", "auto", "float16", "int8", KERAS)


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what is asked for; 0 when every model is exported or refused as the zoo says."""
    parser = argparse.ArgumentParser(prog="scripts/zoo", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*ZOO], default=[*ZOO], help="these models alone")
    parser.add_argument("--ways", nargs="+", metavar="WAY", choices=WAYS, default=WAYS, help=f"of {', '.join(WAYS)}")
    parser.add_argument("--again", action="store_true", help="also what is in artifacts/zoo already")
    parser.add_argument("--failed", action="store_true", help="again what failed by ours")
    parser.add_argument("--seeds", type=int, metavar="N", help="instead: N draws of weights of the models marked so")
    parser.add_argument("--one-process", action="store_true", help="one process for all SavedModels, as in the tests")
    parser.add_argument("--table", action="store_true", help="only write docs/models.md from what is there")
    parser.add_argument("--list", action="store_true", help="only list the models")
    arguments = parser.parse_args(argv)
    chosen = [ZOO[name] for name in arguments.only]
    if arguments.one_process:
        export.SavedModelRun = WorkerRun
    if arguments.list:
        print(*(f"{each.kind}: {each.name}: {each.source}" for each in chosen), sep="\n")
        return 0
    if arguments.seeds is not None:
        return drawn_again([each for each in chosen if each.seeded], arguments.seeds)
    if not arguments.table:
        for each in chosen:
            for way, options in ways(each):
                if way in arguments.ways and untried(each, way, arguments):
                    keep(each.name, way, ours(each, options))
        if KERAS in arguments.ways:
            kerass_own([each.name for each in chosen if untried(each, KERAS, arguments)])
    results = {name: kept(name) for name in ZOO}
    PAGE.write_text(page(results), encoding="utf-8")
    wrong = [each.name for each in chosen if not as_expected(each, kept(each.name))]
    print(f"{len(chosen) - len(wrong)} of {len(chosen)} models as the zoo says", *wrong, sep="\n  ")
    return 1 if wrong else 0


def untried(each: Architecture, way: str, arguments: argparse.Namespace) -> bool:
    """Whether there is no result of a model yet, or it is to be made again."""
    before = kept(each.name).get(way)
    return arguments.again or before is None or (arguments.failed and way != KERAS and "error" in before)


def as_expected(each: Architecture, results: dict[str, Result]) -> bool:
    """Whether all of ours passed, or all were refused where the zoo says so."""
    return all(("error" in results.get(way, {"error": ""})) == bool(each.refused) for way, _ in ways(each))


def drawn_again(chosen: Sequence[Architecture], seeds: int) -> int:
    """Export each model with several draws of weights; 0 when all passed, since each draw is a model like any other."""
    failures = 0
    for each in chosen:
        results = [ours(each, {}, seed) for seed in range(seeds)]
        errors = {seed: result["error"] for seed, result in enumerate(results) if "error" in result}
        nearest = max((result["of_limit"] for result in results if "of_limit" in result), default=0.0)
        print(f"{each.name}: {len(errors)} of {seeds} failed; the others reach {nearest:.2f} of the limit", flush=True)
        for seed, error in errors.items():
            print(f"  seed {seed}: {error}", flush=True)
        failures += len(errors)
    print(f"{failures} of {len(chosen) * seeds} exports failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
