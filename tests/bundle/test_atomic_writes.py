"""Files and folders that are complete or absent: after errors and kills, and beside other writers."""

import json
import os
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import pytest
from small_bundle import list_names

from keras_attn_export import BundleError, ExportError, load_bundle
from keras_attn_export._bundle.atomic_writes import atomic_file, atomic_folder
from keras_attn_export._bundle.bundle_files import must_be_replaceable

FILES = ("manifest.json", "model.onnx", "parity/cases.npz")
OLD, NEW, THEIRS = (dict.fromkeys(FILES, text) for text in ("old", "new", "theirs"))


def fill(folder, text="new"):
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def contents(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def check_only(target, files):
    """Check that a folder holds just these files, and that nothing else is beside it."""
    assert list_names(target.parent) == [target.name]
    assert contents(target) == files


def write_folder(target, act=lambda: None, *, overwrite=False, text="new"):
    """Write a folder, and do something before it takes its place."""
    with atomic_folder(target, partial(must_be_replaceable, overwrite=overwrite)) as folder:
        fill(folder, text)
        act()


def check_refused(target, match, *, overwrite=False):
    with pytest.raises(BundleError, match=match):
        write_folder(target, overwrite=overwrite)


def raising(error):
    def act():
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


@pytest.mark.parametrize("name", ["x" * 251, "長" * 83], ids=["ASCII", "UTF-8"])
def test_longest_names_may_be_overwritten(tmp_path, name):
    for text in "old", "new":
        write_folder(tmp_path / name, overwrite=True, text=text)
    check_only(tmp_path / name, NEW)


def test_folder_appears_complete_in_parents_that_are_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "a" / "b" / "bundle"
    beside = []
    write_folder(Path("a/b/bundle"), lambda: beside.extend(list_names(target.parent)))
    assert [name.startswith(".bundle.") for name in beside] == [True]
    check_only(target, NEW)
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o777 & ~umask  # others may read it


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_stopped_write_leaves_nothing_and_keeps_the_old_folder(old, stop):
    for target, overwrite in (old.parent / "made" / "bundle", False), (old, True):
        with pytest.raises(stop):
            write_folder(target, raising(stop()), overwrite=overwrite)
        check_only(old, OLD)


def test_folder_that_appears_meanwhile_is_not_replaced(target):
    with pytest.raises(BundleError, match="already exists"):
        write_folder(target, lambda: write_folder(target, text="theirs"))
    check_only(target, THEIRS)


def test_working_folder_may_be_overwritten(old, monkeypatch):
    monkeypatch.chdir(old)
    (old / "leftover").write_text("of the old bundle")
    write_folder(Path("."), overwrite=True)
    check_only(old, NEW)


WEB_APP = json.dumps({"name": "Shop", "start_url": "/", "icons": []})
EXISTS, NO_BUNDLE = (
    r"bundle already exists\. Pass overwrite=True \(--overwrite\)",
    "bundle is a folder that holds no bundle",
)
FILE = {"": "mine"}  # in the place of the folder
TAKEN = {  # what is there, by name; the target; the error, and the one with overwrite=True
    "a bundle": (OLD, "bundle", EXISTS, None),
    "no manifest": ({"thesis.tex": "mine"}, "bundle", EXISTS, NO_BUNDLE),
    "a web app with a model": ({**OLD, "manifest.json": WEB_APP}, "bundle", EXISTS, NO_BUNDLE),
    "a list": ({"manifest.json": "[]", "photo.jpg": "mine"}, "bundle", EXISTS, NO_BUNDLE),
    "a file": (FILE, "bundle", *[r"bundle is a file\. A bundle is a folder"] * 2),
    "a file as a parent": (
        FILE,
        "bundle/inner/deeper",
        *[r"bundle is a file, so .*inner.deeper cannot be created"] * 2,
    ),
    "a long name": ({}, f"made/{'x' * 252}", *[r"Cannot write beside .*: File name too long"] * 2),
    "no folder can be made": ({}, "/proc/made/bundle", *[r"Cannot write beside /proc/made/bundle: \w"] * 2),
}


@pytest.mark.parametrize(("files", "place", "error", "overwriting"), TAKEN.values(), ids=TAKEN)
def test_folders_that_are_no_bundles_are_not_replaced(tmp_path, files, place, error, overwriting):
    for name, text in files.items():
        file = tmp_path / "bundle" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    before = contents(tmp_path)
    check_refused(tmp_path / place, error)
    if overwriting is not None:
        check_refused(tmp_path / place, overwriting, overwrite=True)
    assert contents(tmp_path) == before
    assert list_names(tmp_path) == (["bundle"] if files else [])


@pytest.mark.parametrize("lost", ["model.onnx", "parity/cases.npz"])
def test_bundle_that_lost_files_may_be_overwritten(old, lost):
    hashes = {"model.onnx": "00", "parity/cases.npz": "00"}
    (old / "manifest.json").write_text(json.dumps({"schema_version": 1, "sha256": hashes}))
    (old / lost).unlink()
    write_folder(old, overwrite=True)
    assert contents(old) == NEW


def test_link_that_leads_nowhere_is_not_replaced(target):
    target.symlink_to("nowhere")
    check_refused(target, r"bundle is a symbolic link without target", overwrite=True)
    assert os.readlink(target) == "nowhere"


def test_link_to_a_bundle_is_replaced_and_its_target_stays(tmp_path):
    (linked := tmp_path / "linked").mkdir()
    fill(linked, "old")
    (target := tmp_path / "elsewhere" / "bundle").parent.mkdir()
    target.symlink_to(linked)
    write_folder(target, overwrite=True)
    assert not target.is_symlink()
    check_only(target, NEW)
    assert contents(linked) == OLD


def test_folder_of_the_user_at_the_old_name_stays(old):
    (mine := old.with_name("bundle.old")).mkdir()
    fill(mine, "mine")
    check_refused(old, r"bundle\.old is in the way: .*bundle moves there while it is replaced", overwrite=True)
    old.rename(old.with_name("elsewhere"))
    write_folder(old)
    assert (contents(old), contents(mine)) == (NEW, dict.fromkeys(FILES, "mine"))


def test_folder_of_the_user_stays_beside_a_killed_export_of_another_name(old):
    (mine := old.with_name("bundle.old")).mkdir()
    (other := old.with_name(".bundle.v2.abcdefgh.partial")).mkdir()
    (other / "replacing").write_text("1 2")  # the device and the number of a folder that is gone
    check_refused(old, "is in the way", overwrite=True)
    assert mine.exists()
    assert other.exists()


def test_load_restores_the_old_bundle_with_a_warning(bundle):
    bundle.rename(bundle.with_name("bundle.old"))
    with pytest.warns(UserWarning, match=r"bundle was missing and is restored: .*bundle\.old was renamed to it"):
        assert load_bundle(bundle).path == bundle
    assert not bundle.with_name("bundle.old").exists()


def test_missing_bundle_is_not_restored_from_another_folder(tmp_path):
    (tmp_path / "bundle.old").mkdir()
    with pytest.raises(BundleError):
        load_bundle(tmp_path / "bundle")
    assert list_names(tmp_path) == ["bundle.old"]


WRITER = """
import sys
from pathlib import Path
from keras_attn_export._bundle.atomic_writes import atomic_file
with atomic_file(Path(sys.argv[1])) as partial, partial.open("w") as file:
    print("half of it", file=file, flush=True)
    print("writing", flush=True)
    sys.stdin.readline()
"""


def write_file(target, content=b"new"):
    with atomic_file(target) as partial_file:
        partial_file.write_bytes(content)


def test_file_is_what_it_was_after_a_kill(tmp_path):
    (tmp_path / "out").write_text("earlier")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WRITER, tmp_path / "out"], text=True, **pipes) as process:
        assert process.stdout.readline() == "writing\n"
        process.kill()
    assert (tmp_path / "out").read_text() == "earlier"
    write_file(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "new"


@pytest.mark.parametrize("stop", [RuntimeError, KeyboardInterrupt])
def test_stopped_write_leaves_nothing_and_keeps_the_old_file(tmp_path, stop):
    (tmp_path / "out").write_text("earlier")
    with pytest.raises(stop), atomic_file(tmp_path / "out") as partial_file:  # noqa: PT012
        partial_file.write_text("half of it")
        raise stop
    assert contents(tmp_path) == {"out": "earlier"}


def test_file_of_writers_at_once_is_complete_at_any_moment(tmp_path):
    texts = [bytes([number]) * 100_000 for number in range(4)]
    read, target = set(), tmp_path / "out"
    write_file(target, texts[0])
    threads = [threading.Thread(target=lambda one=one: [write_file(target, one) for _ in range(20)]) for one in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        read.add(target.read_bytes())
    assert read <= set(texts)
    assert list_names(tmp_path) == ["out"]


@pytest.mark.fresh_process  # other tests do not wait for the disk
def test_file_is_synchronized_before_its_rename(tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, Path.replace

    def renamed(partial_file, target):
        calls.append("renamed")
        return replace(partial_file, target)

    monkeypatch.setattr(os, "fsync", lambda file: (calls.append(os.fstat(file).st_ino), fsync(file)))
    monkeypatch.setattr(Path, "replace", renamed)
    write_file(tmp_path / "out")
    assert calls == [(tmp_path / "out").stat().st_ino, "renamed"]


THINGS = {"link": lambda place: place.symlink_to("other"), "pipe": os.mkfifo, "folder": Path.mkdir}


@pytest.mark.parametrize("make", THINGS.values(), ids=THINGS)
def test_links_pipes_and_folders_are_not_replaced_by_files(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").write_text("other")
    target = tmp_path / "out"
    with pytest.raises(ExportError, match="exists and is not a file"), atomic_file(target) as partial_file:  # noqa: PT012
        partial_file.write_bytes(b"new")
        make(target)
    assert not target.is_file() or target.is_symlink()
    assert list_names(tmp_path) == ["other", "out"]
    assert (tmp_path / "other").read_text() == "other"
