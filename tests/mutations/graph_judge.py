"""Tells of mutants of a bundle's ONNX file, whose paths come line by line, what becomes of them.

    python -m mutations.graph_judge BUNDLE PRECISION

Beside the bundle lies `fresh.npz`, inputs on which to see a change. A line goes back for each mutant: outcome, change
and share of the limit.
"""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np

from keras_attn_export import BundleError, ExportError, ParityError, load_bundle, verify_bundle
from keras_attn_export._bundle.bundle import seal
from keras_attn_export._standalone import verify

VISIBLE = {"float32": 1e-3, "float16": 0.1, "int8": 0.3}  # of what stands beside a number

Outputs = dict[str, np.ndarray]


def main(folder: str, precision: str) -> None:
    """Judges until the input ends."""
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what onnxruntime prints must not come between the replies
    bundle = load_bundle(folder)
    fresh = [case.inputs for case in verify.load_cases(bundle.path.parent / "fresh.npz")]
    right = verify.open_session(bundle.path / verify.MODEL)
    expected = [verify.run_session(right, inputs) for inputs in fresh]
    kept = bundle.path.parent / "right"
    if not kept.exists():
        shutil.copytree(bundle.path, kept)
    outcome, change, _ = judge(kept / verify.MODEL, kept, fresh, expected, bundle.manifest, visible=0.0)
    assert (outcome, change) == ("passed", 0.0), "the file without a fault must pass"
    print("ready", file=replies, flush=True)
    for line in sys.stdin:
        judged = judge(Path(line.strip()), kept, fresh, expected, bundle.manifest, VISIBLE[precision])
        print(json.dumps(judged), file=replies, flush=True)


def seal_again(folder: Path, manifest: dict) -> None:
    """Seals what is in a folder now."""
    (folder / verify.MANIFEST).unlink()
    made = ("schema_version", "sha256", verify.DIGEST)
    seal(folder, {key: value for key, value in manifest.items() if key not in made})


def judge(
    mutant: Path, kept: Path, fresh: list[Outputs], expected: list[Outputs], manifest: dict, visible: float
) -> tuple:
    """The outcome of a mutant, how much it changes, and how much of the limit where it passed."""
    try:
        session = verify.open_session(mutant)
        change = max(change_of(right, verify.run_session(session, x)) for right, x in zip(expected, fresh, strict=True))
    except ExportError:
        return "broken", 0.0, 0.0
    if change < visible:
        return "invisible", change, 0.0
    folder = kept.with_name("sealed")
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(kept, folder)
    shutil.copyfile(mutant, folder / verify.MODEL)
    seal_again(folder, manifest)
    try:
        report = verify_bundle(folder)
    except (ParityError, BundleError, ExportError):
        return "caught", change, 0.0
    return "passed", change, max(row.of_limit for row in report.rows)


def change_of(expected: Outputs, actual: Outputs) -> float:
    """The largest change of a number, of what stands beside it; infinite where a shape or an integer differs."""
    largest = 0.0
    for name, array in expected.items():
        other = actual[name]
        if other.shape != array.shape or other.dtype != array.dtype:
            return np.inf
        if array.dtype.kind != "f":
            largest = max(largest, np.inf if (array != other).any() else 0.0)
            continue
        if not np.array_equal(np.isfinite(array), np.isfinite(other)):
            return np.inf
        wide = array.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.abs(wide - other) / verify.scale_of(wide)
        largest = max(largest, float(np.nanmax(np.where(np.isnan(shares), 0, shares), initial=0.0)))
    return largest


if __name__ == "__main__":
    main(*sys.argv[1:])
