"""A folder that appears whole or not at all."""

import ctypes
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from bundles import names

from keras_attn_export import BundleError
from keras_attn_export._bundle import atomic_folder
from keras_attn_export._bundle.atomic_folder import staged_folder

SLEEPER = """
import sys, time
from pathlib import Path
from keras_attn_export._bundle.atomic_folder import staged_folder
with staged_folder(Path(sys.argv[1]), overwrite=True) as folder:
    (folder / "half").write_text("written")
    print("ready", flush=True)
    time.sleep(60)
"""


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
OLD, NEW = dict.fromkeys(FILES, "old"), dict.fromkeys(FILES, "new")


def test_appears_whole_in_parents_that_are_made(tmp_path, monkeypatch):
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


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt, SystemExit])
def test_being_stopped_leaves_nothing_and_keeps_the_old_bundle(old, stop):
    for target, overwrite in (old.parent / "made" / "bundle", False), (old, True):
        with pytest.raises(stop):
            stage(target, raising(stop()), overwrite=overwrite)
        only(old, OLD)


def test_parents_that_someone_uses_meanwhile_are_kept(tmp_path):
    def fail():
        (tmp_path / "a" / "other").write_text("mine")
        raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        stage(tmp_path / "a" / "bundle", fail)
    assert names(tmp_path / "a") == ["other"]


def test_a_bundle_that_appears_meanwhile_is_not_replaced(target):
    def race():
        target.mkdir()
        fill(target, "theirs")

    with pytest.raises(BundleError, match="already exists"):
        stage(target, race)
    only(target, dict.fromkeys(FILES, "theirs"))


def test_overwriting_the_working_folder_itself(old, monkeypatch):
    monkeypatch.chdir(old)
    (old / "leftover").write_text("of the old bundle")
    with staged_folder(Path("."), overwrite=True) as folder:
        fill(folder)
        assert contents(old) == OLD | {"leftover": "of the old bundle"}
    only(old, NEW)


def test_an_empty_folder_may_be_overwritten(target):
    target.mkdir()
    refused(target, "already exists")
    stage(target, overwrite=True)
    only(target, NEW)


WEB_APP = json.dumps({"name": "Shop", "start_url": "/", "icons": []})
OTHER_HASHES = json.dumps({"schema_version": 2, "sha256": {"index.html": "00"}})
EXISTS, NO_BUNDLE = (
    r"bundle already exists\. Pass overwrite=True \(--overwrite\)",
    "bundle is a folder that holds no bundle",
)
FILE = {"": "mine"}  # in the place of the folder
TAKEN = {  # what is there, by name; the target; what is said, and what with overwrite=True
    "a bundle": (OLD, "bundle", EXISTS, None),
    "no manifest": ({"thesis.tex": "mine"}, "bundle", EXISTS, NO_BUNDLE),
    "a web app": ({"manifest.json": WEB_APP, "index.html": "shop"}, "bundle", EXISTS, NO_BUNDLE),
    "a web app with a model": ({**OLD, "manifest.json": WEB_APP}, "bundle", EXISTS, NO_BUNDLE),
    "a list": ({"manifest.json": "[]", "photo.jpg": "mine"}, "bundle", EXISTS, NO_BUNDLE),
    "hashes of other files": ({"manifest.json": OTHER_HASHES}, "bundle", EXISTS, NO_BUNDLE),
    "no JSON": ({"manifest.json": "Main-Class: Shop", "model.onnx": "theirs"}, "bundle", EXISTS, NO_BUNDLE),
    "a file": (FILE, "bundle", *[r"bundle is a file\. A bundle is a folder"] * 2),
    "a file as a parent": (FILE, "bundle/inner/deeper", *[r"bundle is a file, so .*inner.deeper cannot be made"] * 2),
    "a long name": ({}, f"made/{'x' * 250}", *[r"Cannot write beside .*: File name too long"] * 2),
    **{  # where nobody can make a folder, on Linux
        place: ({}, place, *[rf"Cannot write beside {place}: \w"] * 2)
        for place in ("/proc/bundle", "/proc/made/bundle")
        if Path("/proc/self").exists()
    },
}


@pytest.mark.parametrize(("files", "place", "said", "overwriting"), TAKEN.values(), ids=TAKEN)
def test_what_is_there_is_not_replaced(tmp_path, files, place, said, overwriting):
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


@pytest.mark.parametrize("lost", ["model.onnx", "parity/cases.npz", "both"])
def test_a_bundle_that_lost_files_or_is_of_another_version_may_be_overwritten(old, lost):
    hashes = {"model.onnx": "00", "parity/cases.npz": "00"}
    (old / "manifest.json").write_text(json.dumps({"schema_version": 1, "sha256": hashes}))
    for name in hashes if lost == "both" else [lost]:
        (old / name).unlink()
    stage(old, overwrite=True)
    assert contents(old) == NEW


