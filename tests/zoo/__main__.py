"""Export the models of the zoo by `export_model` and by Keras's own exporter: `nox -s zoo-page`.

The results are stored in artifacts/zoo, so that an interrupted run resumes: delete a file there to repeat its model.
At the end docs/models.md is written; models without results keep their line.
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
from .exports import KERAS_EXPORTER, measure_export
from .table import render_page

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "models.md"
RESULTS = ROOT / "artifacts" / "zoo"


def main() -> int:
    """Run the exports without results, and write the page; return 1 if an outcome differs from the zoo's `refusal`."""
    parser = argparse.ArgumentParser(prog="nox -s zoo-page --", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=[*ZOO], default=[*ZOO], help="only these models")
    RESULTS.mkdir(parents=True, exist_ok=True)
    files = {name: RESULTS / f"{name}.json" for name in ZOO}
    results = {name: json.loads(file.read_text(encoding="utf-8")) for name, file in files.items() if file.is_file()}
    unexpected = []
    for name in parser.parse_args().only:
        by_variant, precisions = results.setdefault(name, {}), ZOO[name].float32_and_low_precisions
        for variant in [variant for variant in (*precisions, KERAS_EXPORTER) if variant not in by_variant]:
            try:
                with ProcessPoolExecutor(1, get_context("spawn")) as pool:  # Keras's own exporter may crash
                    by_variant[variant] = pool.submit(measure_export, name, variant).result()
            except BrokenProcessPool:
                by_variant[variant] = {"error": "its process crashes"}
            files[name].write_text(json.dumps(by_variant, indent=2) + "\n", encoding="utf-8")
            print(f"{name}: {variant}: {by_variant[variant]}", flush=True)
        if any(("error" in by_variant[variant]) != bool(ZOO[name].refusal) for variant in precisions):
            unexpected.append(name)
    PAGE.write_text(render_page(results, PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print("models with an unexpected result:", *(unexpected or ["none"]))
    return 1 if unexpected else 0


if __name__ == "__main__":
    sys.exit(main())
