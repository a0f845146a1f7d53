"""HTML view of a bundle in notebooks: result of the parity check, inputs, outputs, attention layers and a call."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from pathlib import Path

from .._format.manifest import Manifest, Spec
from .._format.names import MODEL
from .._format.parity_report import ParityReport
from .._format.printing import escape_unprintable
from .._formatting import format_bytes

MAX_CELL_LINES = 12  # a model can have hundreds of inputs
MAX_TEXT_LENGTH = 500

# Border colours. All other colours are inherited, so that they fit the light and the dark theme of a notebook.
_PASSED_COLOUR, _FAILED_COLOUR, _WARNING_COLOUR = "#2e9e4f", "#d9453b", "#d98a1f"
_BLOCK_STYLE = "border-left:.3em solid {colour};padding:.1em 1em;max-width:60em;overflow-x:auto;text-align:left"
_TABLE_STYLE = "border-collapse:collapse;margin:.4em 0;color:inherit;font:inherit"
_CELL_STYLE = "text-align:left;vertical-align:top;padding:.15em 1em .15em 0;border:0;background:none;"


def render_notebook_view(folder: Path, manifest: Manifest, report: ParityReport) -> str:
    """Return HTML with inline styles and without scripts; text of the bundle is escaped."""
    colour = (_WARNING_COLOUR if report.warnings else _PASSED_COLOUR) if report.passed else _FAILED_COLOUR
    rows = "".join(
        f"<tr>{_format_cell('th', title)}{_format_cell('td', '<br>'.join(lines))}</tr>"
        for title, lines in _build_rows(folder, manifest, report)
    )
    return (
        f'<div style="{_BLOCK_STYLE.format(colour=colour)}"><div><b>{_escape_text(manifest.model)}</b>, '
        f"{'checked against' if report.passed else 'does not match'} Keras on {_escape_text(report.provider)}: "
        f"{_escape_text(report.summary())}</div>"
        f'<table style="{_TABLE_STYLE}">{rows}</table>'
        f"<code>{_escape_text(_format_call(folder, manifest.inputs))}</code></div>"
    )


def _build_rows(folder: Path, manifest: Manifest, report: ParityReport) -> Iterator[tuple[str, list[str]]]:
    """Yield the title and the lines of HTML of each table row."""
    for title, specs in (("inputs", manifest.inputs), ("outputs", manifest.outputs)):
        yield title, _truncate_lines(map(_format_spec, specs))
    if manifest.layers:
        yield "attention", _truncate_lines(map(_format_layer, manifest.layers))
    if report.warnings:
        yield "warnings", _truncate_lines(map(_escape_text, report.warnings))
    details = f"{manifest.precision}, opset {manifest.opset}, onnxruntime {manifest.lowest_onnxruntime} or newer"
    size = sum(file.stat().st_size for file in folder.glob(f"{MODEL}*"))
    yield "file", [_escape_text(f"{format_bytes(size)}: {details}")]


def _format_layer(layer: dict[str, str]) -> str:
    form = layer.get("form", layer["lowering"])
    return f"<code>{_escape_text(layer['name'])}</code> {_escape_text(layer['class'])}: {_escape_text(form)}"


def _format_call(folder: Path, inputs: Sequence[Spec]) -> str:
    names = [f"{spec.name!r}: ..." for spec in inputs[:MAX_CELL_LINES]]
    return f"load_bundle({str(folder)!r}).run({{{', '.join(names)}{', ...' * (len(inputs) > MAX_CELL_LINES)}}})"


def _format_spec(spec: Spec) -> str:
    shape = ", ".join(map(str, spec.shape))
    return f"<code>{_escape_text(spec.name)}</code> {_escape_text(f'{spec.dtype} [{shape}]')}"


def _truncate_lines(lines: Iterable[str]) -> list[str]:
    shown, omitted_count = list(lines), 0
    if len(shown) > MAX_CELL_LINES:
        shown, omitted_count = shown[:MAX_CELL_LINES], len(shown) - MAX_CELL_LINES
    return [*shown, f"and {omitted_count} more"] if omitted_count else shown


def _format_cell(tag: str, content: str) -> str:
    wrapping = "nowrap" if tag == "th" else "normal"
    return f'<{tag} style="{_CELL_STYLE}white-space:{wrapping}">{content}</{tag}>'


def _escape_text(text: str) -> str:
    """Escape markup in a text, and replace characters that change the direction of text."""
    return escape(escape_unprintable(text if len(text) <= MAX_TEXT_LENGTH else f"{text[:MAX_TEXT_LENGTH]} ..."))
