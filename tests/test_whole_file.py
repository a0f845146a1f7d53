"""Files that appear whole or not at all: beside other writers, after a kill, in the place of other things."""

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from keras_attn_export import ExportError
from keras_attn_export._whole_file import whole_file

fcntl = pytest.importorskip("fcntl")

WRITER = """
import sys
from pathlib import Path
from keras_attn_export._whole_file import locked, whole_file
with whole_file(Path(sys.argv[1])) as partial:
    with partial.open("wb") as file:
        file.write(b"half of it")
        file.flush()
        print("writing", flush=True)
        sys.stdin.readline()
        file.write(b", and the other half")
"""


@contextlib.contextmanager
def writer(target):
    """Start a process that stops in the middle of a write until it is given a line."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", WRITER, target], text=True, **pipes) as process:
        assert process.stdout.readline() == "writing\n"
        yield process


def write(target, content=b"new"):
    with whole_file(target) as partial:
        partial.write_bytes(content)


def names(folder):
    return sorted(each.name for each in folder.iterdir())


def test_file_of_a_killed_process_is_removed_by_the_next_write(tmp_path):
    (tmp_path / "out").write_text("earlier")
    with writer(tmp_path / "out") as process:
        process.send_signal(signal.SIGKILL)
    (left,) = tmp_path.glob(".*.partial")
    assert left.read_bytes() == b"half of it"
    assert (tmp_path / "out").read_text() == "earlier"
    write(tmp_path / "another")
    assert names(tmp_path) == ["another", "out"]


def test_file_of_a_running_process_stays(tmp_path):
    with writer(tmp_path / "out") as process:
        write(tmp_path / "out")
        write(tmp_path / "another")
        assert len(names(tmp_path)) == 3
        process.communicate("go on\n")
    assert process.returncode == 0
    assert names(tmp_path) == ["another", "out"]
    assert (tmp_path / "out").read_bytes() == b"half of it, and the other half"


def test_files_with_other_names_and_links_stay(tmp_path):
    (tmp_path / "elsewhere").write_text("mine")
    kept = {"partial", ".mine.partial", f".{32 * 'a'}.partial2", f".{32 * 'b'}.partial", "elsewhere"}
    for name in kept - {"elsewhere"}:
        (tmp_path / name).symlink_to("elsewhere") if "b" in name else (tmp_path / name).write_text("mine")
    (tmp_path / f".{32 * 'a'}.partial").write_text("left")
    write(tmp_path / "out")
    assert set(names(tmp_path)) == kept | {"out"}
    assert (tmp_path / "elsewhere").read_text() == "mine"


def test_file_of_writers_at_once_is_whole_at_any_moment(tmp_path):
    contents = [bytes([number]) * 100_000 for number in range(4)]
    seen, target = set(), tmp_path / "out"
    write(target, contents[0])
    threads = [threading.Thread(target=lambda one=one: [write(target, one) for _ in range(20)]) for one in contents]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        seen.add(target.read_bytes())
    assert seen <= set(contents)
    assert names(tmp_path) == ["out"]


def test_file_is_synchronized_before_its_rename_and_the_folder_after(tmp_path, monkeypatch):
    told, fsync, replace = [], os.fsync, Path.replace

    def renamed(partial, target):
        told.append("renamed")
        return replace(partial, target)

    monkeypatch.setattr(os, "fsync", lambda file: (told.append(os.fstat(file).st_ino), fsync(file)))
    monkeypatch.setattr(Path, "replace", renamed)
    write(tmp_path / "out")
    assert told == [(tmp_path / "out").stat().st_ino, "renamed", tmp_path.stat().st_ino]


THINGS = {"link": lambda place: place.symlink_to("other"), "pipe": os.mkfifo, "folder": Path.mkdir}


@pytest.mark.parametrize("make", THINGS.values(), ids=THINGS)
def test_links_pipes_and_folders_are_not_replaced(tmp_path, monkeypatch, make):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "other").write_text("other")
    target = tmp_path / "out"
    with pytest.raises(ExportError, match="is there and is not a file"), whole_file(target) as partial:  # noqa: PT012
        partial.write_bytes(b"new")
        make(target)
    assert not target.is_file() or target.is_symlink()
    assert names(tmp_path) == ["other", "out"]
    assert (tmp_path / "other").read_text() == "other"


def test_files_are_written_but_not_removed_without_locks(tmp_path, monkeypatch):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    left = tmp_path / f".{32 * 'a'}.partial"
    left.write_text("whose ever it is")
    monkeypatch.setattr(fcntl, "flock", no_locks)
    write(tmp_path / "out")
    assert names(tmp_path) == [left.name, "out"]
