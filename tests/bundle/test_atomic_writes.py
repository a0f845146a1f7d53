"""Atomic writes: files and folders are complete or absent after errors, kills and concurrent writes."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from small_bundle import list_names

from keras_attn_export import BundleError, ExportError, load_bundle
from keras_attn_export._bundle.atomic_writes import atomic_file, atomic_folder
from keras_attn_export._bundle.bundle_files import find_overwrite_objection

FILES = ("manifest.json", "model.onnx", "parity/cases.npz")
OLD_FILES, NEW_FILES, OTHER_FILES = (dict.fromkeys(FILES, text) for text in ("old", "new", "theirs"))


def write_files(folder, text="new"):
    for name in FILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def read_files(folder):
    return {path.relative_to(folder).as_posix(): path.read_text() for path in folder.rglob("*") if path.is_file()}


def assert_sole_folder(target, files):
    """Assert that a folder holds only these files, and that its parent holds only this folder."""
    assert list_names(target.parent) == [target.name]
    assert read_files(target) == files


def write_folder(target, action=lambda: None, *, overwrite=False, text="new"):
    """Write a folder, and call `action` before the rename."""
    with atomic_folder(target, partial(find_overwrite_objection, overwrite=overwrite)) as folder:
        write_files(folder, text)
        action()


def assert_refused(target, match, *, overwrite=False):
    with pytest.raises(BundleError, match=match):
        write_folder(target, overwrite=overwrite)


def make_raiser(error):
    def action():
        raise error

    return action


@pytest.fixture
def target(tmp_path):
    return tmp_path / "bundle"


@pytest.fixture
def old_bundle(target):
    """The target with a bundle in it."""
    target.mkdir()
    write_files(target, "old")
    return target


@pytest.mark.parametrize("name", ["x" * 251, "長" * 83], ids=["ASCII", "UTF-8"])
def test_longest_names_may_be_overwritten(tmp_path, name):
    for text in "old", "new":
        write_folder(tmp_path / name, overwrite=True, text=text)
    assert_sole_folder(tmp_path / name, NEW_FILES)


def test_folder_appears_complete_in_new_parents(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    target = tmp_path / "a" / "b" / "bundle"
    names = []
    write_folder(Path("a/b/bundle"), lambda: names.extend(list_names(target.parent)))
    assert [name.startswith(".bundle.") for name in names] == [True]
    assert_sole_folder(target, NEW_FILES)
    umask = os.umask(0)
    os.umask(umask)
    assert target.stat().st_mode & 0o777 == 0o777 & ~umask  # readable for other users


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_stopped_write_leaves_nothing_and_keeps_the_old_folder(old_bundle, error):
    for target, overwrite in (old_bundle.parent / "made" / "bundle", False), (old_bundle, True):
        with pytest.raises(error):
            write_folder(target, make_raiser(error()), overwrite=overwrite)
        assert_sole_folder(old_bundle, OLD_FILES)


def test_folder_of_a_concurrent_writer_is_not_replaced(target):
    with pytest.raises(BundleError, match="already exists"):
        write_folder(target, lambda: write_folder(target, text="theirs"))
    assert_sole_folder(target, OTHER_FILES)


def test_working_folder_may_be_overwritten(old_bundle, monkeypatch):
    monkeypatch.chdir(old_bundle)
    (old_bundle / "leftover").write_text("of the old bundle")
    write_folder(Path("."), overwrite=True)
    assert_sole_folder(old_bundle, NEW_FILES)


WEB_APP = json.dumps({"name": "Shop", "start_url": "/", "icons": []})
EXISTS, NO_BUNDLE = (
    r"bundle already exists\. Pass overwrite=True \(--overwrite\)",
    "bundle is a folder that holds no bundle",
)
FILE_AT_TARGET = {"": "mine"}  # a file instead of a folder
OCCUPIED_TARGETS = {  # existing files, target, error, error with overwrite=True
    "a bundle": (OLD_FILES, "bundle", EXISTS, None),
    "no manifest": ({"thesis.tex": "mine"}, "bundle", EXISTS, NO_BUNDLE),
    "a web app with a model": ({**OLD_FILES, "manifest.json": WEB_APP}, "bundle", EXISTS, NO_BUNDLE),
    "a list": ({"manifest.json": "[]", "photo.jpg": "mine"}, "bundle", EXISTS, NO_BUNDLE),
    "a file": (FILE_AT_TARGET, "bundle", *[r"bundle is a file\. A bundle is a folder"] * 2),
    "a file as a parent": (
        FILE_AT_TARGET,
        "bundle/inner/deeper",
        *[r"bundle is a file, so .*inner.deeper cannot be created"] * 2,
    ),
    "a long name": ({}, f"made/{'x' * 252}", *[r"Cannot write beside .*: File name too long"] * 2),
    "no folder can be made": ({}, "/proc/made/bundle", *[r"Cannot write beside /proc/made/bundle: \w"] * 2),
}


@pytest.mark.parametrize(("files", "path", "error", "overwrite_error"), OCCUPIED_TARGETS.values(), ids=OCCUPIED_TARGETS)
def test_folders_that_are_no_bundles_are_not_replaced(tmp_path, files, path, error, overwrite_error):
    for name, text in files.items():
        file = tmp_path / "bundle" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    old_contents = read_files(tmp_path)
    assert_refused(tmp_path / path, error)
    if overwrite_error is not None:
        assert_refused(tmp_path / path, overwrite_error, overwrite=True)
    assert read_files(tmp_path) == old_contents
    assert list_names(tmp_path) == (["bundle"] if files else [])


@pytest.mark.parametrize("missing_file", ["model.onnx", "parity/cases.npz"])
def test_bundle_with_missing_files_may_be_overwritten(old_bundle, missing_file):
    hashes = {"model.onnx": "00", "parity/cases.npz": "00"}
    (old_bundle / "manifest.json").write_text(json.dumps({"schema_version": 1, "sha256": hashes}))
    (old_bundle / missing_file).unlink()
    write_folder(old_bundle, overwrite=True)
    assert read_files(old_bundle) == NEW_FILES


def test_link_without_target_is_not_replaced(target):
    target.symlink_to("nowhere")
    assert_refused(target, r"bundle is a symbolic link without target", overwrite=True)
    assert os.readlink(target) == "nowhere"


def test_link_to_a_bundle_is_replaced_and_its_target_stays(tmp_path):
    (linked_bundle := tmp_path / "linked").mkdir()
    write_files(linked_bundle, "old")
    (target := tmp_path / "elsewhere" / "bundle").parent.mkdir()
    target.symlink_to(linked_bundle)
    write_folder(target, overwrite=True)
    assert not target.is_symlink()
    assert_sole_folder(target, NEW_FILES)
    assert read_files(linked_bundle) == OLD_FILES


def test_user_folder_named_bundle_old_is_kept(old_bundle):
    (user_folder := old_bundle.with_name("bundle.old")).mkdir()
    write_files(user_folder, "mine")
    assert_refused(old_bundle, r"bundle\.old is in the way: .*bundle moves there while it is replaced", overwrite=True)
    old_bundle.rename(old_bundle.with_name("elsewhere"))
    write_folder(old_bundle)
    assert (read_files(old_bundle), read_files(user_folder)) == (NEW_FILES, dict.fromkeys(FILES, "mine"))


def test_user_folder_is_kept_although_an_export_of_another_bundle_was_killed(old_bundle):
    (user_folder := old_bundle.with_name("bundle.old")).mkdir()
    (partial_folder := old_bundle.with_name(".bundle.v2.abcdefgh.partial")).mkdir()
    # A killed export leaves a file with the device and inode numbers of the folder that it renamed. Here no folder has
    # these numbers.
    (partial_folder / "replacing").write_text("1 2")
    assert_refused(old_bundle, "is in the way", overwrite=True)
    assert user_folder.exists()
    assert partial_folder.exists()


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


WRITER_SCRIPT = """
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


