"""Describe a decoder in steps: which output feeds which input, and its two bundles."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .._bundle.bundle import Bundle
from .._bundle.steps_manifest import NAMED, PARTS, POSITION, START, TOKEN, ZEROS, is_in_steps
from .._report.page_numbers import bytes_text
from .describe import Line, columns, describe, parity_lines, shape_lines, versions_text

SAID = {
    START: "the token before the first",
    TOKEN: "the last token",
    POSITION: "the number of the step, from 0",
}


def describe_any(bundle: Bundle) -> str:
    """Return what a bundle of one file or of two says of itself, a line each."""
    return columns(_lines(bundle)) if is_in_steps(bundle.manifest) else describe(bundle)


def _lines(bundle: Bundle) -> Iterator[Line]:
    manifest = bundle.manifest
    yield "bundle", str(bundle.path)
    yield "kind", manifest["kind"]
    for folder in (bundle.path / part for part in PARTS):
        size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
        yield "parts", f"{folder}: {bytes_text(size)}"
    yield "model", manifest["model"]
    yield from shape_lines(manifest)
    for feed in manifest["feeds"]:
        yield "step", f"{feed['input']}: {_fed_by(feed)}"
    yield "token", f"the largest of `{manifest['logits']}` of the step"
    for name, source in manifest["collected"].items():
        yield "collected", name if name == source else f"{name}: `{source}` of the step"
    start, end = manifest["start"], manifest["end"]
    yield "start", str(start) if isinstance(start, int) else _source(start)
    yield "end", "none" if end is None else str(end)
    yield "longest", f"{manifest['max_length']} steps"
    yield "precision", manifest["precision"]
    for name, part in bundle.parts.items():
        yield "parity", f"{name}: {part.report.summary()}"
    yield from parity_lines(bundle)
    yield "made with", versions_text(manifest)


def _fed_by(feed: Mapping[str, Any]) -> str:
    first, then = feed["first"], feed["then"]
    if first == then:
        return _source(then)
    return _source(then) if then["from"] == TOKEN else f"{_source(then)}; first {_source(first)}"


def _source(source: Mapping[str, Any]) -> str:
    kind = source["from"]
    if kind in NAMED:
        of, _, what = kind.partition(" ")
        return f"{of}'s {what} `{source['name']}`"
    return f"zeros [batch, {', '.join(map(str, source['shape']))}]" if kind == ZEROS else SAID[kind]
