"""A folder that appears whole or not at all."""

import ctypes
import errno
import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from bundles import names

from keras_attn_export import BundleError
from keras_attn_export._bundle import atomic_folder
from keras_attn_export._bundle.atomic_folder import staged_folder


def fill(folder, text="new"):
    (folder / "manifest.json").write_text(text)
    (folder / "model.onnx").write_text(text)
    (folder / "parity").mkdir()
    (folder / "parity" / "cases.npz").write_text(text)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def only(target, files):
    """Check that a folder holds just these files, and that nothing else is beside it."""
    assert names(target.parent) == [target.name]
    assert contents(target) == files


def stage(target, act=lambda: None, *, overwrite=False, text="new"):
    """Fill a staged folder, and do something in the block after that."""
    with staged_folder(target, overwrite=overwrite) as folder:
        fill(folder, text)
        act()


def refused(target, match, *, overwrite=False):
    with pytest.raises(BundleError, match=match):
        stage(target, overwrite=overwrite)


def raising(error):
    def act(*_, **__):
        raise error

    return act


@pytest.fixture
def target(tmp_path):
    return tmp_path / "bundle"


@pytest.fixture
def old(target):
    """Return a target at which there is a bundle."""
    target.mkdir()
    fill(target, "old")
    return target


FILES = ("manifest.json", "model.onnx", "parity/cases.npz")
OLD, NEW, THEIRS = (dict.fromkeys(FILES, text) for text in ("old", "new", "theirs"))


@pytest.mark.parametrize("name", ["x" * 255, "長" * 85], ids=["255", "255 bytes"])
def test_longest_names_may_be_overwritten(tmp_path, name):
    for text in "old", "new":
        stage(tmp_path / name, overwrite=True, text=text)
    only(tmp_path / name, NEW)


def test_bundle_appears_whole_in_parents_that_are_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "a" / "b" / "bundle"
    with staged_folder(Path("a/b/bundle"), overwrite=False) as folder:
        fill(folder)
        assert not target.exists()
        assert all(name.startswith(".bundle.") for name in names(target.parent))
    only(target, NEW)
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o777 & ~umask  # others may read it


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_stopped_export_leaves_nothing_and_keeps_the_old_bundle(old, stop):
    for target, overwrite in (old.parent / "made" / "bundle", False), (old, True):
        with pytest.raises(stop):
            stage(target, raising(stop()), overwrite=overwrite)
        only(old, OLD)


def test_bundle_that_appears_meanwhile_is_not_replaced(target):
    with pytest.raises(BundleError, match="already exists"):
        stage(target, lambda: stage(target, text="theirs"))
    only(target, THEIRS)


def test_working_folder_may_be_overwritten(old, monkeypatch):
    monkeypatch.chdir(old)
    (old / "leftover").write_text("of the old bundle")
    with staged_folder(Path("."), overwrite=True) as folder:
        fill(folder)
        assert contents(old) == OLD | {"leftover": "of the old bundle"}
    only(old, NEW)


WEB_APP = json.dumps({"name": "Shop", "start_url": "/", "icons": []})
EXISTS, NO_BUNDLE = (
    r"bundle already exists\. Pass overwrite=True \(--overwrite\)",
    "bundle is a folder that holds no bundle",
)
FILE = {"": "mine"}  # in the place of the folder
TAKEN = {  # what is there, by name; the target; what is said, and what with overwrite=True
    "a bundle": (OLD, "bundle", EXISTS, None),
    "no manifest": ({"thesis.tex": "mine"}, "bundle", EXISTS, NO_BUNDLE),
    "a web app with a model": ({**OLD, "manifest.json": WEB_APP}, "bundle", EXISTS, NO_BUNDLE),
    "a list": ({"manifest.json": "[]", "photo.jpg": "mine"}, "bundle", EXISTS, NO_BUNDLE),
    "a file": (FILE, "bundle", *[r"bundle is a file\. A bundle is a folder"] * 2),
    "a file as a parent": (FILE, "bundle/inner/deeper", *[r"bundle is a file, so .*inner.deeper cannot be made"] * 2),
    "a long name": ({}, f"made/{'x' * 256}", *[r"Cannot write beside .*: File name too long"] * 2),
    "no folder can be made": ({}, "/proc/made/bundle", *[r"Cannot write beside /proc/made/bundle: \w"] * 2),
}


@pytest.mark.parametrize(("files", "place", "said", "overwriting"), TAKEN.values(), ids=TAKEN)
def test_folders_that_are_no_bundles_are_not_replaced(tmp_path, files, place, said, overwriting):
    for name, text in files.items():
        file = tmp_path / "bundle" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    before = contents(tmp_path)
    refused(tmp_path / place, said)
    if overwriting is not None:
        refused(tmp_path / place, overwriting, overwrite=True)
    assert contents(tmp_path) == before
    assert names(tmp_path) == (["bundle"] if files else [])


@pytest.mark.parametrize("lost", ["model.onnx", "parity/cases.npz"])
def test_bundle_that_lost_files_may_be_overwritten(old, lost):
    hashes = {"model.onnx": "00", "parity/cases.npz": "00"}
    (old / "manifest.json").write_text(json.dumps({"schema_version": 1, "sha256": hashes}))
    (old / lost).unlink()
    stage(old, overwrite=True)
    assert contents(old) == NEW


def test_link_that_leads_nowhere_is_not_replaced(target):
    target.symlink_to("nowhere")
    refused(target, r"bundle is a symbolic link that leads nowhere", overwrite=True)
    assert os.readlink(target) == "nowhere"


def test_link_to_a_bundle_is_replaced_and_its_target_stays(tmp_path):
    (linked := tmp_path / "linked").mkdir()
    fill(linked, "old")
    (target := tmp_path / "elsewhere" / "bundle").parent.mkdir()
    target.symlink_to(linked)
    stage(target, overwrite=True)
    assert not target.is_symlink()
    only(target, NEW)
    assert contents(linked) == OLD


def full_disk():
    try:
        raise RuntimeError("file.tmp; No space left on device")  # as TensorFlow puts it
    except RuntimeError as error:
        raise ValueError("the model cannot be traced") from error


def test_full_disk_is_named_behind_errors_of_tensorflow(target):
    with pytest.raises(BundleError, match=r"Cannot write .*bundle: No space left on device\."):
        stage(target, full_disk)


def leave(folder):
    """Make what a killed process leaves: a folder, and the file by whose lock it was held."""
    folder.mkdir()
    (folder / ".lock").touch()
    return folder.name


@pytest.mark.parametrize(("name", "other"), [("bundle", "bundle.v2"), ("b*", "bundle[1]")])
def test_staging_folders_of_other_targets_are_not_removed(tmp_path, name, other):
    left, users = leave(tmp_path / f".{other}.abcdefgh.partial"), tmp_path / f".{name}.mine.partial"
    users.mkdir()
    stage(tmp_path / name)
    assert names(tmp_path) == sorted([left, users.name, name])
    stage(tmp_path / other)
    assert names(tmp_path) == sorted([users.name, name, other])


def test_bundle_is_overwritten_without_exchange(old, monkeypatch):
    def fail(*_):
        ctypes.set_errno(errno.EINVAL)
        return -1

    library = SimpleNamespace(renameat2=fail, renamex_np=fail)
    for other in (object(), library):  # no such call; a filesystem that refuses it
        monkeypatch.setattr(atomic_folder.ctypes, "CDLL", lambda *_, other=other, **__: other)
        stage(old, overwrite=True)
        only(old, NEW)
