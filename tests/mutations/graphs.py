"""Puts faults into exported ONNX graphs, and tells which of those that change an answer are verified as a match."""

import argparse
import json
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import keras
import numpy as np
import onnx
from proof_models import MODELS, perturbed

from keras_attn_export import BundleError, ExportError, ParityError, export_model, verify_bundle
from keras_attn_export._bundle.bundle import seal
from keras_attn_export._model.dynamic_axes import name_axes
from keras_attn_export._model.input_sources import sources
from keras_attn_export._model.signature import model_signature
from keras_attn_export._model.trial_runs import Drawer
from keras_attn_export._standalone import verify

VISIBLE = {"float32": 1e-3, "float16": 0.1, "int8": 0.3}  # of what stands beside a number
FRESH = 6  # drawn inputs to see a change on


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: `caught`, `passed`, `invisible`, or `broken` where onnxruntime refuses it."""

    model: str
    precision: str
    kind: str
    what: str
    outcome: str
    change: float
    share: float


def main(argv: Sequence[str] | None = None) -> int:
    """Runs mutants; 0 when no visible one in float32 was verified as a match."""
    parser = argparse.ArgumentParser(prog="scripts/mutate-graphs", description=__doc__)
    parser.add_argument("--each", type=int, default=150, metavar="N", help="mutants of each model at most (150)")
    parser.add_argument("--only", nargs="+", choices=MODELS, metavar="MODEL", help="these models alone")
    parser.add_argument("--precisions", nargs="+", default=["float32", "float16", "int8"], metavar="P")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path, metavar="FILE", help="where all verdicts go")
    given = parser.parse_args(argv)
    verdicts = []
    for name in given.only or MODELS:
        for precision in ("float32", *MODELS[name].precisions):
            if precision in given.precisions:
                found = list(_verdicts(name, precision, given.each, given.seed))
                verdicts += found
                print(f"{name}, {precision}: {_counted(found)}", flush=True)
                for each in found:
                    if each.outcome == "passed":
                        print(f"    PASSED: {each.kind}, {each.what}: changes {each.change:.1e}, {each.share:.1e} of the limit")
    print(f"\n{len(verdicts)} mutants: {_counted(verdicts)}")
    if given.json:
        given.json.write_text(json.dumps([asdict(each) for each in verdicts], indent=1), encoding="utf-8")
    return int(any(each.outcome == "passed" and each.precision == "float32" for each in verdicts))


def _counted(verdicts: list[Verdict]) -> str:
    counts = Counter(each.outcome for each in verdicts)
    return ", ".join(f"{counts[outcome]} {outcome}" for outcome in ("caught", "passed", "invisible", "broken"))


def _verdicts(name: str, precision: str, most: int, seed: int) -> Iterator[Verdict]:
    from .graph_faults import graph_faults, mutated

    keras.utils.set_random_seed(seed)
    model = perturbed(MODELS[name].build(), seed)
    with tempfile.TemporaryDirectory() as scratch:
        bundle = export_model(model, Path(scratch) / "bundle", precision=precision, progress=False)
        shutil.rmtree(bundle.path / "saved_model")
        file = bundle.path / verify.MODEL
        right = onnx.load(file)
        fresh = _fresh_inputs(model, seed + 1)
        session = verify.open_session(file)
        expected = [verify.run_session(session, inputs) for inputs in fresh]
        content = {key: value for key, value in bundle.manifest.items() if key not in ("schema_version", "sha256", verify.DIGEST)}
        faults = graph_faults(right, np.random.default_rng(seed))
        for fault in faults[:most]:
            try:
                onnx.save(mutated(right, fault), file)
                session = verify.open_session(file)
                change = max(_change(a, verify.run_session(session, x)) for a, x in zip(expected, fresh, strict=True))
            except (ExportError, ValueError, IndexError, TypeError):
                yield Verdict(name, precision, fault.kind, fault.what, "broken", 0.0, 0.0)
                continue
            share = 0.0
            if change < VISIBLE[precision]:
                outcome = "invisible"
            else:
                seal(bundle.path, content)
                try:
                    report = verify_bundle(bundle.path)
                    outcome, share = "passed", max(row.of_limit for row in report.rows)
                except (ParityError, BundleError, ExportError):
                    outcome = "caught"
            yield Verdict(name, precision, fault.kind, fault.what, outcome, change, share)


def _fresh_inputs(model: keras.Model, seed: int) -> list[dict[str, np.ndarray]]:
    """Inputs of sizes and lengths that the golden cases have too, and other numbers."""
    signature = model_signature(model, None)
    made = sources(model, signature, {})
    drawer = Drawer(model, signature, made)
    axes = name_axes(signature, {}, drawer)
    drawer = Drawer(model, signature, made)
    drawer._rng = np.random.default_rng(seed)
    return [drawer.inputs(axes.sizes(sizes)) for sizes in (axes.base, axes.apart) for _ in range(FRESH // 2)]


def _change(expected: dict[str, np.ndarray], actual: dict[str, np.ndarray]) -> float:
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
        wide, scale = array.astype(np.float64), verify.scale_of(array.astype(np.float64))
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.abs(wide - other) / scale
        largest = max(largest, float(np.nanmax(np.where(np.isnan(shares), 0, shares), initial=0.0)))
    return largest


if __name__ == "__main__":
    sys.exit(main())
