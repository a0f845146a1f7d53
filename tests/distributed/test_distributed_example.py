"""Tests of the example of distributed training, which run it as one process and in a cluster.

The losses of both runs are equal. In the cluster, only one process writes files.

The commands are those of docs/howto/distributed-training.md.
"""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
from backends import BACKEND
from distributed_processes import prepare_jax_processes, prepare_tensorflow, prepare_torch, run_scripts

from keras_attn import MultiHeadAttention

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "distributed_training.py"
PREPARE_CLUSTER_BY_BACKEND = {"tensorflow": prepare_tensorflow, "jax": prepare_jax_processes, "torch": prepare_torch}
LOSS_REPORT = re.compile(r"(\d) processes, (\d) devices: loss ([\d.]+), then ([\d.]+)")


def run_example(folder: Path, environments: list[dict[str, str]], *arguments: str) -> list[str]:
    """Run the example in one process for each environment, and return the printed outputs.

    Each process gets its own output folder.
    """
    commands = [[str(EXAMPLE), *arguments, "--out", str(folder / str(rank))] for rank in range(len(environments))]
    return run_scripts(commands, folder, environments)


@pytest.fixture(scope="module")
def one_process_run(tmp_path_factory) -> tuple[Path, str]:
    """Run the example as one process, and return its folder and its printed output."""
    folder = tmp_path_factory.mktemp("alone")
    (text,) = run_example(folder, [{}], "--quick")
    return folder, text


@pytest.mark.slow
def test_example_as_one_process_trains_saves_and_exports(one_process_run):
    folder, text = one_process_run
    assert LOSS_REPORT.search(text).groups()[:2] == ("1", "1")
    assert "outputs match" in text
    assert (folder / "0" / "bundle" / "model.onnx").is_file()
    layers = keras.models.load_model(folder / "0" / "model.keras").layers
    assert [layer.name for layer in layers if isinstance(layer, MultiHeadAttention)] == ["attend"]


@pytest.mark.slow
def test_example_in_a_cluster_trains_as_one_process_and_writes_once(one_process_run, tmp_path):
    texts = run_example(tmp_path, PREPARE_CLUSTER_BY_BACKEND[BACKEND](2), "--quick")
    report = LOSS_REPORT.search(texts[0])
    assert report.groups()[:2] == ("2", "2")
    assert not LOSS_REPORT.search(texts[1])
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == ["bundle", "model.keras"]
    assert not (tmp_path / "1").exists()
    # Each process draws its own dropout, except on JAX.
    tolerance = 1e-4 if BACKEND == "jax" else 0.3
    losses = [
        [float(loss) for loss in match.groups()[2:]] for match in (report, LOSS_REPORT.search(one_process_run[1]))
    ]
    np.testing.assert_allclose(*losses, atol=tolerance)
