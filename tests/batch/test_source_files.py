"""Files of a source: folders, patterns, damaged files, and sources that are refused."""

import os
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import list_inodes, read_errors, to_lists

from keras_attn_export import InputError, predict


def write_table(file, *rows, **columns):
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": to_lists(rows), **columns}), file)
    return file


@pytest.mark.parametrize("pattern", ["", "/year=*"])
def test_files_below_a_folder_are_read_once(sums, tmp_path, pattern):
    write_table(tmp_path / "in" / "year=1" / "a.parquet", [1.0])
    write_table(tmp_path / "in" / "year=2" / "b.parquet", [2.0])
    write_table(tmp_path / "in" / "_ignored" / "c.parquet", [3.0])
    write_table(tmp_path / "in" / "year=2" / ".d.parquet", [4.0])
    (tmp_path / "in" / "year=1" / "README.md").write_text("no table")
    source = tmp_path / "in" if not pattern else f"{tmp_path}/in{pattern}"
    predict(sums, source, tmp_path / "out", progress=False)
    actual = {name: pq.read_table(tmp_path / "out" / name, partitioning=None) for name in list_inodes(tmp_path / "out")}
    assert {name: table["y"].to_pylist() for name, table in actual.items()} == {
        "year=1/a.parquet": [1],
        "year=2/b.parquet": [2],
    }


def truncate(file):
    file.write_bytes(file.read_bytes()[:-100])


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (truncate, "cannot be read: "),
        (lambda file: write_table(file, [1.0], y=[1]), "has a column `y`, which is also the name of an output"),
        (lambda file: pq.write_table(pa.table({"z": [1]}), file), "has no column `x`, an input of the model"),
        (lambda file: pq.write_table(pa.table({"x": [1]}), file), "column `x` must hold lists of float32"),
    ],
)
def test_unreadable_file_is_one_error_and_runs_once_repaired(sums, tmp_path, damage, reason):
    file = write_table(tmp_path / "in" / "a.parquet", [1.0], [2.0])
    write_table(tmp_path / "in" / "b.parquet", [3.0])
    damage(file)
    for rows in (1, 0):
        result = predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
        assert (result.rows, result.errors) == (rows, 1)
        (error,) = read_errors(tmp_path / "out")
        assert (error["file"], error["row"]) == ("a.parquet", None)
        assert error["reason"].startswith(reason)
    write_table(file, [1.0], [2.0])
    result = predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert (result.rows, result.errors, result.errors_file, result.resumed) == (2, 0, None, 1)
    assert not (tmp_path / "out" / "_predict" / "errors.parquet").exists()


def test_file_with_a_wrong_checksum_is_not_written(sums, tmp_path):
    file = write_table(tmp_path / "in" / "a.parquet", *[[float(n)] for n in range(5000)])
    pq.write_table(pq.read_table(file), file, write_page_checksum=True, compression="none", use_dictionary=False)
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    write_table(tmp_path / "in" / "b.parquet", [3.0])
    result = predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert (result.rows, result.errors) == (1, 1)
    assert "CRC" in read_errors(tmp_path / "out")[0]["reason"]
    assert not (tmp_path / "out" / "a.parquet").exists()


@pytest.mark.slow
def test_files_with_a_changed_byte_do_not_stop_the_run(sums, tmp_path, random_seed):
    rng = random.Random(random_seed)
    content = write_table(tmp_path / "in" / "good.parquet", *[[1.0, 2.0]] * 3).read_bytes()
    for number in range(100):
        altered_content = bytearray(content)
        altered_content[rng.randrange(len(content))] ^= rng.randrange(1, 256)
        (tmp_path / "in" / f"{number}.parquet").write_bytes(altered_content)
    result = predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert (result.parts, result.errors > 30) == (101, True)
    assert pq.read_table(tmp_path / "out" / "good.parquet")["y"].to_pylist() == [3, 3, 3]


def test_name_that_is_not_utf_8_is_an_error(sums, tmp_path):
    write_table(tmp_path / "in" / "a.parquet", [1.0])
    (tmp_path / "in" / os.fsdecode(b"\xff.parquet")).write_bytes(b"no table")
    assert predict(sums, tmp_path / "in", tmp_path / "out", progress=False).errors == 1
    assert read_errors(tmp_path / "out")[0]["file"] == "\\udcff.parquet"


@pytest.mark.parametrize(("source", "target"), [("in", "in/out"), ("in", "."), ("in", "in"), ("in/a.parquet", "in")])
def test_destination_that_overlaps_the_source_is_refused(sums, tmp_path, source, target):
    write_table(tmp_path / "in" / "a.parquet", [1.0])
    with pytest.raises(InputError, match="overlap"):
        predict(sums, tmp_path / source, tmp_path / target, progress=False)


def test_error_tables_of_earlier_runs_are_not_read(sums, tmp_path):
    write_table(tmp_path / "in" / "a" / "x.parquet", [1.0])
    write_table(tmp_path / "in" / "_predict" / "errors.parquet", [2.0])
    assert predict(sums, tmp_path / "in" / "*" / "*.parquet", tmp_path / "out", progress=False).parts == 1


def test_names_of_outputs_stay_when_a_pattern_matches_more(sums, tmp_path):
    pattern = tmp_path / "in" / "*" / "x.parquet"
    write_table(tmp_path / "in" / "january" / "x.parquet", [1.0])
    predict(sums, pattern, tmp_path / "out", progress=False)
    write_table(tmp_path / "in" / "february" / "x.parquet", [2.0])
    assert predict(sums, pattern, tmp_path / "out", progress=False).resumed == 1
    assert (tmp_path / "out" / "february" / "x.parquet").is_file()


def test_empty_source_is_refused(sums, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_table(tmp_path / "x.parquet", [1.0])
    with pytest.raises(InputError, match="`source` must be a path or a pattern"):
        predict(sums, "", tmp_path / "out", progress=False)


def test_broken_link_is_an_error_of_its_file(sums, tmp_path):
    write_table(tmp_path / "in" / "a.parquet", [1.0])
    (tmp_path / "in" / "b.parquet").symlink_to("nowhere")
    result = predict(sums, tmp_path / "in" / "*.parquet", tmp_path / "out", progress=False)
    assert (result.rows, result.errors) == (1, 1)


def test_progress_receives_finished_and_all_rows(sums, tmp_path):
    for name in "ab":
        write_table(tmp_path / "in" / f"{name}.parquet", [1.0], [2.0])
    calls = []
    predict(sums, tmp_path / "in", tmp_path / "out", progress=lambda *counts: calls.append(counts))
    assert (calls[0], calls[-1]) == ((0, 4), (4, 4))
    assert calls == sorted(calls)