def test_killed_write_keeps_the_old_file(tmp_path):
    (tmp_path / "out").write_text("earlier")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WRITER_SCRIPT, tmp_path / "out"], text=True, **pipes) as process:
        assert process.stdout.readline() == "writing\n"
        process.kill()
    assert (tmp_path / "out").read_text() == "earlier"
    write_file(tmp_path / "out")
    assert (tmp_path / "out").read_text() == "new"


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_stopped_write_leaves_nothing_and_keeps_the_old_file(tmp_path, error):
    (tmp_path / "out").write_text("earlier")
    with pytest.raises(error), atomic_file(tmp_path / "out") as partial_file:  # noqa: PT012
        partial_file.write_text("half of it")
        raise error
    assert read_files(tmp_path) == {"out": "earlier"}


def test_file_of_concurrent_writers_is_always_complete(tmp_path):
    texts = [bytes([number]) * 100_000 for number in range(4)]
    contents, target = set(), tmp_path / "out"
    write_file(target, texts[0])
    threads = [Thread(target=lambda text=text: [write_file(target, text) for _ in range(20)]) for text in texts]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        contents.add(target.read_bytes())
    assert contents <= set(texts)
    assert list_names(tmp_path) == ["out"]


@pytest.mark.fresh_process  # in other tests, `fast_exports.py` replaces the function that calls `os.fsync`
def test_file_is_synchronized_before_its_rename(tmp_path, monkeypatch):
    calls, fsync, replace = [], os.fsync, Path.replace

    def record_rename(partial_file, target):
        calls.append("renamed")
        return replace(partial_file, target)

    monkeypatch.setattr(os, "fsync", lambda file: (calls.append(os.fstat(file).st_ino), fsync(file)))
    monkeypatch.setattr(Path, "replace", record_rename)
    write_file(tmp_path / "out")
    assert calls == [(tmp_path / "out").stat().st_ino, "renamed"]


OBSTACLE_CREATORS = {"link": lambda path: path.symlink_to("other"), "pipe": os.mkfifo, "folder": Path.mkdir}


@pytest.mark.parametrize("create", OBSTACLE_CREATORS.values(), ids=OBSTACLE_CREATORS)
def test_links_pipes_and_folders_are_not_replaced_by_files(tmp_path, monkeypatch, create):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").write_text("other")
    target = tmp_path / "out"
    with pytest.raises(ExportError, match="exists and is not a file"), atomic_file(target) as partial_file:  # noqa: PT012
        partial_file.write_bytes(b"new")
        create(target)
    assert not target.is_file() or target.is_symlink()
    assert list_names(tmp_path) == ["other", "out"]
    assert (tmp_path / "other").read_text() == "other"
