"""Command line: `cd tests && python -m values WORD...` prints the results of cases whose names contain all words.

Without words it writes docs/operators.md: `nox -s operators-page`.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # the same kernels on every processor

from . import OPERATOR_CASES
from .page import build_page
from .running import IsolatedRunner, convert_as_keras, run_cases

if words := sys.argv[1:]:
    for result in run_cases([case for case in OPERATOR_CASES if all(word in case.name for word in words)]):
        for kind, difference in result.differences.items():
            print(f"{result.name}, {kind}: {difference or 'equal'}")
        if result.refusal:
            print(f"{result.name}: {result.refusal}")
else:
    with IsolatedRunner() as run:
        # Keras's exporter refuses many operators, and tf2onnx copies the graph for each node of some: small functions.
        results = zip(run_cases(OPERATOR_CASES), run_cases(OPERATOR_CASES, convert_as_keras, run, 4), strict=True)
    (Path(__file__).resolve().parents[2] / "docs" / "operators.md").write_text(build_page([*results]), encoding="utf-8")
