"""Write a report: one HTML file, whole or not at all, which replaces nothing but an earlier report."""

from __future__ import annotations

from pathlib import Path

from .._atomic_writes import atomic_file
from .._errors import ExportError
from .._places import check_place, unless_of_kind
from .._standalone import verify
from .content import Content
from .page import GENERATOR, rendered
from .runtime import WebRuntime, web_runtime

MOST_LIVE = 64 * 2**20  # bytes of a model and its cases that a page takes along


def beside(bundle: Path) -> Path:
    """Return where the report of a bundle is, if nothing else is said: beside it, with its name."""
    folder = bundle.resolve()
    return folder.with_name(f"{folder.name}.html")


def check_page(page: Path, *, in_a_folder: bool = True) -> None:
    """Check that the report of a bundle may be written somewhere.

    Args:
        page: The place.
        in_a_folder: Whether the folder must be there yet.

    Raises:
        ExportError: Something else than a report is there, the folder is not, or it is a bundle.
    """
    check_place(page, _unless_a_report, in_a_folder=in_a_folder)


def _unless_a_report(there: Path) -> str | None:
    return unless_of_kind(there, "report", _is_report)


def _is_report(content: bytes) -> bool:
    return f'<meta name="generator" content="{GENERATOR}">'.encode() in content[:4096]


def write_page(page: Path, content: Content, *, live: bool) -> Path:
    """Write the page of a bundle's content; with `live`, one that runs the model.

    Raises:
        ExportError: Something else is in its place, it cannot be written, or what a live page needs is missing.
    """
    text = rendered(content, _runtime(content) if live else None)
    with atomic_file(page, _unless_a_report) as partial:
        partial.write_bytes(text.encode("utf-8", "replace"))  # a name that is no Unicode is shown with a question mark
    return page


def _runtime(content: Content) -> WebRuntime:
    files = [name for name in content.shown["manifest"].sha256 if name.startswith(verify.MODEL)]
    size = sum((content.folder / name).stat().st_size for name in (*files, verify.CASES))
    if files != [verify.MODEL] or size > MOST_LIVE:
        raise ExportError(
            f"A live page takes a model in one file and its cases along, up to {MOST_LIVE >> 20} MiB in all. Received: "
            f"{size / 2**20:.0f} MiB, the model in {len(files)} file{'s' if len(files) > 1 else ''}. Leave `live` out."
        )
    return web_runtime(content.shown["manifest"].lowest_onnxruntime)
