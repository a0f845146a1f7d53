"""Destinations of runs: a destination accepts only one run of one bundle over one source."""

import os
import shutil
import sys

import pyarrow.parquet as pq
import pytest
from batch_tables import assert_rows_equal, list_inodes, make_table, run_reference_loop, write_source
from small_bundle import alter_manifest, assert_one_line, run_command

from keras_attn_export import ExportError, InputError, predict


@pytest.fixture(scope="module")
def first_run(exported, tmp_path_factory):
    """A folder with a source, and a destination with one finished file of three."""
    folder = tmp_path_factory.mktemp("first")
    write_source(folder / "in", {f"{number}.parquet": 30 for number in range(3)})
    predict(exported, folder / "in", folder / "out", progress=False)
    for number in (1, 2):
        (folder / "out" / f"{number}.parquet").unlink()
    return folder


@pytest.fixture
def folders(first_run, tmp_path):
    """Copies of the source and the destination that a test may change."""
    return tuple(shutil.copytree(first_run / name, tmp_path / name) for name in ("in", "out"))


def assert_refused(match, bundle, source, target, error_type=InputError, **options):
    """Assert that a run is refused in one line, and that the destination stays unchanged."""
    old_inodes = list_inodes(target)
    with pytest.raises(error_type, match=match) as error:
        predict(bundle, source, target, progress=False, **options)
    assert "\n" not in str(error.value)
    assert list_inodes(target) == old_inodes


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
def test_destination_refuses_a_different_run(exported, folders, change, options, match):
    change(*folders)
    assert_refused(match, exported, *folders, **options)


def test_destination_refuses_another_bundle(bundle, folders):
    alter_manifest(bundle, model="another")
    assert_refused("holds a run with another bundle", bundle, *folders)


def test_run_resumes_after_both_folders_moved(exported, folders, tmp_path, monkeypatch):
    source, target = folders
    source.rename(tmp_path / "elsewhere")
    target.rename(tmp_path / "there")
    monkeypatch.chdir(tmp_path)
    assert predict(exported, "elsewhere/*.parquet", "there", progress=False).resumed == 1
    assert_rows_equal(tmp_path / "there", run_reference_loop(exported, tmp_path / "elsewhere"))


def test_run_resumes_with_repaired_and_new_files(exported, folders, tmp_path):
    source, target = folders
    pq.write_table(make_table(20, seed=99), source / "1.parquet")
    pq.write_table(make_table(20, seed=98), source / "new.parquet")
    result = predict(exported, source, target, progress=False)
    assert (result.resumed, result.rows) == (1, 70)
    assert_rows_equal(target, run_reference_loop(exported, source))


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no fcntl; CI runs Linux")
def test_second_run_to_a_destination_is_refused_during_the_first(exported, folders):
    source, target = folders
    row_counts = []

    def start_second_run(finished_rows, rows):
        if not row_counts:
            row_counts.append(finished_rows)
            assert_refused("Another run writes to", exported, source, target, error_type=ExportError)
            second = run_command(sys.executable, "-m", "keras_attn_export", "predict", exported, source, target)
            assert (second.returncode, second.stdout) == (1, "")
            assert_one_line(second.stderr, "error: Another run writes to")

    result = predict(exported, source, target, progress=start_second_run)
    assert (result.errors, result.resumed, row_counts) == (0, 1, [30])


def test_next_run_removes_the_partial_file_of_a_killed_run(exported, folders):
    source, target = folders
    partial_file = target / f".{'0' * 32}.partial"
    partial_file.touch()
    predict(exported, source, target, progress=False)
    assert not partial_file.exists()
