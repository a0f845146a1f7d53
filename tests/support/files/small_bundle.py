"""Small model for the fixtures in `bundle_fixtures.py`. Helpers alter the bundle of the model or run commands."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
from export_models import build_attention_inputs

from keras_attn import AdditiveAttention
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.files import manifest_bytes, sha256
from keras_attn_export._format.names import CASES_FILE

Dq, Dk, Dv, U = 4, 6, 5, 3
# Packages that scripts of a bundle must not import; pass them to `run_python` as `blocked`
UNNEEDED_PACKAGES = ("tensorflow", "keras", "keras_attn", "keras_attn_export", "onnx", "tf2onnx")


def build_small_model():
    """Build a model of four inputs and two outputs; all axes but the feature axes are dynamic."""
    queries, keys, values, lens = build_attention_inputs(Dq, Dk, Dv)
    context, weights = AdditiveAttention(U, name="attention")(queries, keys, values, lens, return_attention_scores=True)
    return keras.Model([queries, keys, values, lens], {"context": context, "weights": weights}, name="small")


def draw_small_inputs(B=2, Tq=3, Tk=7):
    rng = np.random.default_rng(0)
    shapes = {"queries": (B, Tq, Dq), "keys": (B, Tk, Dk), "values": (B, Tk, Dv)}
    inputs = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    return {**inputs, "valid_lens": np.arange(1, B + 1, dtype="int32")}


def list_names(folder):
    return sorted(path.name for path in folder.iterdir())


def flip_bit(file):
    """Flip the lowest bit of the byte in the middle of a file."""
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def refresh_checksum(folder, name):
    """Write the present hash of a file into the manifest, so that loading does not notice the altered file."""
    alter_manifest(folder, sha256=read_manifest(folder)["sha256"] | {name: sha256(folder / name)})


def read_manifest(folder):
    return json.loads((folder / "manifest.json").read_text(encoding="utf-8"))


def alter_manifest(folder, **entries):
    """Set entries of the manifest; an entry whose value is `Ellipsis` (`...`) is removed."""
    manifest = {name: value for name, value in (read_manifest(folder) | entries).items() if value is not ...}
    (folder / "manifest.json").write_bytes(manifest_bytes(manifest))


def alter_golden_outputs(folder):
    """Add 1 to the output `context` of the second golden case, and refresh the checksum."""
    cases = load_cases(folder / CASES_FILE)
    cases[1].outputs["context"] += 1
    save_cases(folder / CASES_FILE, cases)
    refresh_checksum(folder, CASES_FILE)


def run_python(*arguments, cwd, blocked=(), timeout=60):
    """Run this Python in `cwd`. A `sitecustomize.py` makes imports of the packages in `blocked` fail."""
    site = cwd / ".blocking_site"
    site.mkdir(exist_ok=True)
    lines = ["import sys", *(f"sys.modules[{name!r}] = None" for name in blocked)]
    (site / "sitecustomize.py").write_text("\n".join(lines), encoding="utf-8")
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    return run_command(sys.executable, *arguments, cwd=cwd, env={**os.environ, "PYTHONPATH": path}, timeout=timeout)


def run_command(*command, timeout=200, **options):
    """Run a command, and return the finished process whatever its exit code."""
    return subprocess.run([*map(str, command)], capture_output=True, text=True, timeout=timeout, check=False, **options)


def assert_one_line(text, start="error: "):
    """Assert that `text` is one line that begins with `start`, not a traceback."""
    assert text.startswith(start), text
    assert text.endswith("\n"), text
    assert text.count("\n") == 1, text
