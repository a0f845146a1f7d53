"""Full disks, folders that cannot be written, and several exports to one place: one whole bundle, and a sentence."""

import contextlib
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from bundles import small_model
from killing import make_bundle, stage, whole

from keras_attn_export import BundleError, load_bundle
from keras_attn_export._bundle.atomic_folder import staged_folder

SUPPORT = Path(__file__).parents[1] / "support"


def script(code, *arguments, **options):
    """Start Python on some code, with the tests' modules at hand."""
    environment = {**os.environ, "PYTHONPATH": str(SUPPORT), "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        **options,
    )


def said(process, timeout=120):
    """Return the lines of JSON that a process prints, once it has ended well."""
    output, _ = process.communicate(timeout=timeout)
    assert process.returncode == 0, output
    return [json.loads(line) for line in output.splitlines()]


# ------------------------------------------------------ several at one place

WRITER = """
import json, sys
from pathlib import Path
from killing import stage
from keras_attn_export import BundleError
target, source, overwrite, times = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3] == "True", int(sys.argv[4])
print("null", flush=True)
sys.stdin.readline()
done, errors = 0, []
for _ in range(times):
    try:
        stage(source, target, overwrite=overwrite)
        done += 1
    except BundleError as error:
        errors.append(str(error))
print(json.dumps([done, errors]))
"""


def race(target, sources, *, overwrite, times, meanwhile=lambda: None):
    """Let a process for each source put it in place again and again; return how often each did, and what it said."""
    writers = [script(WRITER, target, source, overwrite, times, stdin=subprocess.PIPE) for source in sources]
    for writer in writers:
        assert writer.stdout.readline() == "null\n"
    for writer in writers:
        writer.stdin.write("go\n")
        writer.stdin.flush()
    while any(writer.poll() is None for writer in writers):
        meanwhile()
    results = [said(writer)[0] for writer in writers]
    for writer in writers:
        writer.stdin.close()
    return results


@pytest.fixture
def sources(tmp_path):
    return [make_bundle(tmp_path / "sources" / name, name) for name in "abcd"]


@pytest.fixture
def target(tmp_path):
    (tmp_path / "place").mkdir()
    return tmp_path / "place" / "bundle"


def test_who_overwrites_last_wins_and_readers_always_see_a_whole_bundle(target, sources):
    stage(sources[0], target)
    seen = []

    def read():
        seen.append(whole(target, set("abcd")))
        time.sleep(0.001)

    results = race(target, sources, overwrite=True, times=60, meanwhile=read)
    assert results == [[60, []]] * 4
    assert len(seen) > 20
    assert len(set(seen)) > 1
    assert os.listdir(target.parent) == ["bundle"]


def test_without_overwriting_one_wins_and_the_others_are_told(target, sources):
    for _ in range(2):
        results = race(target, sources, overwrite=False, times=1)
        assert sorted(done for done, _ in results) == [0, 0, 0, 1]
        for done, errors in results:
            assert done or "already exists" in errors[0] or "another export put a bundle there meanwhile" in errors[0]
        assert whole(target, set("abcd"))
        assert os.listdir(target.parent) == ["bundle"]
        subprocess.run(["rm", "-r", str(target)], check=True)


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_bundle_that_comes_at_the_last_moment(target, sources, monkeypatch, overwrite):
    rename = Path.rename

    def too_late(self, to):
        monkeypatch.undo()
        stage(sources[1], target)
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", too_late)
    if overwrite:
        stage(sources[0], target)
    else:
        with pytest.raises(BundleError, match="another export put a bundle there meanwhile"):
            stage(sources[0], target, overwrite=False)
    assert whole(target, {"a" if overwrite else "b"})
    assert os.listdir(target.parent) == ["bundle"]


@pytest.mark.out_of_turn
def test_two_real_exports_at_once(target, tmp_path):
    small_model().save(tmp_path / "model.keras")
    command = [sys.executable, "-m", "keras_attn_export", "export", str(tmp_path / "model.keras"), str(target)]
    both = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [process.communicate(timeout=120)[1] for process in both]
    assert sorted(process.returncode for process in both) == [0, 1]
    refused = errors[[process.returncode for process in both].index(1)]
    assert "already exists" in refused or "another export put a bundle there meanwhile" in refused
    assert load_bundle(target).report.passed
    assert os.listdir(target.parent) == ["bundle"]


# ------------------------------------------------------------------ full disks


