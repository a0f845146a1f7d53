"""A folder that appears whole or not at all."""

import contextlib
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


def stage(target, *, overwrite=False, text="new"):
    with staged_folder(target, overwrite=overwrite) as folder:
        fill(folder, text)


def stage_and_stop(target, error, *, overwrite=False):
    with staged_folder(target, overwrite=overwrite) as folder:
        fill(folder)
        raise error


@contextlib.contextmanager
def sleeping_export(target):
    """Start a process that is inside the block when the body runs."""
    process = subprocess.Popen([sys.executable, "-c", SLEEPER, str(target)], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


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


def test_appears_whole(target):
    with staged_folder(target, overwrite=False) as folder:
        fill(folder)
        assert not target.exists()
        assert all(name.startswith(".bundle.") for name in names(target.parent))
    assert names(target.parent) == ["bundle"]
    assert contents(target) == NEW


def test_others_may_read_it(target):
    stage(target)
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o777 & ~umask


def test_an_exception_leaves_nothing(target):
    with pytest.raises(RuntimeError, match="midway"):
        stage_and_stop(target, RuntimeError("midway"))
    assert names(target.parent) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit])
def test_being_stopped_leaves_nothing(target, stop):
    with pytest.raises(stop):
        stage_and_stop(target, stop())
    assert names(target.parent) == []


def test_parents_are_made_and_kept(tmp_path):
    stage(tmp_path / "a" / "b" / "bundle")
    assert contents(tmp_path / "a" / "b" / "bundle") == NEW
    assert names(tmp_path / "a" / "b") == ["bundle"]


def test_parents_that_were_made_are_removed_on_failure(tmp_path):
    (tmp_path / "kept").mkdir()
    with (
        pytest.raises(RuntimeError, match="midway"),
        staged_folder(tmp_path / "kept" / "a" / "b" / "bundle", overwrite=False),
    ):
        raise RuntimeError("midway")
    assert names(tmp_path) == ["kept"]
    assert names(tmp_path / "kept") == []


def test_parents_that_someone_uses_meanwhile_are_kept(tmp_path):
    def fail():
        with staged_folder(tmp_path / "a" / "bundle", overwrite=False):
            (tmp_path / "a" / "other").write_text("mine")
            raise RuntimeError("midway")

    with pytest.raises(RuntimeError, match="midway"):
        fail()
    assert names(tmp_path / "a") == ["other"]


