"""`cd tests && python -m values WORD...` says what comes of the entries whose names hold the words, in all dtypes.

Without words it writes docs/operators.md: `nox -s operators-page`.
"""

import os
import sys
from pathlib import Path

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # the same kernels on every processor

from . import ENTRIES
from .page import page
from .running import Apart, keras_own, outcomes

if words := sys.argv[1:]:
    for outcome in outcomes([each for each in ENTRIES if all(word in each.name for word in words)]):
        for kind, found in outcome.kinds.items():
            print(f"{outcome.name}, {kind}: {found or 'the same'}")
        if outcome.refused:
            print(f"{outcome.name}: {outcome.refused}")
else:
    with Apart() as run:
        # Few together: many of Keras's fail, and tf2onnx copies the whole graph for each node of some operators.
        pairs = zip(outcomes(ENTRIES), outcomes(ENTRIES, keras_own, run, together=4), strict=True)
    (Path(__file__).resolve().parents[2] / "docs" / "operators.md").write_text(page([*pairs]), encoding="utf-8")