@contextlib.contextmanager
def small_disk(folder, kilobytes):
    """Mount a disk of this size at a folder."""
    folder.mkdir(exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(command, stderr=subprocess.DEVNULL, check=False).returncode != 0:
        pytest.skip("needs to mount a disk; the tests of file sizes below show the same without")
    try:
        yield
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextlib.contextmanager
def files_no_larger_than(size):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_full_disk(tmp_path, sources):
    with small_disk(tmp_path / "disk", 256):
        target = tmp_path / "disk" / "bundle"
        stage(sources[0], target)
        with pytest.raises(BundleError, match=r"Cannot write .*bundle: No space left on device\."):
            for _ in stage_endlessly(target):
                pass
        assert whole(target, {"a"})
        assert os.listdir(target.parent) == ["bundle"]


def stage_endlessly(target):
    with staged_folder(target, overwrite=True) as folder:
        for number in range(10**6):
            (folder / str(number)).write_bytes(bytes(4096))
            yield number


def test_files_that_may_not_grow(target, sources):
    stage(sources[0], target)
    with files_no_larger_than(100), pytest.raises(BundleError, match=r"Cannot write .*: File too large\."):
        stage(sources[1], target)
    assert whole(target, {"a"})
    assert os.listdir(target.parent) == ["bundle"]


def test_an_error_with_a_full_disk_behind_it(target):
    def fail():
        with staged_folder(target, overwrite=False):
            try:
                raise RuntimeError("file.tmp; No space left on device")  # as TensorFlow puts it
            except RuntimeError as error:
                raise ValueError("the model cannot be traced") from error

    with pytest.raises(BundleError, match=r"Cannot write .*bundle: No space left on device\."):
        fail()


def test_other_errors_are_left_alone(target):
    with pytest.raises(FileNotFoundError), staged_folder(target, overwrite=False):
        (target.parent / "nowhere" / "file").write_text("x")
    assert not list(target.parent.iterdir())


def test_a_staging_folder_that_someone_removes(target):
    def fail():
        with staged_folder(target, overwrite=False) as folder:
            subprocess.run(["rm", "-r", str(folder.parent)], check=True)
            (folder / "manifest.json").write_text("x")

    with pytest.raises(BundleError, match="the folder in which it was being made has been removed"):
        fail()
    assert not list(target.parent.iterdir())


EXPORTS = """
import json, os, resource, subprocess, sys
from pathlib import Path
import keras, tf2onnx
from bundles import small_model
from keras_attn_export import ExportError, export_model
model, place = small_model(), Path(sys.argv[1])
hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
for kind, kilobytes in json.loads(sys.argv[2]):
    if kind == "disk":
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(place)], check=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (kilobytes * 1024, hard))
    try:
        export_model(model, place / "bundle", progress=False)
        result = "done"
    except ExportError as error:
        result = [type(error).__name__, str(error)]
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    print(json.dumps([kind, result, os.listdir(place)]), flush=True)
    if kind == "disk":
        subprocess.run(["umount", str(place)], check=True)
"""
SAID = {"disk": "No space left on device.", "file": "File too large."}


@pytest.mark.out_of_turn
def test_real_exports_without_space(tmp_path):
    place = tmp_path / "place"
    with small_disk(place, 16):
        pass
    # what does not fit is, in turn: golden cases, weights, graph, the results of the fresh process, the ONNX file
    sizes = [("disk", size) for size in (16, 60, 110, 160, 210)] + [("file", size) for size in (1, 8, 16)]
    results = said(script(EXPORTS, place, json.dumps(sizes), stderr=subprocess.DEVNULL), timeout=240)
    for kind, result, left in results:
        assert left == (["bundle"] if result == "done" else [])
        assert result == "done" or (result[0] == "BundleError" and result[1].endswith(SAID[kind])), result
    for kind in SAID:
        assert sum(found == kind and result != "done" for found, result, _ in results) >= 3


# ------------------------------------------------------- folders that stay as they are

UNPRIVILEGED = """
import json, os, sys
from pathlib import Path
from killing import stage
from keras_attn_export import BundleError
if os.geteuid() == 0:
    os.setgroups([])
    os.setuid(65534)
try:
    stage(Path(sys.argv[1]), Path(sys.argv[2]))
    print(json.dumps("done"))
except BundleError as error:
    print(json.dumps(str(error)))
"""


@pytest.mark.smoke
def test_a_read_only_folder(tmp_path, sources):
    with contextlib.ExitStack() as undo:
        place = Path("/tmp") / f"keras-attn-read-only-{os.getpid()}"
        undo.callback(lambda: subprocess.run(["rm", "-rf", str(place)], check=True))
        place.mkdir()
        source = make_bundle(place / "source", "a")
        (place / "parent").mkdir(mode=0o555)
        (place / "parent").chmod(0o555)
        target = place / "parent" / "bundle"
        assert said(script(UNPRIVILEGED, source, target)) == [f"Cannot write beside {target}: Permission denied."]
        deeper = target / "deeper"
        assert said(script(UNPRIVILEGED, source, deeper)) == [f"Cannot write beside {deeper}: Permission denied."]
        assert os.listdir(place / "parent") == []
        (place / "parent").chmod(0o755)


def test_a_link_that_leads_nowhere(target):
    target.symlink_to("nowhere")
    for overwrite in (False, True):
        with pytest.raises(BundleError, match=r"bundle is a symbolic link that leads nowhere"):
            stage(target.parent, target, overwrite=overwrite)
    assert os.readlink(target) == "nowhere"


def test_a_link_to_a_bundle_is_replaced_and_what_it_leads_to_stays(target, sources):
    target.symlink_to(sources[0])
    stage(sources[1], target, overwrite=True)
    assert whole(target, {"b"})
    assert not target.is_symlink()
    assert whole(sources[0], {"a"})
