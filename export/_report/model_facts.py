"""Facts of a report: the signature and files of a bundle, and its comparison with Keras, as rows of tables."""

from pathlib import Path

from .._format.manifest import Manifest
from .._format.names import MODEL
from .._format.parity_report import ParityReport, ParityRow
from .._format.report_text import describe_calibration_error
from .._formatting import bytes_text
from .encoding import difference_text, shape_text

MAX_SHARE = 1e9  # in place of an infinite share of a limit, for sorting and drawing


def ports(manifest: Manifest) -> list[tuple[str, ...]]:
    """Return name, kind, dtype, shape and a remark of each input and output."""
    counts = {name: f"number of positions of {axis}" for name, axis in manifest.counts.items()}
    layers = {name: f"weights of layer {layer}" for name, layer in manifest.weights_of.items()}
    return [
        (spec.name, kind, spec.dtype, shape_text(spec.shape), remarks.get(spec.name, ""))
        for kind, specs, remarks in (("input", manifest.inputs, counts), ("output", manifest.outputs, layers))
        for spec in specs
    ]


def attention_layers(manifest: Manifest) -> list[tuple[str, ...]]:
    """Return name, class, lowering, form and precision of each attention layer; empty if an old bundle lacks them."""
    keys = "name", "class", "lowering", "form", "precision"
    return [tuple(layer.get(key, "") for key in keys) for layer in manifest.layers]


def facts(folder: Path, manifest: Manifest, report: ParityReport) -> list[tuple[str, str]]:
    """Return titles and texts: files, versions, axes and precision."""

    def size(pattern: str) -> str:
        return bytes_text(sum(path.stat().st_size for path in folder.glob(pattern) if path.is_file()))

    rows = [
        ("ONNX", f"{size(MODEL + '*')}, opset {manifest.opset}"),
        ("runs on", f"onnxruntime {manifest.lowest_onnxruntime} or newer"),
        *([("SavedModel", size("saved_model/**/*"))] if report.saved_model_rows else []),
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
        policies, difference = ", ".join(clone["policies"]), difference_text(clone["max_abs"])
        rows.append(("Keras's policy", f"{policies}; exported in float32, which differs by {difference}"))
    return rows


def proof(manifest: Manifest, report: ParityReport) -> str:
    """Return the sentences about the runtimes and limits of the comparison."""
    limits = manifest.parity["tolerance"]
    more = f", or {limits['relative']:g} relative, {limits['absolute']:g} absolute" if any(limits.values()) else ""
    onnx = f"The ONNX model in onnxruntime ({report.provider})"
    compared = (
        f"{onnx} and the SavedModel in a process without Keras were" if report.saved_model_rows else f"{onnx} was"
    )
    return (
        f"{compared} compared with these outputs. The limit is what rounding does to this model, as measured{more}. "
        "Other inputs were not compared."
    )


def comparisons(report: ParityReport) -> list[tuple[ParityRow, str, str, float]]:
    """Return the rows of the comparison, the largest difference first: with shape, runtime and share of the limit."""
    rows = [(row, "onnxruntime") for row in report.rows] + [(row, "SavedModel") for row in report.saved_model_rows]
    records = [(row, shape_text(row.shape), runtime, min(row.of_limit, MAX_SHARE)) for row, runtime in rows]
    return sorted(records, key=lambda record: (record[0].passed, -record[3]))
