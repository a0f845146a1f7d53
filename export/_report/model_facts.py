"""Facts of a report as table rows: signature and files of a bundle, and comparison with Keras."""

from pathlib import Path

from .._format.manifest import Manifest
from .._format.names import MODEL
from .._format.parity_report import ParityReport, ParityRow
from .._format.report_text import describe_calibration_error
from .._formatting import format_bytes
from .encoding import format_difference, format_shape

# Replaces an infinite share of a limit in sorting and drawing.
MAX_SHARE = 1e9


def list_ports(manifest: Manifest) -> list[tuple[str, ...]]:
    """Return (name, "input" or "output", dtype, shape, remark) of all inputs and outputs."""
    counts = {name: f"number of positions of {axis}" for name, axis in manifest.counts.items()}
    layers = {name: f"weights of layer {layer}" for name, layer in manifest.weights_of.items()}
    return [
        (spec.name, kind, spec.dtype, format_shape(spec.shape), remarks.get(spec.name, ""))
        for kind, specs, remarks in (("input", manifest.inputs, counts), ("output", manifest.outputs, layers))
        for spec in specs
    ]


def list_attention_layers(manifest: Manifest) -> list[tuple[str, ...]]:
    """Return (name, class, lowering, form, precision) of all attention layers; "" for keys that old bundles lack."""
    keys = "name", "class", "lowering", "form", "precision"
    return [tuple(layer.get(key, "") for key in keys) for layer in manifest.layers]


def list_facts(folder: Path, manifest: Manifest, report: ParityReport) -> list[tuple[str, str]]:
    """Return (title, text) pairs: files, versions, axes and precision."""

    def format_size(pattern: str) -> str:
        return format_bytes(sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file()))

    rows = [
        ("ONNX", f"{format_size(MODEL + '*')}, opset {manifest.opset}"),
        ("runs on", f"onnxruntime {manifest.lowest_onnxruntime} or newer"),
        *([("SavedModel", format_size("saved_model/**/*"))] if report.saved_model_rows else []),
        ("precision", manifest.precision),
        ("made with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())),
        ("Keras's backend", manifest.backend),
    ]
    rows += [(f"axis {name}", f"a multiple of {step}") for name, step in manifest.multiples.items()]
    rows += [(f"axis {name}", f"static: {reason}") for name, reason in manifest.static.items()]
    if costs := report.precision:
        size_ratio, time_ratio = costs["size_ratio"], costs["time_ratio"]
        rows.append((costs["name"], f"{size_ratio:.2f} of float32's size, {time_ratio:.2f} of its time"))
        rows += [("int8", line) for line in describe_calibration_error(costs.get("calibration"))]
    if clone := report.float32_clone:
        policies, difference = ", ".join(clone["policies"]), format_difference(clone["max_abs"])
        rows.append(("Keras's policy", f"{policies}; exported in float32, which differs by {difference}"))
    return rows


def describe_comparison(manifest: Manifest, report: ParityReport) -> str:
    """Return sentences about the runtimes and limits of the comparison."""
    limits = manifest.parity["tolerance"]
    tolerance = f", or {limits['relative']:g} relative, {limits['absolute']:g} absolute" if any(limits.values()) else ""
    onnx = f"The ONNX model in onnxruntime ({report.provider})"
    both = " and the SavedModel in a process without Keras were" if report.saved_model_rows else " was"
    return (
        f"{onnx}{both} compared with these outputs. The limits are measured rounding errors of the model{tolerance}. "
        "Other inputs were not compared."
    )


def list_comparisons(report: ParityReport) -> list[tuple[ParityRow, str, str, float]]:
    """Return (row, shape, runtime, share of the limit) of all comparisons: failed rows first, then by share."""
    rows = [(row, "onnxruntime") for row in report.rows] + [(row, "SavedModel") for row in report.saved_model_rows]
    records = [(row, format_shape(row.shape), runtime, min(row.of_limit, MAX_SHARE)) for row, runtime in rows]
    return sorted(records, key=lambda record: (record[0].passed, -record[3]))
