"""Exports the models of the zoo by ours and by Keras's own exporter: `nox -s zoo-page`.

Results are kept in artifacts/zoo, so that an interrupted run continues: delete a file there to run its model again. At
the end docs/models.md is written; models without results keep their line.
"""

import argparse
import json
import os
import sys
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
PAGE = ROOT / "docs" / "models.md"
KEPT = ROOT / "artifacts" / "zoo"


def main() -> int:
    """Runs what is asked for; 0 when every model is exported or refused as the zoo says."""
    parser = argparse.ArgumentParser(prog="nox -s zoo-page --", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*ZOO], default=[*ZOO], help="these models alone")
    KEPT.mkdir(parents=True, exist_ok=True)
    files = {name: KEPT / f"{name}.json" for name in ZOO}
    found = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()}
    wrong = []
    for each in (ZOO[name] for name in parser.parse_args().only):
        results = found.setdefault(each.name, {})
        for way in (way for way in (*each.ways, KERAS) if way not in results):
            try:
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # Keras's own exporter may crash
                    results[way] = pool.submit(tried, each.name, way).result()
            except BrokenProcessPool:
                results[way] = {"error": "its process crashes"}
            files[each.name].write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
            print(f"{each.name}: {way}: {results[way]}", flush=True)
        if any(("error" in results[way]) != bool(each.refused) for way in each.ways):
            wrong.append(each.name)
    PAGE.write_text(page(found, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("not as the zoo says:", *(wrong or ["none"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
