"""What MLServer reads: `model-settings.json`, the runtime that it names, and the bundle."""

from __future__ import annotations

import json
import shlex
import shutil
from pathlib import Path

from .._loaded_bundle import Bundle
from .._standalone import verify
from .copying import copy_files
from .specs import datatype

SERVER = "MLServer"
RUNTIME = Path(verify.__file__).with_name("bundle_runtime.py")
SETTINGS, BUNDLE = "model-settings.json", "bundle"
# those of the runtime, which cannot be imported where there is no MLServer
TYPES = {
    "bool": "BOOL",
    "string": "BYTES",
    **{f"float{bits}": f"FP{bits}" for bits in (16, 32, 64)},
    **{f"{u}int{bits}": f"{u.upper()}INT{bits}" for u in ("", "u") for bits in (8, 16, 32, 64)},
}


def fill(folder: Path, bundle: Bundle, name: str, provider: str) -> list[str]:
    """Fill the folder of a model; return what its user should know.

    The bundle stays whole, so that its `verify.py` can be run where it is served.
    """
    for spec in bundle.entries.specs:
        datatype(spec, TYPES, SERVER)
    copy_files(bundle, {each: each for each in bundle.entries.sha256}, folder / BUNDLE)
    (folder / BUNDLE / verify.MANIFEST).write_bytes(verify.manifest_bytes(bundle.manifest))
    shutil.copyfile(RUNTIME, folder / RUNTIME.name)
    settings = {
        "name": name,
        "implementation": f"{RUNTIME.stem}.BundleModel",
        "parameters": {"uri": f"./{BUNDLE}", "extra": {"provider": verify.PROVIDERS[provider].name}},
    }
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    return []


def command(repository: Path, name: str) -> str:
    """Return the command that starts the server, on this machine alone and in one process.

    Workers of MLServer 1.7.1 end at once beside uvloop 0.23, and the server then waits for them for ever.
    """
    return f"MLSERVER_HOST=127.0.0.1 MLSERVER_PARALLEL_WORKERS=0 mlserver start {shlex.quote(str(repository))}"
