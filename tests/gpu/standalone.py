"""`verify.py` as it travels in bundles, loaded by its path: the package around it wants Keras."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "export" / "_standalone" / "verify.py"

_spec = importlib.util.spec_from_file_location("gpu_verify", PATH)
assert _spec is not None
assert _spec.loader is not None
verify = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = verify  # errors that pass from one process to another are looked up there
_spec.loader.exec_module(verify)
