"""`keras-attn run`: which files it takes, what it writes, and what it leaves as it was."""

import os
from pathlib import Path

import numpy as np
import pytest
from bundles import alter_manifest, names, small_inputs
from tolerances import assert_identical

from keras_attn_export import load_bundle
from keras_attn_export._cli import run


@pytest.mark.parametrize("name", ["outputs.npz", "outputs"])
def test_run_writes_what_bundle_run_gives_in_place_of_earlier_outputs(exported, samples, tmp_path, succeeds, name):
    target = tmp_path / name
    run.write_arrays(target, {"earlier": np.ones(2)})
    out = succeeds("run", exported, "--inputs", samples, "--outputs", target)
    assert out == f"{target}: context float32[2, 3, 5], weights float32[2, 3, 7]\n"
    assert names(tmp_path) == sorted([name, "samples.npz"])
    wanted = load_bundle(exported).run(small_inputs())
    with np.load(target) as written:
        assert written.files == list(wanted)
        for output in written.files:
            assert_identical(written[output], wanted[output])


def test_run_keeps_earlier_outputs_when_it_fails(bundle, samples, tmp_path, fails, monkeypatch):
    inputs, target = tmp_path / "inputs.npz", tmp_path / "outputs.npz"
    np.savez(target, earlier=np.ones(2))
    before = target.read_bytes()
    np.savez(inputs, **(small_inputs() | {"valid_lens": np.array([1.0, 2.0])}))
    said = "error: Input `valid_lens` must be of dtype int32. Received: float64."
    fails("run", bundle, "--inputs", inputs, "--outputs", target, said=said)

    def disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    command = ("run", bundle, "--inputs", samples, "--outputs", target)
    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array", disk_full)
        fails(*command, said=f"error: Cannot write {target}: No space left on device.")
    alter_manifest(bundle, multiples={"keys_length": 3})
    fails(*command, said="where `keys_length` is a multiple of 3. Received: (2, 7, 6).\n")
    assert target.read_bytes() == before
    assert names(tmp_path) == ["bundle", "inputs.npz", "outputs.npz", "samples.npz"]


def test_run_needs_a_place_for_its_outputs(exported, samples, tmp_path, fails):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for place, said in (
        ("folder", "is there and is not a file"),
        ("pipe", "is there and is not a file"),
        ("nowhere/out.npz", "There is no folder"),
        ("samples.npz/out.npz", "There is no folder"),
    ):
        err = fails("run", exported, "--inputs", samples, "--outputs", tmp_path / place, said=said)
        assert str((tmp_path / place).parent) in err
    assert names(tmp_path) == ["folder", "pipe", "samples.npz"]
    assert (tmp_path / "pipe").is_fifo()


def test_outputs_of_any_name_are_written(tmp_path):
    arrays = {"file": np.ones(2, "float32"), "allow_pickle": np.array(3), "a/b": np.zeros((0, 2), bool)}
    run.write_arrays(tmp_path / "out.npz", arrays)
    with np.load(tmp_path / "out.npz") as written:
        assert written.files == list(arrays)
        for name, array in arrays.items():
            assert_identical(written[name], array)


class Bomb:
    """What runs code when it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


def _save_objects(path):
    np.savez(path, queries=np.array([Bomb()], object))


FILES = {  # what else verify.py does not read is in tests/standalone/test_verify.py
    "missing": (lambda path: None, "There is no file"),
    "folder": (lambda path: path.mkdir(), "Is a directory"),
    "objects": (_save_objects, "Object arrays cannot be loaded"),
}


@pytest.mark.parametrize(("make", "said"), FILES.values(), ids=FILES)
def test_files_that_hold_no_inputs(exported, tmp_path, fails, monkeypatch, make, said):
    monkeypatch.chdir(tmp_path)
    make(Path("inputs.npz"))
    before = names(tmp_path)
    fails("run", exported, "--inputs", "inputs.npz", "--outputs", "out.npz", said=said)
    assert names(tmp_path) == before
