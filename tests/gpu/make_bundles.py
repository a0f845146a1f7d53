"""Writes the bundles that scripts/gpu-check runs on a GPU, and beside each the weights that its oracle needs.

A bundle that is there already, of the same plan, is left alone. What could not be exported is told in the index.
"""

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

os.environ.setdefault("KERAS_BACKEND", "tensorflow")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np
from cheap_exports import ALL_PAIRS, FEW, WorkerRun

from keras_attn_export import Bundle, ExportError, export_model
from keras_attn_export._export import export
from keras_attn_export._lowerings import additive_blocks, batched, lower
from keras_attn_export._options import LOWERINGS
from keras_attn_export._standalone.verify import MODEL
from keras_attn_export._thresholds import LARGE

from .index import INDEX, Entry, FolderError, read_index, weights_file, write_index
from .kinds import TIMED
from .masks import shape_of
from .models import model_of
from .plans import CONTRACT, PORTABLE, Plan, plans

FOR_CPUS = (
    "ragged",
    "adaptive",
)  # which exist there alone; the others are as an export on a machine with a GPU has them
# Of the form for GPUs, so that the contract has several blocks at sizes which the oracle can do.
SMALL_BLOCKS = ((additive_blocks, "FEATURES", 20_000), (batched, "SCORES", 2_000))
FORMS = tuple(form for form in LOWERINGS if form != "auto")


def main(argv: Sequence[str] | None = None) -> int:
    """Writes what is asked for; 0 when every bundle was written or has no form of its own."""
    parser = argparse.ArgumentParser(prog="scripts/gpu-bundles", description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the bundles go")
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD", help="those whose name holds all these words")
    parser.add_argument("--quick", action="store_true", help="a handful, to see that the way works")
    parser.add_argument("--overwrite", action="store_true", help="also those that are there")
    parser.add_argument("--list", action="store_true", help="only print their names")
    arguments = parser.parse_args(argv)
    chosen = plans(FORMS, quick=arguments.quick, only=arguments.only)
    if not chosen:
        parser.error(f"no bundle has all of these words in its name: {' '.join(arguments.only)}")
    if arguments.list:
        print(*(plan.name for plan in chosen), sep="\n")
        return 0
    export.SavedModelRun = WorkerRun  # one process for all SavedModels: what is proven of them is not the matter here
    return write(arguments.folder, chosen, overwrite=arguments.overwrite)


def write(folder: Path, chosen: Sequence[Plan], *, overwrite: bool = False) -> int:
    """Write bundles one after the other, and the index after each; 0 when none failed."""
    try:
        entries = {entry["name"]: entry for entry in read_index(folder)} if (folder / INDEX).exists() else {}
    except FolderError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    failed = 0
    for number, plan in enumerate(chosen, start=1):
        start = time.monotonic()
        if overwrite or not _is_there(folder, plan, entries.get(plan.name)):
            entries[plan.name] = exported(folder, plan)
            write_index(folder, list(entries.values()))
        said = entries[plan.name].get("problem") or entries[plan.name].get("left_out") or "there"
        failed += "problem" in entries[plan.name]
        print(f"{number}/{len(chosen)} {plan.name}: {said} ({time.monotonic() - start:.0f} s)", flush=True)
    return 1 if failed else 0


def _is_there(folder: Path, plan: Plan, entry: Entry | None) -> bool:
    """Whether there is nothing to do: a bundle of this plan lies there, or the plan has no form of its own."""
    if entry is None or "problem" in entry or any(entry.get(key) != value for key, value in plan.to_json().items()):
        return False
    return "left_out" in entry or (folder / plan.name).is_dir()


def exported(folder: Path, plan: Plan) -> Entry:
    """Write one bundle and the file beside it, and return its entry of the index."""
    entry = plan.to_json()
    left_out = {**entry, "left_out": f"no layer has the form {plan.form}; all are written as {PORTABLE}"}
    try:
        if not has_form(plan.layer, plan.form, weights=plan.weights):
            return left_out
        bundle = _written(folder / plan.name, plan)
    except ExportError as error:
        return {**entry, "problem": " ".join(str(error).split())}
    if static := [spec["name"] for spec in bundle.manifest["inputs"] if _is_static(spec, plan)]:
        return {**entry, "problem": f"inputs {', '.join(static)} have static axes, and are checked at many sizes"}
    forms = {layer["name"]: layer["lowering"] for layer in bundle.manifest["layers"]}
    if plan.form not in forms.values():
        shutil.rmtree(folder / plan.name)
        return left_out
    if _asks_for_weights(bundle):
        shutil.rmtree(folder / plan.name)
        return {**entry, "left_out": "onnxruntime's operator `Attention` gives no weights on CUDA"}
    np.savez(weights_file(folder, plan.name), **plan.kind.weights())  # type: ignore[arg-type]
    return {**entry, "forms": forms, "keras_attn": bundle.manifest["versions"].get("keras-attn", "")}


@cache
def has_form(layer: str, form: str, *, weights: bool) -> bool:
    """Whether a kind of layer has a form at all, which two of its calls show sooner than all."""
    if form == PORTABLE or layer in TIMED:
        return True
    with tempfile.TemporaryDirectory() as scratch:
        few = Plan(CONTRACT, layer, form, "float32", weights, ("all", "causal_lengths"))
        return form in {each["lowering"] for each in _written(Path(scratch) / "bundle", few).manifest["layers"]}


def _written(place: Path, plan: Plan) -> Bundle:
    """Export a plan; for the contract with sizes at which a file decides that are small enough for the oracle."""
    options = {"lowering": plan.form, "precision": plan.precision, "overwrite": True, "progress": False}
    with patch.dict(LARGE, FEW if plan.use == CONTRACT else ALL_PAIRS), ExitStack() as stack:
        for module, name, largest in SMALL_BLOCKS if plan.use == CONTRACT else ():
            stack.enter_context(patch.object(module, name, largest))
        if plan.form not in FOR_CPUS:
            stack.enter_context(patch.object(lower, "_lowered", _for_cuda))
        return export_model(model_of(plan, plan.kind.weights()), place, **options)


def _for_cuda(traced: Any, calls: Any, lowering: str, _: str, lowered: Any = lower._lowered) -> Any:
    """What the exporter writes with `provider="cuda"`, which is proven here on the CPU."""
    return lowered(traced, calls, lowering, "cuda")


def _asks_for_weights(bundle: Bundle) -> bool:
    """Whether the operator `Attention` is to give weights, which it does not on CUDA (microsoft/onnxruntime#28351)."""
    return b"qk_matmul_output_mode" in (bundle.path / MODEL).read_bytes()


def _is_static(spec: dict[str, Any], plan: Plan) -> bool:
    """Whether an axis that is B, Tq or Tk has one size alone."""
    dynamic = shape_of(spec["name"], plan.kind, None, None, None)
    return any(size is None and not isinstance(found, str) for size, found in zip(dynamic, spec["shape"], strict=True))


if __name__ == "__main__":
    sys.exit(main())
