"""`keras-attn run`: which files it takes, what it writes, and what it leaves as it was."""

import os
import re
import zipfile
from pathlib import Path

import numpy as np
import pytest
from bundles import alter_manifest, assert_one_line, names, small_inputs
from tolerances import assert_identical

from keras_attn_export import load_bundle
from keras_attn_export._cli import run

pytest_plugins = ("bundle_fixtures", "command_fixtures")


@pytest.mark.parametrize("name", ["outputs.npz", "outputs"])
def test_run_writes_what_bundle_run_gives(exported, samples, tmp_path, call, name):
    code, out, err = call("run", exported, "--inputs", samples, "--outputs", tmp_path / name)
    assert (code, err) == (0, "")
    assert out == f"{tmp_path / name}: context float32[2, 3, 5], weights float32[2, 3, 7]\n"
    assert names(tmp_path) == sorted([name, "samples.npz"])
    wanted = load_bundle(exported).run(small_inputs())
    with np.load(tmp_path / name) as written:
        assert written.files == list(wanted)
        for output in written.files:
            assert_identical(written[output], wanted[output])


def test_run_replaces_earlier_outputs(exported, samples, tmp_path, call):
    target = tmp_path / "outputs.npz"
    target.write_text("earlier")
    assert call("run", exported, "--inputs", samples, "--outputs", target)[0] == 0
    assert zipfile.is_zipfile(target)


def test_run_keeps_earlier_outputs_when_it_fails(exported, tmp_path, call):
    inputs, target = tmp_path / "inputs.npz", tmp_path / "outputs.npz"
    target.write_text("earlier")
    np.savez(inputs, **(small_inputs() | {"valid_lens": np.array([1.0, 2.0])}))
    code, out, err = call("run", exported, "--inputs", inputs, "--outputs", target)
    assert (code, out) == (1, "")
    assert_one_line(err, "error: Input `valid_lens` must be of dtype int32. Received: float64.")
    assert target.read_text() == "earlier"
    assert names(tmp_path) == ["inputs.npz", "outputs.npz"]


def test_a_size_that_is_no_multiple_is_told_before_it_runs(bundle, samples, tmp_path, call):
    alter_manifest(bundle, multiples={"keys_length": 3})
    code, out, err = call("run", bundle, "--inputs", samples, "--outputs", tmp_path / "out.npz")
    assert (code, out) == (1, "")
    assert_one_line(err, "error: Input `keys` must have shape ")
    assert err.endswith("where `keys_length` is a multiple of 3. Received: (2, 7, 6).\n")
    assert names(tmp_path) == ["bundle", "samples.npz"]


def test_run_keeps_earlier_outputs_when_writing_fails(exported, samples, tmp_path, call, monkeypatch):
    def disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    target = tmp_path / "outputs.npz"
    target.write_text("earlier")
    monkeypatch.setattr(np.lib.format, "write_array", disk_full)
    code, out, err = call("run", exported, "--inputs", samples, "--outputs", target)
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: Cannot write {target}: No space left on device.")
    assert target.read_text() == "earlier"
    assert names(tmp_path) == ["outputs.npz", "samples.npz"]


def test_run_needs_a_place_for_its_outputs(exported, samples, tmp_path, call):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for place, said in (
        ("folder", "is there and is not a file"),
        ("pipe", "is there and is not a file"),
        ("nowhere/out.npz", "No such file or directory"),
        ("samples.npz/out.npz", "Not a directory"),
    ):
        code, out, err = call("run", exported, "--inputs", samples, "--outputs", tmp_path / place)
        assert (code, out) == (1, "")
        assert_one_line(err)
        assert str(tmp_path / place) in err
        assert said in err
    assert names(tmp_path) == ["folder", "pipe", "samples.npz"]
    assert (tmp_path / "pipe").is_fifo()


def test_outputs_of_any_name_are_written(tmp_path):
    arrays = {"file": np.ones(2, "float32"), "allow_pickle": np.array(3), "a/b": np.zeros((0, 2), bool)}
    run.write_arrays(tmp_path / "out.npz", arrays)
    with np.load(tmp_path / "out.npz") as written:
        assert written.files == list(arrays)
        for name, array in arrays.items():
            assert_identical(written[name], array)


def _save_objects(path):
    np.savez(path, x=np.array([{}], object))


def _save_single(path):
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def _save_member_that_is_no_array(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("queries.npy", b"text")


FILES = {
    "missing": (lambda path: None, "There is no file"),
    "folder": (lambda path: path.mkdir(), "Cannot read .*: Is a directory"),
    "empty": (lambda path: path.touch(), "it is no zip archive"),
    "text": (lambda path: path.write_text("1 2 3"), "it is no zip archive"),
    "broken archive": (lambda path: path.write_bytes(b"PK\x03\x04 and no more"), "it is no zip archive"),
    "pickle": (lambda path: path.write_bytes(b"\x80\x04}\x94."), "it is no zip archive"),
    "objects": (_save_objects, "holds objects, and to read those can run code"),
    "single array": (_save_single, "it holds a single array"),
    "no array": (_save_member_that_is_no_array, "is no array"),
    "far more than its size": (lambda path: np.savez_compressed(path, queries=np.zeros(2**23)), "would unpack to"),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_that_hold_no_inputs(exported, tmp_path, call, kind):
    make, said = FILES[kind]
    file = tmp_path / "inputs.npz"
    make(file)
    if kind == "no array":
        with zipfile.ZipFile(file, "a") as archive:
            for name in ("keys", "values", "valid_lens"):
                archive.writestr(f"{name}.npy", b"text")
    code, out, err = call("run", exported, "--inputs", file, "--outputs", tmp_path / "out.npz")
    assert (code, out) == (1, "")
    assert_one_line(err)
    assert re.search(said, err)
    assert not (tmp_path / "out.npz").exists()


def test_a_pickle_is_not_run(exported, tmp_path, call):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    np.savez(tmp_path / "inputs.npz", queries=np.array([Bomb()], object))
    assert call("run", exported, "--inputs", tmp_path / "inputs.npz", "--outputs", tmp_path / "out.npz")[0] == 1
    assert names(tmp_path) == ["inputs.npz"]
