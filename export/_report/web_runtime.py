"""Location of the installed onnxruntime-web, which a live page contains."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .._errors import ExportError
from .._onnxruntime_releases import parse_release

PACKAGE = "onnxruntime-web"
MODULE, BINARY = "dist/ort.wasm.bundle.min.mjs", "dist/ort-wasm-simd-threaded.wasm"
INSTALL = f"npm install --ignore-scripts {PACKAGE}"


class WebRuntime(NamedTuple):
    """Files of onnxruntime-web: a JavaScript module, and the WebAssembly that the module runs."""

    version: str
    module: bytes
    binary: bytes


def find_web_runtime(min_version: str) -> WebRuntime:
    """Find the onnxruntime-web that Node would import: in `node_modules` of the current folder or a folder above.

    Raises:
        ExportError: If onnxruntime-web is not installed, is incomplete, or is older than the release `lowest`.
    """
    folder = next((folder for folder in _list_folders() if (folder / "package.json").is_file()), None)
    if folder is None:
        raise ExportError(
            f"A live page contains {PACKAGE}, which is not installed. Run `{INSTALL}` in this folder or one above it."
        )
    try:
        version = str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])
        is_older = parse_release(version) < parse_release(min_version)
        runtime = WebRuntime(version, (folder / MODULE).read_bytes(), (folder / BINARY).read_bytes())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{folder} is not a complete {PACKAGE} ({error}). Run `{INSTALL}` again.") from error
    if is_older:
        raise ExportError(
            f"The model needs onnxruntime {min_version} or newer, and {folder} is {version}. Run `{INSTALL}@latest`."
        )
    return runtime


def _list_folders() -> Iterator[Path]:
    folder = Path.cwd()
    for parent in (folder, *folder.parents):
        yield parent / "node_modules" / PACKAGE
    for path in filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep)):
        yield Path(path) / PACKAGE
