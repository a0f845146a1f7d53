"""The example starts alone and in a cluster without a change, trains the same, and one process alone writes.

These are the commands of docs/howto/distributed-training.md.
"""

import re
from pathlib import Path

import keras
import numpy as np
import pytest
from backends import BACKEND
from distributed_processes import cluster_of_tensorflow, group_of_torch, processes_of_jax, run

from keras_attn import MultiHeadAttention

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "distributed_training.py"
CLUSTERS = {"tensorflow": cluster_of_tensorflow, "jax": processes_of_jax, "torch": group_of_torch}
TOLD = re.compile(r"(\d) processes, (\d) devices: loss ([\d.]+), then ([\d.]+)")


def started(folder: Path, environments: list[dict[str, str]], *arguments: str) -> list[str]:
    """Run the example, each process with a folder of its own to write to, and return what they said."""
    commands = [[str(EXAMPLE), *arguments, "--out", str(folder / str(rank))] for rank in range(len(environments))]
    return run(commands, folder, environments)


@pytest.fixture(scope="module")
def alone(tmp_path_factory) -> tuple[Path, str]:
    folder = tmp_path_factory.mktemp("alone")
    (text,) = started(folder, [{}], "--quick")
    return folder, text


@pytest.mark.slow
def test_example_alone_trains_saves_and_exports(alone):
    folder, text = alone
    assert TOLD.search(text).groups()[:2] == ("1", "1")
    assert "outputs match" in text
    assert (folder / "0" / "bundle" / "model.onnx").is_file()
    layers = keras.models.load_model(folder / "0" / "model.keras").layers
    assert [layer.name for layer in layers if isinstance(layer, MultiHeadAttention)] == ["attend"]


@pytest.mark.slow
def test_example_in_a_cluster_trains_as_alone_and_writes_once(alone, tmp_path):
    texts = started(tmp_path, CLUSTERS[BACKEND](2), "--quick")
    told = TOLD.search(texts[0])
    assert told.groups()[:2] == ("2", "2")
    assert not TOLD.search(texts[1])
    assert sorted(path.name for path in (tmp_path / "0").iterdir()) == ["bundle", "model.keras"]
    assert not (tmp_path / "1").exists()
    # Each process draws a dropout of its own, but on JAX.
    apart = 1e-4 if BACKEND == "jax" else 0.3
    losses = [[float(number) for number in each.groups()[2:]] for each in (told, TOLD.search(alone[1]))]
    np.testing.assert_allclose(*losses, atol=apart)
