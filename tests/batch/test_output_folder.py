"""A destination belongs to one run of one bundle over one source: other runs are refused."""

import os
import shutil
import sys

import pyarrow.parquet as pq
import pytest
from batch_tables import assert_rows_equal, files_of, make_table, plain_loop, write_source
from small_bundle import alter_manifest, assert_one_line, run_command

from keras_attn_export import ExportError, InputError, predict


@pytest.fixture(scope="module")
def first_run(exported, tmp_path_factory):
    """Return a folder with a source, and with a destination where the first of three files is finished."""
    folder = tmp_path_factory.mktemp("first")
    write_source(folder / "in", {f"{number}.parquet": 30 for number in range(3)})
    predict(exported, folder / "in", folder / "out", progress=False)
    for number in (1, 2):
        (folder / "out" / f"{number}.parquet").unlink()
    return folder


@pytest.fixture
def folders(first_run, tmp_path):
    """Return copies of the source and the destination that a test may change."""
    return tuple(shutil.copytree(first_run / name, tmp_path / name) for name in ("in", "out"))


def refuse(match, bundle, source, target, kind=InputError, **options):
    """Check that a run is refused in one line, and leaves the destination unchanged."""
    before = files_of(target)
    with pytest.raises(kind, match=match) as caught:
        predict(bundle, source, target, progress=False, **options)
    assert "\n" not in str(caught.value)
    assert files_of(target) == before


def write_manifest(text):
    return lambda source, target: (target / "_predict" / "manifest.json").write_text(text)


def write_other_files(source, target):
    shutil.rmtree(target)
    target.mkdir()
    (target / "thesis.tex").write_text("years of work")


REFUSALS = {  # change, options, message
    "changed file": (
        lambda source, target: pq.write_table(make_table(30, seed=99), source / "0.parquet"),
        {},
        "holds outputs of another source: `0.parquet` has changed",
    ),
    "touched file": (lambda source, target: os.utime(source / "0.parquet"), {}, "`0.parquet` has changed"),
    "removed file": (lambda source, target: (source / "0.parquet").unlink(), {}, "`0.parquet` is no longer in"),
    "other outputs": (lambda *_: None, {"outputs": ["context"]}, "holds a run with another outputs"),
    "another key": (lambda *_: None, {"key": "id"}, "holds a run with another key"),
    "no resume": (lambda *_: None, {"resume": False}, "holds a run, and `resume` is off"),
    "other files": (write_other_files, {}, "contains other files"),
    "damaged manifest": (write_manifest("{"), {}, r"manifest\.json is damaged"),
    "another version": (write_manifest('{"schema_version": 1}'), {}, "holds a run with another schema_version: 1"),
}


@pytest.mark.parametrize(("change", "options", "match"), REFUSALS.values(), ids=REFUSALS)
def test_destination_refuses_a_run_that_differs(exported, folders, change, options, match):
    change(*folders)
    refuse(match, exported, *folders, **options)


def test_destination_refuses_another_bundle(bundle, folders):
    alter_manifest(bundle, model="another")
    refuse("holds a run with another bundle", bundle, *folders)


def test_run_resumes_after_both_folders_moved(exported, folders, tmp_path, monkeypatch):
    source, target = folders
    source.rename(tmp_path / "elsewhere")
    target.rename(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    assert predict(exported, "elsewhere/*.parquet", "there", progress=False).resumed == 1
    assert_rows_equal(tmp_path / "there", plain_loop(exported, tmp_path / "elsewhere"))


def test_run_resumes_with_repaired_and_new_files(exported, folders, tmp_path):
    source, target = folders
    pq.write_table(make_table(20, seed=99), source / "1.parquet")
    pq.write_table(make_table(20, seed=98), source / "new.parquet")
    done = predict(exported, source, target, progress=False)
    assert (done.resumed, done.rows) == (1, 70)
    assert_rows_equal(target, plain_loop(exported, source))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fcntl; CI runs Linux")
def test_second_run_to_a_destination_is_refused_meanwhile(exported, folders):
    source, target = folders
    done_rows = []

    def meanwhile(done, rows):
        if not done_rows:
            done_rows.append(done)
            refuse("Another run writes to", exported, source, target, kind=ExportError)
            other = run_command(sys.executable, "-m", "keras_attn_export", "predict", exported, source, target)
            assert (other.returncode, other.stdout) == (1, "")
            assert_one_line(other.stderr, "error: Another run writes to")

    done = predict(exported, source, target, progress=meanwhile)
    assert (done.errors, done.resumed, done_rows) == (0, 1, [30])


def test_next_run_removes_the_partial_file_of_a_killed_run(exported, folders):
    source, target = folders
    left = target / f".{'0' * 32}.partial"
    left.touch()
    predict(exported, source, target, progress=False)
    assert not left.exists()
