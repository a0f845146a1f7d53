"""Write what is in a bundle: golden cases, SavedModel, ONNX file, parity report, manifest. Keras runs on TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import onnxruntime

from keras_attn import AttentionPooling, MaskedSoftmax

from . import _attention, _onnx_file, _precision, _saved_model, _verify
from ._attention import Traced
from ._bundle import REPORT, SAVED_MODEL, seal
from ._options import PORTABLE, Options, check_onnxruntime, lowest_onnxruntime
from ._parity import ParityReport, ParityRow, checked_tolerance, compared
from ._progress import Progress
from ._reference import Reference

PACKAGES = ("keras-attn", "tensorflow", "keras", "tf2onnx", "onnx", "numpy")


def write_contents(folder: Path, reference: Reference, options: Options, step: Progress) -> None:
    """Fill the empty folder of a bundle; files that are not kept are written beside it.

    Raises:
        UnsupportedModelError: The model or an op in it cannot be exported.
        ParityError: An output differs from the reference.
        ExportError: What was written does not run.
    """
    model, signature, golden = reference.model, reference.signature, reference.golden
    (folder / _verify.CASES).parent.mkdir()
    _verify.save_cases(folder / _verify.CASES, golden.cases)

    step("Writing the SavedModel")
    saved_model = folder / SAVED_MODEL
    _saved_model.write_saved_model(model, signature, saved_model)
    with _saved_model.SavedModelRun(saved_model, folder / _verify.CASES, folder.with_name("results.npz")) as fresh:
        exact = options.tolerance if options.precision == "float32" else checked_tolerance(None)

        def written(lowering: str) -> tuple[Traced, int, dict[str, tuple[str | int, ...]], tuple[ParityRow, ...]]:
            asked = replace(options, lowering=lowering, tolerance=exact)
            scratch = folder.with_name(f"traced_{lowering}")
            traced = _attention.traced_model(model, signature, golden, asked, saved_model, scratch, step)
            opset = traced.opset(options.opset)
            check_onnxruntime(opset, traced.lowerings.values())
            outputs = {name: golden.output_axes(name, traced.outputs[name]) for name in signature.outputs}
            functions = traced.functions(opset)
            onnx_model = _onnx_file.finish(traced.model, golden.axes, outputs, opset, traced.weights, functions)
            _onnx_file.write(onnx_model, folder / _verify.MODEL, traced.weights)
            step("Running onnxruntime on the golden cases")
            actual = _verify.run_cases(folder / _verify.MODEL, golden.cases, options.provider)
            return traced, opset, outputs, compared(golden.cases, actual, exact)

        traced, opset, outputs, rows = written(options.lowering)
        if options.lowering == "auto" and not all(row.passed for row in rows):
            step("What was fastest does not match in every case: tracing plain operators")
            traced, opset, outputs, rows = written(PORTABLE)
        step("Waiting for the SavedModel in a fresh process")
        saved_model_rows = compared(golden.cases, fresh.outputs(), exact)
    report = ParityReport(options.provider, rows, saved_model_rows, golden.refused, reference.float32_clone)
    report.raise_if_failed()
    if options.precision != "float32":
        report = _precision.converted(folder, report, golden.cases, options.precision, options.tolerance, step)
    (folder / REPORT).write_text(report.to_json() + "\n", encoding="utf-8")
    seal(folder, _manifest(reference, traced, outputs, replace(options, opset=opset)))


def _manifest(
    reference: Reference, traced: Traced, outputs: Mapping[str, tuple[str | int, ...]], options: Options
) -> dict[str, Any]:
    model, golden = reference.model, reference.golden
    first = golden.cases[0][2]
    told = traced.layers()
    layers = [layer for layer in model._flatten_layers() if isinstance(layer, AttentionPooling | MaskedSoftmax)]
    inputs = reference.signature.inputs
    packages = dict.fromkeys((*PACKAGES, reference.backend))
    assert options.opset is not None
    return {
        "model": model.name,
        "inputs": [{"name": s.name, "dtype": s.dtype, "shape": list(golden.axes[s.name])} for s in inputs],
        "outputs": [{"name": n, "dtype": str(first[n].dtype), "shape": list(shape)} for n, shape in outputs.items()],
        "opset": options.opset,
        "precision": options.precision,
        "layers": [
            {
                "name": layer.path,
                "class": type(layer).__name__,
                "lowering": PORTABLE,
                "precision": options.precision,
                **told.get(id(layer), {}),
            }
            for layer in layers
        ],
        "backend": reference.backend,
        "versions": {**{name: version(name) for name in packages}, "onnxruntime": onnxruntime.__version__},
        "lowest_onnxruntime": lowest_onnxruntime(options.opset, traced.lowerings.values()),
        "parity": {"tolerance": dict(options.tolerance), "cases": len(golden.cases)},
    }
