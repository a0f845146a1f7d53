"""Write a report: one HTML file, whole or not at all, which replaces nothing but an earlier report."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from .._errors import ExportError
from .._standalone import verify
from .content import Content
from .page import GENERATOR, rendered
from .runtime import WebRuntime, web_runtime

MOST_LIVE = 256 * 2**20  # bytes of a model that a page takes along


def beside(bundle: Path) -> Path:
    """Return where the report of a bundle is, if nothing else is said: beside it, with its name."""
    folder = bundle.resolve()
    return folder.with_name(f"{folder.name}.html")


def check_place(page: Path) -> None:
    """Check that a report may be written somewhere.

    Raises:
        ExportError: Something else than a report is there, or the folder is not.
    """
    if not page.parent.is_dir():
        raise ExportError(f"There is no folder {page.parent} to write {page.name} to.")
    if not page.exists():
        return
    if not page.is_file():
        raise ExportError(f"{page} is there and is not a file; it will not be replaced. Choose another place.")
    with page.open("rb") as file:
        if f'<meta name="generator" content="{GENERATOR}">'.encode() not in file.read(4096):
            raise ExportError(f"{page} is there and is no report; it will not be replaced. Choose another place.")


def write_page(page: Path, content: Content, *, live: bool) -> Path:
    """Write the page of a bundle's content; with `live`, one that runs the model.

    Raises:
        ExportError: Something else is in its place, it cannot be written, or what a live page needs is missing.
    """
    check_place(page)
    text = rendered(content, _runtime(content) if live else None)
    partial = page.with_name(f".{page.name}.{os.getpid()}.partial")
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(page)
    except OSError as error:
        raise ExportError(f"Cannot write {page}: {error.strerror}.") from error
    finally:
        with contextlib.suppress(OSError):
            partial.unlink()
    return page


def _runtime(content: Content) -> WebRuntime:
    files = [name for name in content.shown["manifest"]["sha256"] if name.startswith(verify.MODEL)]
    size = sum((content.folder / name).stat().st_size for name in files)
    if files != [verify.MODEL] or size > MOST_LIVE:
        raise ExportError(
            f"A live page takes models of up to {MOST_LIVE >> 20} MiB in one file along. Received: {size >> 20} MiB in "
            f"{len(files)} file{'s' if len(files) > 1 else ''}. Leave `live` out."
        )
    return web_runtime(content.shown["manifest"]["lowest_onnxruntime"])
