"""Exports for earlier onnxruntimes: releases from `target` on reproduce Keras; nox -s runtimes installs them."""

import subprocess
from pathlib import Path

import all_attention_models as models
import pytest

from keras_attn_export import export_model
from keras_attn_export._onnxruntime_releases import parse_release

pytestmark = [pytest.mark.nightly, pytest.mark.needs("runtimes")]
# Next to the environment of pytest: folders as `onnxruntime-1.15.1`, for the Python and NumPy of .nox/runtimes.
RUNTIMES = Path(pytest.__file__).parents[5] / ".nox" / "runtimes"


def run_verify_script(bundle, folder):
    command = [str(RUNTIMES / "bin" / "python"), str(bundle / "verify.py")]
    result = subprocess.run(command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False)
    return result.returncode, (result.stdout + result.stderr).splitlines()[-1]


@pytest.mark.parametrize(
    ("build", "options", "lowest"),
    [
        (models.build_three_layers, {"target": "1.15"}, "1.15"),
        (models.build_transformer_block, {"target": "1.15", "precision": "float16"}, "1.15"),
        (models.build_transformer_block, {"target": "1.15", "precision": "int8"}, "1.15"),
        (models.build_score_variants, {"target": "1.17", "opset": 20}, "1.17"),
        (models.build_three_layers, {"target": "1.24"}, "1.19"),
    ],
)
def test_earlier_onnxruntime_runs_the_target(build, options, lowest, tmp_path):
    bundle = export_model(build(), tmp_path / "bundle", **options)
    assert bundle.manifest["lowest_onnxruntime"] == lowest
    folders = sorted(RUNTIMES.glob("onnxruntime-*"))
    assert len(folders) >= 3, "nox -s runtimes installs them"
    for folder in folders:
        version = folder.name.removeprefix("onnxruntime-")
        code, line = run_verify_script(bundle.path, folder)
        if parse_release(version) < parse_release(lowest):
            assert (code, f"needs onnxruntime {lowest} or newer, and {version} is installed" in line) == (1, True)
        else:
            assert (code, line.endswith("outputs match on CPUExecutionProvider.")) == (0, True), (version, line)
