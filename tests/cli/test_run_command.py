"""`keras-attn run`: files of inputs, files of outputs, and refusals that leave files unchanged."""

from pathlib import Path

import numpy as np
import pytest
from small_bundle import alter_manifest, draw_small_inputs, list_names
from tolerances import assert_identical

from keras_attn_export import load_bundle
from keras_attn_export._cli import run


def test_run_replaces_earlier_outputs_by_those_of_bundle_run(exported, samples, tmp_path, succeeds):
    target = tmp_path / "outputs"
    run.write_arrays(target, {"earlier": np.ones(2)})
    out = succeeds("run", exported, "--inputs", samples, "--outputs", target)
    assert out == f"{target}: context float32[2, 3, 5], weights float32[2, 3, 7]\n"
    assert list_names(tmp_path) == ["outputs", "samples.npz"]
    expected = load_bundle(exported).run(draw_small_inputs())
    with np.load(target) as archive:
        assert archive.files == list(expected)
        for output in archive.files:
            assert_identical(archive[output], expected[output])


def test_run_keeps_earlier_outputs_when_it_fails(bundle, samples, tmp_path, fails, monkeypatch):
    inputs, target = tmp_path / "inputs.npz", tmp_path / "outputs.npz"
    np.savez(target, earlier=np.ones(2))
    old_content = target.read_bytes()
    np.savez(inputs, **(draw_small_inputs() | {"valid_lens": np.array([1.0, 2.0])}))
    message = "error: Input `valid_lens` must be of dtype int32. Received: float64."
    fails("run", bundle, "--inputs", inputs, "--outputs", target, message=message)

    def raise_disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    command = ("run", bundle, "--inputs", samples, "--outputs", target)
    with monkeypatch.context() as patch:
        patch.setattr(np.lib.format, "write_array", raise_disk_full)
        fails(*command, message=f"error: Cannot write {target}: No space left on device.")
    alter_manifest(bundle, multiples={"keys_length": 3})
    fails(*command, message="where `keys_length` is a multiple of 3. Received: (2, 7, 6).\n")
    assert target.read_bytes() == old_content
    assert list_names(tmp_path) == ["bundle", "inputs.npz", "outputs.npz", "samples.npz"]


def test_run_refuses_outputs_in_a_missing_folder(exported, samples, tmp_path, fails):
    err = fails(
        "run", exported, "--inputs", samples, "--outputs", tmp_path / "nowhere/y.npz", message="There is no folder"
    )
    assert str(tmp_path / "nowhere") in err
    assert list_names(tmp_path) == ["samples.npz"]


class Bomb:
    """An object that runs code when it is unpickled."""

    def __reduce__(self):
        return (Path.touch, (Path("ran"),))


MALFORMED_FILES = {  # more malformed files: tests/format/test_cases.py
    "missing": (lambda path: None, "There is no file"),
    "folder": (lambda path: path.mkdir(), "Is a directory"),
    "objects": (lambda path: np.savez(path, queries=np.array([Bomb()], object)), "Object arrays cannot be loaded"),
}


@pytest.mark.parametrize(("write", "message"), MALFORMED_FILES.values(), ids=MALFORMED_FILES)
def test_run_refuses_files_that_hold_no_inputs(exported, tmp_path, fails, monkeypatch, write, message):
    monkeypatch.chdir(tmp_path)
    write(Path("inputs.npz"))
    old_names = list_names(tmp_path)
    fails("run", exported, "--inputs", "inputs.npz", "--outputs", "out.npz", message=message)
    assert list_names(tmp_path) == old_names