def test_a_relative_target(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stage(Path("bundle"))
    assert contents(tmp_path / "bundle") == NEW


def test_the_working_folder_itself(old, monkeypatch):
    monkeypatch.chdir(old)
    stage(Path("."), overwrite=True)
    assert names(old.parent) == ["bundle"]
    assert contents(old) == NEW


def test_a_bundle_is_not_replaced_unasked(old):
    with pytest.raises(BundleError, match=r"bundle already exists\. Pass overwrite=True \(--overwrite\)"):
        stage(old)
    assert names(old.parent) == ["bundle"]
    assert contents(old) == OLD


def test_a_bundle_that_appears_meanwhile_is_not_replaced(target):
    def race():
        with staged_folder(target, overwrite=False) as folder:
            fill(folder)
            target.mkdir()
            fill(target, "theirs")

    with pytest.raises(BundleError, match="already exists"):
        race()
    assert names(target.parent) == ["bundle"]
    assert contents(target) == {name: "theirs" for name in OLD}


def test_overwriting(old):
    (old / "leftover").write_text("of the old bundle")
    with staged_folder(old, overwrite=True) as folder:
        fill(folder)
        assert contents(old) == OLD | {"leftover": "of the old bundle"}
    assert names(old.parent) == ["bundle"]
    assert contents(old) == NEW


def test_overwriting_that_fails_midway_keeps_the_old_bundle(old):
    with pytest.raises(RuntimeError, match="midway"):
        stage_and_stop(old, RuntimeError("midway"), overwrite=True)
    assert names(old.parent) == ["bundle"]
    assert contents(old) == OLD


def test_an_empty_folder_may_be_overwritten(target):
    target.mkdir()
    with pytest.raises(BundleError, match="already exists"):
        stage(target)
    stage(target, overwrite=True)
    assert contents(target) == NEW


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_folder_that_holds_no_bundle_is_never_replaced(target, overwrite):
    target.mkdir()
    (target / "thesis.tex").write_text("mine")
    with pytest.raises(
        BundleError, match="holds no bundle; it will not be replaced" if overwrite else "already exists"
    ):
        stage(target, overwrite=overwrite)
    assert contents(target) == {"thesis.tex": "mine"}
    assert names(target.parent) == ["bundle"]


WEB_APP = json.dumps({"name": "Shop", "start_url": "/", "icons": []})
OTHER_FOLDERS = {
    "a web app": {"manifest.json": WEB_APP, "index.html": "shop"},
    "a web app with a model": {"manifest.json": WEB_APP, "model.onnx": "theirs", "parity/cases.npz": "theirs"},
    "a list": {"manifest.json": "[]", "photo.jpg": "mine"},
    "hashes of other files": {"manifest.json": json.dumps({"schema_version": 2, "sha256": {"index.html": "00"}})},
    "no JSON": {"manifest.json": "Main-Class: Shop", "model.onnx": "theirs"},
}


@pytest.mark.parametrize("files", OTHER_FOLDERS.values(), ids=OTHER_FOLDERS)
def test_a_manifest_of_something_else_makes_no_bundle(target, files):
    for name, text in files.items():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        (target / name).write_text(text)
    with pytest.raises(BundleError, match=r"bundle is a folder that holds no bundle; it will not be replaced\."):
        stage(target, overwrite=True)
    assert contents(target) == files
    assert names(target.parent) == ["bundle"]


@pytest.mark.parametrize("lost", ["model.onnx", "parity/cases.npz", "both"])
def test_a_bundle_that_lost_files_or_is_of_another_version_may_be_overwritten(old, lost):
    hashes = {"model.onnx": "00", "parity/cases.npz": "00"}
    (old / "manifest.json").write_text(json.dumps({"schema_version": 1, "sha256": hashes}))
    for name in hashes if lost == "both" else [lost]:
        (old / name).unlink()
    stage(old, overwrite=True)
    assert contents(old) == NEW


def test_a_folder_that_becomes_someone_elses_meanwhile(old):
    def race():
        with staged_folder(old, overwrite=True) as folder:
            fill(folder)
            (old / "manifest.json").unlink()

    with pytest.raises(BundleError, match="holds no bundle"):
        race()
    assert contents(old) == {name: "old" for name in FILES[1:]}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_where_the_folder_should_be(target, overwrite):
    target.write_text("mine")
    with pytest.raises(BundleError, match=r"bundle is a file\. A bundle is a folder"):
        stage(target, overwrite=overwrite)
    assert target.read_text() == "mine"
    assert names(target.parent) == ["bundle"]


def test_a_file_where_a_parent_should_be(target):
    target.write_text("mine")
    with pytest.raises(BundleError, match=r"bundle is a file, so .*inner.deeper cannot be made"):
        stage(target / "inner" / "deeper")
    assert target.read_text() == "mine"


@pytest.mark.skipif(
    not Path("/proc/self").exists(), reason="needs /proc, where nobody can make a folder; CI runs Linux"
)
@pytest.mark.parametrize("place", ["/proc/bundle", "/proc/made/bundle"])
def test_a_place_that_nobody_can_write(place):
    with pytest.raises(BundleError, match=rf"Cannot write beside {place}: \w"):
        stage(Path(place))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere; the test above is for root too")
def test_a_read_only_parent(target):
    target.parent.chmod(0o500)
    try:
        with pytest.raises(BundleError, match=r"Cannot write beside .*: Permission denied"):
            stage(target)
    finally:
        target.parent.chmod(0o700)
    assert names(target.parent) == []


def test_a_name_that_is_too_long(tmp_path):
    with pytest.raises(BundleError, match=r"Cannot write beside .*: File name too long"):
        stage(tmp_path / "made" / ("x" * 250))
    assert names(tmp_path) == []


# ----------------------------------------------------------- processes that die


def test_a_killed_process_leaves_no_target_and_is_swept_by_the_next(target):
    with sleeping_export(target) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        (left,) = names(target.parent)
        assert left.startswith(".bundle.")
        stage(target)
    assert names(target.parent) == ["bundle"]
    assert contents(target) == NEW


def test_a_killed_process_leaves_the_old_bundle(old):
    with sleeping_export(old) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert contents(old) == OLD


def test_a_living_process_is_not_swept(target):
    with sleeping_export(target):
        (living,) = names(target.parent)
        stage(target)
        assert names(target.parent) == sorted([living, "bundle"])
        assert contents(target.parent / living / "bundle") == {"half": "written"}


@pytest.mark.parametrize(("name", "other"), [("bundle", "bundle.v2"), ("bundle", "bundle2"), ("b*", "bundle")])
def test_what_another_target_left_is_not_swept(tmp_path, name, other):
    left = tmp_path / f".{other}.abcdefgh.partial"
    left.mkdir()
    (left / ".lock").touch()
    stage(tmp_path / name)
    assert names(tmp_path) == sorted([left.name, name])
    stage(tmp_path / other)
    assert names(tmp_path) == sorted([name, other])


def test_a_name_with_brackets_is_swept(tmp_path):
    left = tmp_path / ".bundle[1].abcdefgh.partial"
    left.mkdir()
    (left / ".lock").touch()
    stage(tmp_path / "bundle[1]")
    assert names(tmp_path) == ["bundle[1]"]


def test_a_users_folder_that_looks_like_ours_is_not_swept(tmp_path):
    left = tmp_path / ".bundle.mine.partial"
    left.mkdir()
    stage(tmp_path / "bundle")
    assert names(tmp_path) == [left.name, "bundle"]


def test_without_locks_nothing_is_swept_and_nothing_fails(tmp_path, monkeypatch):
    left = tmp_path / ".bundle.abcdefgh.partial"
    left.mkdir()
    (left / ".lock").touch()

    def no_locks(*_):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(atomic_folder.fcntl, "flock", no_locks)
    stage(tmp_path / "bundle")
    assert names(tmp_path) == [left.name, "bundle"]
    monkeypatch.setattr(atomic_folder, "fcntl", None)  # as on Windows
    stage(tmp_path / "bundle", overwrite=True)
    assert names(tmp_path) == [left.name, "bundle"]


# ------------------------------------------------- systems that cannot exchange


class Libc:
    """A C library whose `renameat2` and `renamex_np` fail with an error number."""

    def __init__(self, number):
        self._number = number

    def _fail(self, *_):
        ctypes.set_errno(self._number)
        return -1

    renameat2 = renamex_np = _fail


def without_functions():
    return object()


SYSTEMS = {"no such call": without_functions, "not on this filesystem": lambda: Libc(errno.EINVAL)}


@pytest.fixture(params=SYSTEMS)
def no_exchange(request, monkeypatch):
    monkeypatch.setattr(atomic_folder.ctypes, "CDLL", lambda *_, **__: SYSTEMS[request.param]())


@pytest.mark.usefixtures("no_exchange")
def test_overwriting_without_exchange(old):
    stage(old, overwrite=True)
    assert names(old.parent) == ["bundle"]
    assert contents(old) == NEW


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
    assert names(old.parent) == ["bundle"]
    assert contents(old) == OLD


def test_killed_between_the_two_renames_the_next_export_restores(target):
    left = target.parent / ".bundle.abcdefgh.partial"
    (left / "replaced").mkdir(parents=True)
    fill(left / "replaced", "old")
    (left / ".lock").touch()
    with pytest.raises(RuntimeError, match="midway"), staged_folder(target, overwrite=True):
        raise RuntimeError("midway")
    assert names(target.parent) == ["bundle"]
    assert contents(target) == OLD


def test_an_exchange_that_is_refused(old, monkeypatch):
    monkeypatch.setattr(atomic_folder.ctypes, "CDLL", lambda *_, **__: Libc(errno.EACCES))
    with pytest.raises(BundleError, match=r"Cannot put the bundle in place at .*: Permission denied"):
        stage(old, overwrite=True)
    assert names(old.parent) == ["bundle"]
    assert contents(old) == OLD
