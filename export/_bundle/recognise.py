"""Tell a folder that an export wrote from any other, however damaged it is."""

from __future__ import annotations

import json
from pathlib import Path

from .._standalone.verify import CASES, MANIFEST, MODEL

_ALWAYS_THERE = (MODEL, CASES)  # in bundles of every schema version


def is_bundle(folder: Path) -> bool:
    """Tell whether a folder is a bundle, of any schema version, whole or damaged.

    Many programs write a `manifest.json`. Ours gives a schema version, and hashes of the ONNX model and of the golden
    cases among others. A manifest that is no JSON any more says nothing, so then these files must be there.
    """
    try:
        manifest = json.loads((folder / MANIFEST).read_bytes())
    except OSError:
        return False
    except (ValueError, RecursionError):
        return all((folder / name).is_file() for name in _ALWAYS_THERE)
    hashes = manifest.get("sha256") if isinstance(manifest, dict) else None
    return isinstance(hashes, dict) and "schema_version" in manifest and all(name in hashes for name in _ALWAYS_THERE)
