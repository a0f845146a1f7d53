"""Plain-text description of a bundle, for terminals of 80 columns."""

import hashlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .._bundle.bundle import Bundle
from .._bundle.bundle_files import SAVED_MODEL_FOLDER, VERIFY_SCRIPT
from .._format.manifest import Manifest
from .._format.names import MODEL
from .._format.printing import escape_unprintable
from .._format.report_text import describe_calibration_error
from .._format.verify_script import verify_script
from .._formatting import format_bytes

WIDTH, INDENT = 80, 14  # the indent fits the widest title and a space
Line = tuple[str, str]


def describe_bundle(bundle: Bundle) -> list[str]:
    """Return lines about inputs, outputs, axes, sizes, opset, lowering, precision, versions and parity."""
    lines, previous = [], ""
    for title, text in _describe_parts(bundle):  # a repeated title is printed once
        lines += wrap_text(text, f"{'' if title == previous else title:{INDENT}}", " " * INDENT)
        previous = title
    return lines


def wrap_text(text: str, title: str = "", indent: str = "  ") -> list[str]:
    """Wrap text after a title to the terminal width, without breaking words; indent lines after the first."""
    # The indent keeps a part of a name with spaces from looking like a separate entry.
    lines = textwrap.TextWrapper(WIDTH, title, indent, break_long_words=False, break_on_hyphens=False)
    return lines.wrap(escape_unprintable(text)) or [title]


def _describe_parts(bundle: Bundle) -> Iterator[Line]:
    manifest = bundle.entries
    yield "bundle", str(bundle.path)
    yield "size", _describe_sizes(bundle.path)
    yield "model", manifest.model
    yield from _describe_signature(manifest)
    for name, reason in manifest.static.items():
        yield "static", f"{name}: {reason}"
    yield "precision", manifest.precision
    for layer in manifest.layers:
        form = f": {layer['form']}" if "form" in layer else ""  # missing in bundles of earlier releases
        yield "attention", f"{layer['name']} ({layer['class']}): {layer['lowering']}, {layer['precision']}{form}"
    yield "opset", f"{manifest.opset}, needs onnxruntime {manifest.lowest_onnxruntime} or newer"
    yield from _describe_parity(bundle)
    yield "made with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    yield VERIFY_SCRIPT, _describe_verify_script(manifest.sha256)


def _describe_signature(manifest: Manifest) -> Iterator[Line]:
    """Yield inputs and outputs, sampled integer values, and dynamic axes."""
    for kind, specs in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for spec in specs:
            yield kind, f"{spec.name}: {spec.dtype} [{', '.join(map(str, spec.shape))}]"
    for name, values in manifest.values.items():
        yield "tried", f"{name}: {values}"
    multiples = manifest.multiples
    axes = dict.fromkeys(size for spec in manifest.specs for size in spec.shape if isinstance(size, str))
    axis_texts = (f"{name} (multiples of {multiples[name]})" if name in multiples else name for name in axes)
    yield "axes", ", ".join(axis_texts) or "all of fixed size"


def _describe_verify_script(hashes: Mapping[str, str]) -> str:
    """Return text on the origin of `verify.py`: code of the bundle's sender, unless it equals the installed script."""
    if VERIFY_SCRIPT not in hashes:
        return "none"
    if hashes[VERIFY_SCRIPT] == hashlib.sha256(verify_script().encode()).hexdigest():
        return "the script of the installed keras-attn"
    return (
        "not the script of the installed keras-attn: it is of another version, or altered. Read it before you run it. "
        "`keras-attn verify` does not run it."
    )


def _describe_sizes(folder: Path) -> str:
    def format_size(paths: Iterable[Path]) -> str:
        return format_bytes(sum(path.stat().st_size for path in paths if path.is_file()))

    onnx, saved_model = format_size(folder.glob(f"{MODEL}*")), format_size((folder / SAVED_MODEL_FOLDER).rglob("*"))
    return f"{format_size(folder.rglob('*'))}: ONNX {onnx}, SavedModel {saved_model}"


def _describe_parity(bundle: Bundle) -> Iterator[Line]:
    """Yield the results of the comparison with Keras, its limits and its warnings."""
    report = bundle.report
    for part in report.summary().split("; "):
        yield "parity", part
    limits = bundle.entries.parity["tolerance"]
    allowed = f", {limits['relative']:g} relative or {limits['absolute']:g} absolute" if any(limits.values()) else ""
    yield "parity", f"limits: measured rounding errors{allowed}, on {report.provider}"
    if (backend := bundle.entries.backend) != "tensorflow":
        yield "parity", f"with the outputs of Keras on {backend}"
    if weights := (report.coverage or {}).get("weights"):
        unchanged = f"{weights['unchanged']} of {weights['variables']} variables are unchanged in the float32 ONNX file"
        yield "weights", f"{unchanged}; the other variables are folded, transformed or unused"
    if clone := report.float32_clone:
        difference = f"{clone['max_abs']:.1e} absolute, {clone['max_rel']:.1e} relative"
        yield "clone", f"in float32; the original model ({', '.join(clone['policies'])}) differs by {difference}"
    if costs := report.precision:
        size, duration = f"{costs['size_ratio']:.2f} of float32's size", f"{costs['time_ratio']:.2f} of its time"
        yield "gain", f"{costs['name']}: {size}, {duration}"
        yield from (("int8", line) for line in describe_calibration_error(costs.get("calibration")))
        for output, top1 in costs.get("top1", {}).items():
            yield "gain", f"{output}: {top1['agreement']:.2%} of {top1['rows']} rows have the same top class"
    for warning in report.warnings:
        yield "warning", warning
    for case, reason in report.refused.items():
        yield "not compared", f"case {case}, which Keras cannot run: {reason}"
