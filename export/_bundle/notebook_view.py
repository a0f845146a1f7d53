"""HTML view of a bundle in notebooks: result of the parity check, inputs, outputs, attention layers and a call."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from .._format.manifest import Manifest, Spec
from .._format.names import MODEL
from .._format.parity_report import ParityReport
from .._format.printing import printable
from .._formatting import bytes_text

MAX_LINES = 12  # of a row; a model can have hundreds of inputs
MAX_CHARACTERS = 500  # of a text

# Colours of the notebook, in its light and its dark theme, but for the border.
_GOOD, _BAD, _WARNING = "#2e9e4f", "#d9453b", "#d98a1f"
_BLOCK = "border-left:.3em solid {colour};padding:.1em 1em;max-width:60em;overflow-x:auto;text-align:left"
_TABLE = "border-collapse:collapse;margin:.4em 0;color:inherit;font:inherit"
_CELL = "text-align:left;vertical-align:top;padding:.15em 1em .15em 0;border:0;background:none;white-space:{space}"


def notebook_view(folder: Path, manifest: Manifest, report: ParityReport) -> str:
    """Return HTML with inline styles and without scripts; names of the bundle are escaped."""
    colour = (_WARNING if report.warnings else _GOOD) if report.passed else _BAD
    rows = "".join(
        f"<tr>{_cell('th', title)}{_cell('td', '<br>'.join(lines))}</tr>"
        for title, lines in _rows(folder, manifest, report)
    )
    return (
        f'<div style="{_BLOCK.format(colour=colour)}"><div><b>{_text(manifest.model)}</b>, '
        f"{'checked against' if report.passed else 'does not match'} Keras on {_text(report.provider)}: "
        f"{_text(report.summary())}</div>"
        f'<table style="{_TABLE}">{rows}</table>'
        f"<code>{_text(_call(folder, manifest.inputs))}</code></div>"
    )


def _rows(folder: Path, manifest: Manifest, report: ParityReport) -> Iterator[tuple[str, list[str]]]:
    """Yield a title and lines of HTML for each row of the table."""
    for kind, specs in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        yield kind, _some(f"<code>{_text(spec.name)}</code> {_text(_kind(spec))}" for spec in specs)
    if manifest.layers:
        yield "attention", _some(map(_layer, manifest.layers))
    if report.warnings:
        yield "warnings", _some(map(_text, report.warnings))
    written = f"{manifest.precision}, opset {manifest.opset}, onnxruntime {manifest.lowest_onnxruntime} or newer"
    size = sum(file.stat().st_size for file in folder.glob(f"{MODEL}*"))
    yield "file", [_text(f"{bytes_text(size)}: {written}")]


def _layer(layer: dict[str, str]) -> str:
    form = layer.get("form", layer["lowering"])
    return f"<code>{_text(layer['name'])}</code> {_text(layer['class'])}: {_text(form)}"


def _call(folder: Path, inputs: Sequence[Spec]) -> str:
    names = [f"{spec.name!r}: ..." for spec in inputs[:MAX_LINES]]
    return f"load_bundle({str(folder)!r}).run({{{', '.join(names)}{', ...' * (len(inputs) > MAX_LINES)}}})"


def _kind(spec: Spec) -> str:
    return f"{spec.dtype} [{', '.join(map(str, spec.shape))}]"


def _some(lines: Iterable[str]) -> list[str]:
    shown = list(lines)
    return [*shown[:MAX_LINES], *([f"and {len(shown) - MAX_LINES} more"] if len(shown) > MAX_LINES else [])]


def _cell(tag: str, content: str) -> str:
    """Return a table cell; a title stays on one line."""
    return f'<{tag} style="{_CELL.format(space="nowrap" if tag == "th" else "normal")}">{content}</{tag}>'


def _text(text: str) -> str:
    """Return a text without markup, and without characters that change the direction of the text behind them."""
    return escape(printable(text if len(text) <= MAX_CHARACTERS else f"{text[:MAX_CHARACTERS]} ..."))
