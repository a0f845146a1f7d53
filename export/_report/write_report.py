"""Atomic write of a report page, which replaces an earlier report but no other file."""

from pathlib import Path

from .._bundle.atomic_writes import atomic_file
from .._bundle.output_paths import check_output_path, find_kind_objection
from .._errors import ExportError
from .._format.names import CASES_FILE, MODEL
from .page_content import PageContent
from .render_page import GENERATOR, render_page
from .web_runtime import WebRuntime, find_web_runtime

MAX_LIVE_BYTES = 64 * 2**20  # of the model and its cases in a live page
_HEAD_BYTES = 4096  # the first bytes of a page, which contain its generator


def default_report_path(bundle: Path) -> Path:
    """Return the default path of a report: next to the bundle, with its name."""
    folder = bundle.resolve()
    return folder.with_name(f"{folder.name}.html")


def check_report_path(page: Path, *, in_a_folder: bool = True) -> None:
    """Raise an `ExportError` if a path is in a bundle, in a missing folder, or a file that is not a report."""
    check_output_path(page, _find_refusal, needs_parent=in_a_folder)


def _find_refusal(path: Path) -> str | None:
    meta = f'<meta name="generator" content="{GENERATOR}">'.encode()
    return find_kind_objection(path, "report", lambda content: meta in content[:_HEAD_BYTES])


def write_page(page: Path, content: PageContent, *, live: bool) -> Path:
    """Write a page and return its path; raise `ExportError` if it cannot be written, or the bundle cannot be live."""
    text = render_page(content, _find_runtime(content) if live else None)
    with atomic_file(page, _find_refusal) as partial:
        partial.write_bytes(text.encode("utf-8", "replace"))  # lone surrogates in a name become question marks
    return page


def _find_runtime(content: PageContent) -> WebRuntime:
    files = [name for name in content.manifest.sha256 if name.startswith(MODEL)]
    size = sum((content.folder / name).stat().st_size for name in (*files, CASES_FILE))
    if files != [MODEL] or size > MAX_LIVE_BYTES:
        raise ExportError(
            "A live page contains the model, which must be one file, and its cases, at most "
            f"{MAX_LIVE_BYTES >> 20} MiB in all. Received: {size / 2**20:.0f} MiB, the model in {len(files)} "
            f"file{'s' if len(files) > 1 else ''}. Leave `live` out."
        )
    return find_web_runtime(content.manifest.lowest_onnxruntime)
