"""onnxruntime-web, which a page takes along to run a model in the reader's browser: found where npm put it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from .._errors import ExportError

PACKAGE = "onnxruntime-web"
MODULE, BINARY = "dist/ort.wasm.bundle.min.mjs", "dist/ort-wasm-simd-threaded.wasm"
INSTALL = f"npm install --ignore-scripts {PACKAGE}"


class WebRuntime(NamedTuple):
    """The files of onnxruntime-web: a module that includes its glue code, and the WebAssembly it runs."""

    version: str
    module: bytes
    binary: bytes


def web_runtime(lowest: str) -> WebRuntime:
    """Return the onnxruntime-web that is installed where Node would find it: in `node_modules` here or above.

    Args:
        lowest: The onnxruntime that the model needs at least.

    Raises:
        ExportError: It is not installed, lacks a file, or is older.
    """
    folder = next((place for place in _places() if (place / "package.json").is_file()), None)
    if folder is None:
        raise ExportError(
            f"A live page takes {PACKAGE} along, which is not installed here. Run `{INSTALL}` in this folder, or in "
            "one above it."
        )
    try:
        version = str(json.loads((folder / "package.json").read_text(encoding="utf-8"))["version"])
        numbers = _numbers(version)
        found = WebRuntime(version, (folder / MODULE).read_bytes(), (folder / BINARY).read_bytes())
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ExportError(f"{folder} is not a whole {PACKAGE} ({error}). Run `{INSTALL}` again.") from error
    if numbers < _numbers(lowest):
        raise ExportError(
            f"The model needs onnxruntime {lowest} or newer, and {folder} is {version}. Run `{INSTALL}@latest`."
        )
    return found


def _places() -> Iterator[Path]:
    here = Path.cwd()
    for folder in (here, *here.parents):
        yield folder / "node_modules" / PACKAGE
    for named in filter(None, os.environ.get("NODE_PATH", "").split(os.pathsep)):
        yield Path(named) / PACKAGE


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("-")[0].split(".")[:2])
