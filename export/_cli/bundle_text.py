"""Describe a bundle in words that fit a terminal of 80 columns."""

import hashlib
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from .._bundle.bundle import Bundle
from .._bundle.bundle_files import SAVED_MODEL, VERIFY
from .._format.manifest import Manifest
from .._format.names import MODEL
from .._format.printing import printable
from .._format.report_text import describe_calibration_error
from .._format.verify_script import verify_script
from .._formatting import bytes_text

WIDTH, INDENT = 80, 14  # of the widest title and a space
Line = tuple[str, str]


def describe(bundle: Bundle) -> list[str]:
    """Return lines about inputs, outputs, axes, sizes, opset, lowering, precision, versions and parity."""
    lines, before = [], ""
    for title, text in _lines(bundle):  # a title stands once where several texts have it
        lines += wrapped(text, f"{'' if title == before else title:{INDENT}}", " " * INDENT)
        before = title
    return lines


def wrapped(text: str, title: str = "", indent: str = "  ") -> list[str]:
    """Return text behind a title in lines that fit a terminal, in which no name is broken.

    All but the first are indented: where a name has spaces, no part of it then looks like a line of ours.
    """
    lines = textwrap.TextWrapper(WIDTH, title, indent, break_long_words=False, break_on_hyphens=False)
    return lines.wrap(printable(text)) or [title]


def _lines(bundle: Bundle) -> Iterator[Line]:
    manifest = bundle.entries
    yield "bundle", str(bundle.path)
    yield "size", _sizes(bundle.path)
    yield "model", manifest.model
    yield from _shape_lines(manifest)
    for name, why in manifest.static.items():
        yield "static", f"{name}: {why}"
    yield "precision", manifest.precision
    for layer in manifest.layers:
        form = f": {layer['form']}" if "form" in layer else ""  # a bundle of an earlier version says nothing of it
        yield "attention", f"{layer['name']} ({layer['class']}): {layer['lowering']}, {layer['precision']}{form}"
    yield "opset", f"{manifest.opset}, needs onnxruntime {manifest.lowest_onnxruntime} or newer"
    yield from _parity_lines(bundle)
    yield "made with", ", ".join(f"{name} {version}" for name, version in manifest.versions.items())
    yield VERIFY, _whose_verify(manifest.sha256)


def _shape_lines(manifest: Manifest) -> Iterator[Line]:
    """Say what goes in and what comes out, and which axes are dynamic."""
    for kind, specs in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        for spec in specs:
            yield kind, f"{spec.name}: {spec.dtype} [{', '.join(map(str, spec.shape))}]"
    for name, tried in manifest.values.items():
        yield "tried", f"{name}: {tried}"
    multiples = manifest.multiples
    axes = dict.fromkeys(size for spec in manifest.specs for size in spec.shape if isinstance(size, str))
    told = (f"{name} (multiples of {multiples[name]})" if name in multiples else name for name in axes)
    yield "axes", ", ".join(told) or "all of fixed size"


def _whose_verify(hashes: Mapping[str, str]) -> str:
    """Say whether the script in a bundle, which is code of whoever sent it, is the one that is installed here."""
    if VERIFY not in hashes:
        return "none"
    if hashes[VERIFY] == hashlib.sha256(verify_script().encode()).hexdigest():
        return "the one of the installed keras-attn"
    return (
        "not the one of the installed keras-attn: of another version, or altered. Read it before you run it; "
        "`keras-attn verify` does not."
    )


def _sizes(folder: Path) -> str:
    def size(paths: Iterable[Path]) -> str:
        return bytes_text(sum(path.stat().st_size for path in paths if path.is_file()))

    onnx = size(folder.glob(f"{MODEL}*"))
    return f"{size(folder.rglob('*'))}: ONNX {onnx}, SavedModel {size((folder / SAVED_MODEL).rglob('*'))}"


def _parity_lines(bundle: Bundle) -> Iterator[Line]:
    """Say what was compared, how far apart it was, and what is left open."""
    report = bundle.report
    for part in report.summary().split("; "):
        yield "parity", part
    limits = bundle.entries.parity["tolerance"]
    allowed = f", {limits['relative']:g} relative or {limits['absolute']:g} absolute" if any(limits.values()) else ""
    yield "parity", f"allowed: what rounding does{allowed}, on {report.provider}"
    if (backend := bundle.entries.backend) != "tensorflow":
        yield "parity", f"with the outputs of Keras on {backend}"
    if weights := (report.coverage or {}).get("weights"):
        unchanged = f"{weights['unchanged']} of {weights['variables']} variables are unchanged in the float32 ONNX file"
        yield "weights", f"{unchanged}; the others are folded, computed with or unused"
    if clone := report.float32_clone:
        apart = f"{clone['max_abs']:.1e} absolute, {clone['max_rel']:.1e} relative"
        yield "clone", f"in float32; the model as given ({', '.join(clone['policies'])}) is {apart} from it"
    if gains := report.precision:
        size, duration = f"{gains['size_ratio']:.2f} of float32's size", f"{gains['time_ratio']:.2f} of its time"
        yield "gain", f"{gains['name']}: {size}, {duration}"
        yield from (("int8", line) for line in describe_calibration_error(gains.get("calibration")))
        for output, top1 in gains.get("top1", {}).items():
            yield "gain", f"{output}: {top1['agreement']:.2%} of {top1['rows']} rows have the same top class"
    for warning in report.warnings:
        yield "warning", warning
    for case, why in report.refused.items():
        yield "not compared", f"case {case}, which Keras cannot run: {why}"
