"""`target=` names an onnxruntime, and that one computes what Keras does: nox -s runtimes installs a few of before."""

import subprocess
from pathlib import Path

import all_attention_models as models
import pytest

from keras_attn_export import export_model
from keras_attn_export._onnxruntime_releases import parse_release

pytestmark = [pytest.mark.nightly, pytest.mark.needs("runtimes")]
# Beside the environment that pytest lies in: `onnxruntime-1.15.1` and others, for the Python and the NumPy there.
RUNTIMES = Path(pytest.__file__).parents[5] / ".nox" / "runtimes"


def verified(bundle, folder):
    command = [str(RUNTIMES / "bin" / "python"), str(bundle / "verify.py")]
    done = subprocess.run(command, env={"PYTHONPATH": str(folder)}, capture_output=True, text=True, check=False)
    return done.returncode, (done.stdout + done.stderr).splitlines()[-1]


@pytest.mark.parametrize(
    ("build", "options", "lowest"),
    [
        (models.three_layers, {"target": "1.15"}, "1.15"),
        (models.block, {"target": "1.15", "precision": "float16"}, "1.15"),
        (models.block, {"target": "1.15", "precision": "int8"}, "1.15"),
        (models.scores, {"target": "1.17", "opset": 20}, "1.17"),
        (models.three_layers, {"target": "1.24"}, "1.19"),
    ],
)
def test_earlier_onnxruntime_runs_the_target(build, options, lowest, tmp_path):
    bundle = export_model(build(), tmp_path / "bundle", **options)
    assert bundle.manifest["lowest_onnxruntime"] == lowest
    found = sorted(RUNTIMES.glob("onnxruntime-*"))
    assert len(found) >= 3, "nox -s runtimes installs them"
    for folder in found:
        version = folder.name.removeprefix("onnxruntime-")
        code, said = verified(bundle.path, folder)
        if parse_release(version) < parse_release(lowest):
            assert (code, f"needs onnxruntime {lowest} or newer, and {version} is installed" in said) == (1, True)
        else:
            assert (code, said.endswith("outputs match on CPUExecutionProvider.")) == (0, True), (version, said)
