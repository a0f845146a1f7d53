"""The commands on a decoder in steps: those that take it, and what the others say."""

import json

import numpy as np
import pytest
from bundles import names, read_manifest
from decoding_models import END, START, arrays, attending, ids_of
from steps_bundles import counting_bundle

from keras_attn.decoding import greedy

pytest_plugins = ("command_fixtures",)


@pytest.fixture
def counting(tmp_path):
    return counting_bundle(tmp_path / "counting")


def test_export_and_run(tmp_path, succeeds):
    model = greedy(*attending(), start=START, end=END, max_length=3, outputs=["weights"])
    model.save(tmp_path / "model.keras")
    folder, inputs = tmp_path / "bundle", ids_of(9)
    np.savez(tmp_path / "inputs.npz", **inputs)
    out = succeeds("export", tmp_path / "model.keras", folder, "--in-steps")
    assert out.startswith(f"bundle      {folder}\nkind        decoder in steps\nparts ")
    succeeds("run", folder, "--inputs", tmp_path / "inputs.npz", "--outputs", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as found:
        for name, array in arrays(model(inputs)).items():
            np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5)


def test_inspect(counting, succeeds):
    out = succeeds("inspect", counting)
    for line in (
        "            state: step's output `next`; first encoder's output `state`",
        "            cache: step's output `cache_out`; first zeros [batch, 0, 2]",
        "            seen: encoder's input `seen`",
        "start       encoder's output `begin`",
        "end         1",
    ):
        assert f"{line}\n" in out
    assert json.loads(succeeds("inspect", counting, "--json"))["manifest"] == read_manifest(counting)


@pytest.mark.parametrize(
    "command",
    ["bench", "report", "verify --trace", "layout OUT --target triton", "convert FILE --to litert", "predict IN OUT"],
)
def test_commands_for_one_file_name_the_two(counting, tmp_path, fails, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    name, *rest = command.split()
    said = "error: counting is a decoder in steps, a folder with two bundles; this takes one of them: "
    assert fails(name, "counting", *rest, said=said).endswith("counting/encoder or counting/step.\n")
    assert names(tmp_path) == ["counting"]
