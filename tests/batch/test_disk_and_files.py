"""A full disk and broken files: one sentence, and nothing lost."""

import re
import resource
import shutil

import pyarrow.parquet as pq
import pytest
from batch_tables import (
    files_of,
    leftovers,
    make_table,
    own_files,
    plain_loop,
    read_errors,
    same_rows,
    write_source,
    written_files,
)
from bundles import flip_byte

from keras_attn_export import ExportError, predict


def predicted(bundle, source, target, **options):
    return predict(bundle, source, target, progress=False, **options)


@pytest.mark.slow
@pytest.mark.parametrize(("limit", "done"), [(None, {"part-0.parquet", "part-1.parquet"}), (10, set())])
def test_run_without_room_on_the_disk_keeps_done_parts(exported, tmp_path, limit, done):
    """The third part is larger than a file may be here; with room for 10 bytes, even the manifest is."""
    source = write_source(tmp_path / "in", {f"part-{n}.parquet": 200 if n == 2 else 20 for n in range(4)})
    predicted(exported, source, tmp_path / "whole")
    largest = max(file.stat().st_size for (file,) in written_files(tmp_path / "whole").values())
    before, target = resource.getrlimit(resource.RLIMIT_FSIZE), tmp_path / "out"
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit or largest // 2, before[1]))
    try:
        with pytest.raises(ExportError, match=r"^Cannot write .*: File too large") as caught:
            predicted(exported, source, target, workers=1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    written = files_of(target)
    assert (set(written), leftovers(target)) == (done, [])
    again = predicted(exported, source, target)
    assert (again.errors, again.resumed) == (0, len(done))
    assert {name: file for name, file in files_of(target).items() if name in written} == written
    same_rows(target, plain_loop(exported, source))


def other_columns(file):
    table = pq.read_table(file)
    pq.write_table(table.rename_columns([name.replace("keys", "clefs") for name in table.column_names]), file)


DAMAGES = {
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-100]), "cannot be read: "),
    "other columns": (other_columns, "has no column `keys`, an input of the model"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_broken_file_fails_alone_and_runs_once_mended(exported, tmp_path, damage, reason):
    source, target = tmp_path / "in", tmp_path / "out"
    write_source(source, {f"part-{number}.parquet": 3 for number in range(6)})
    oracle, file = plain_loop(exported, source), source / "part-1.parquet"
    shutil.copy(file, tmp_path / "kept")
    damage(file)
    done = predicted(exported, source, target)
    assert (done.rows, done.errors, done.parts) == (15, 1, 6)
    (error,) = read_errors(target)
    assert (error["part"], error["row"], error["key"]) == (file.name, None, None)
    assert re.match(reason, error["reason"])
    assert leftovers(target) == []
    same_rows(target, {name: rows for name, rows in oracle.items() if name != file.name})
    before = files_of(target)

    file.unlink()
    shutil.copy(tmp_path / "kept", file)
    other_columns(file)  # broken in another way
    again = predicted(exported, source, target)
    assert (again.rows, again.errors, again.resumed) == (0, 1, 5)
    shutil.copy(tmp_path / "kept", file)
    mended = predicted(exported, source, target)
    assert (mended.rows, mended.errors, mended.errors_file, mended.resumed) == (3, 0, None, 5)
    assert own_files(target) == ["lock", "manifest.json"]
    assert {name: place for name, place in files_of(target).items() if name in before} == before
    same_rows(target, oracle)


@pytest.mark.parametrize("window", [pytest.param(7, marks=pytest.mark.slow), 4096])
def test_flipped_bit_in_a_page_fails_the_rows_of_its_row_group(exported, tmp_path, monkeypatch, window):
    """Files with checksums of their pages show it."""
    monkeypatch.setattr("keras_attn_export._batch.run_parts.WINDOW_ROWS", window)
    source = tmp_path / "in"
    source.mkdir()
    for number in range(3):
        table = make_table(60, seed=number, first_id=60 * number)
        pq.write_table(table, source / f"part-{number}.parquet", write_page_checksum=True, row_group_size=20)
    oracle = plain_loop(exported, source)
    shutil.copy(source / "part-1.parquet", tmp_path / "kept")
    flip_byte(source / "part-1.parquet")  # the middle is among the values of the second row group
    done = predicted(exported, source, tmp_path / "out", key="id")
    errors = read_errors(tmp_path / "out")
    assert [(each["part"], each["row"]) for each in errors] == [("part-1.parquet", row) for row in range(20, 40)]
    assert all("cannot be read" in each["reason"] for each in errors)
    assert (done.rows, done.errors) == (160, 20)
    same_rows(tmp_path / "out", oracle, without=range(80, 100))

    shutil.copy(tmp_path / "kept", source / "part-1.parquet")
    mended = predicted(exported, source, tmp_path / "out", key="id")
    assert (mended.rows, mended.errors) == (60, 0)
    same_rows(tmp_path / "out", oracle)
    assert own_files(tmp_path / "out") == ["lock", "manifest.json"]
