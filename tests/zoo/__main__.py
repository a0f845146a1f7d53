"""Exports the models of the zoo by ours and by Keras's own exporter: `nox -s zoo-page`.

Results are kept in artifacts/zoo, so that an interrupted run continues. At the end docs/models.md is written; models
without results keep their line.
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
from .exports import KERAS, tried
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
    files = {name: kept / f"{name}.json" for name in ZOO}
    found = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()}
    wrong = []
    for each in (ZOO[name] for name in arguments.only):
        results = found.setdefault(each.name, {})
        for way in each.ways if arguments.seed else (*each.ways, KERAS):
            if arguments.again or way not in results:
                try:
                    with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # Keras's own exporter may crash
                        results[way] = pool.submit(tried, each.name, way, arguments.seed).result()
                except BrokenProcessPool:
                    results[way] = {"error": "its process crashes"}
                files[each.name].write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
                print(f"{each.name}: {way}: {results[way]}", flush=True)
        if any(("error" in results[way]) != bool(each.refused) for way in each.ways):
            wrong.append(each.name)
    if not arguments.seed:
        file = ROOT / "docs" / "models.md"
        file.write_text(page(found, file.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{len(arguments.only) - len(wrong)} of {len(arguments.only)} models as the zoo says", *wrong, sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
