"""Tell a folder that an export wrote from any other, however damaged it is."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from .._standalone.verify import CASES, MANIFEST, MODEL
from .steps_manifest import ENCODER, STEP

_ALWAYS_THERE = (MODEL, CASES)  # in bundles of every schema version
_IN_STEPS = (f"{ENCODER}/{MODEL}", f"{STEP}/{MODEL}", CASES)


def is_bundle(folder: Path) -> bool:
    """Tell whether a folder is a bundle, of any schema version and of one file or in steps, whole or damaged.

    Many programs write a `manifest.json`. Ours gives a schema version, and hashes of the ONNX model and of the golden
    cases among others. A manifest that is no JSON any more says nothing, so then these files must be there.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except OSError:
        return False
    except (ValueError, RecursionError):
        return _has_all(lambda name: (folder / name).is_file())
    hashes = manifest.get("sha256") if isinstance(manifest, dict) else None
    return isinstance(hashes, dict) and "schema_version" in manifest and _has_all(hashes.__contains__)


def _has_all(is_there: Callable[[str], bool]) -> bool:
    return any(all(is_there(name) for name in names) for names in (_ALWAYS_THERE, _IN_STEPS))