def test_a_folder_that_becomes_someone_elses_meanwhile(old):
    with pytest.raises(BundleError, match="holds no bundle"):
        stage(old, (old / "manifest.json").unlink, overwrite=True)
    assert contents(old) == {name: "old" for name in FILES[1:]}


# ----------------------------------------------------------- processes that die


def test_a_process_that_lives_is_not_swept_and_one_that_was_killed_is(target):
    with subprocess.Popen([sys.executable, "-c", SLEEPER, str(target)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "ready\n"
        (living,) = names(target.parent)
        assert living.startswith(".bundle.")
        stage(target)
        assert names(target.parent) == sorted([living, "bundle"])
        assert contents(target.parent / living / "bundle") == {"half": "written"}
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert names(target.parent) == sorted([living, "bundle"])
        assert contents(target) == NEW
        stage(target, overwrite=True, text="newer")
    only(target, dict.fromkeys(FILES, "newer"))


def leave(folder):
    """Make what a killed process leaves: a folder, and the file by whose lock it was held."""
    folder.mkdir()
    (folder / ".lock").touch()
    return folder.name


@pytest.mark.parametrize(("name", "other"), [("bundle", "bundle.v2"), ("bundle", "bundle2"), ("b*", "bundle[1]")])
def test_what_another_target_left_or_a_user_made_is_not_swept(tmp_path, name, other):
    left, users = leave(tmp_path / f".{other}.abcdefgh.partial"), tmp_path / f".{name}.mine.partial"
    users.mkdir()
    stage(tmp_path / name)
    assert names(tmp_path) == sorted([left, users.name, name])
    stage(tmp_path / other)
    assert names(tmp_path) == sorted([users.name, name, other])


def test_without_locks_nothing_is_swept_and_nothing_fails(tmp_path, monkeypatch):
    left = leave(tmp_path / ".bundle.abcdefgh.partial")
    no_locks = raising(OSError(errno.ENOLCK, os.strerror(errno.ENOLCK)))
    monkeypatch.setattr(atomic_folder.fcntl, "flock", no_locks)
    stage(tmp_path / "bundle")
    assert names(tmp_path) == [left, "bundle"]
    monkeypatch.setattr(atomic_folder, "fcntl", None)  # as on Windows
    stage(tmp_path / "bundle", overwrite=True)
    assert names(tmp_path) == [left, "bundle"]


# ------------------------------------------------- systems that cannot exchange


class Libc:
    """A C library whose `renameat2` and `renamex_np` fail with an error number."""

    def __init__(self, number):
        self._number = number

    def _fail(self, *_):
        ctypes.set_errno(self._number)
        return -1

    renameat2 = renamex_np = _fail


SYSTEMS = {"no such call": object, "not on this filesystem": lambda: Libc(errno.EINVAL)}


@pytest.fixture(params=SYSTEMS)
def no_exchange(request, monkeypatch):
    monkeypatch.setattr(atomic_folder.ctypes, "CDLL", lambda *_, **__: SYSTEMS[request.param]())


@pytest.mark.usefixtures("no_exchange")
def test_overwriting_without_exchange(old):
    stage(old, overwrite=True)
    only(old, NEW)


@pytest.mark.usefixtures("no_exchange")
@pytest.mark.parametrize(
    "failure", [OSError(errno.EIO, "Input/output error"), KeyboardInterrupt()], ids=["io", "ctrl-c"]
)
def test_a_failure_between_the_two_renames_keeps_the_old_bundle(old, monkeypatch, failure):
    rename, moved = Path.rename, []

    def second_fails(self, to):
        moved.append(self.name)
        if len(moved) == 2:
            raise failure
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", second_fails)
    with pytest.raises((BundleError, KeyboardInterrupt)):
        stage(old, overwrite=True)
    assert moved == ["bundle", "bundle", "replaced"]
    only(old, OLD)


def test_killed_between_the_two_renames_the_next_export_restores(target):
    left = target.parent / ".bundle.abcdefgh.partial"
    leave(left)
    (left / "replaced").mkdir()
    fill(left / "replaced", "old")
    with pytest.raises(RuntimeError, match="midway"):
        stage(target, raising(RuntimeError("midway")), overwrite=True)
    only(target, OLD)


def test_an_exchange_that_is_refused(old, monkeypatch):
    monkeypatch.setattr(atomic_folder.ctypes, "CDLL", lambda *_, **__: Libc(errno.EACCES))
    refused(old, r"Cannot put the bundle in place at .*: Permission denied", overwrite=True)
    only(old, OLD)
