"""Models, tables and folders that are not as the tests' own: nothing is lost, no wrong number comes out in silence."""

import datetime
import errno
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import EVERY_TWO, floats, run_table
from onnx_bundles import onnx_bundle

from keras_attn_export import InputError, predict
from keras_attn_export._batch import run_parts, windows
from keras_attn_export._standalone.verify import Spec

ONE = {"x": ("float32", ["batch", "time"])}
A_NUMBER = {"y": ("float32", ["batch"])}
SUM = "last = Constant <value = int64[1] {1}> ()\n y = ReduceSum <keepdims = 0> (x, last)"


def test_rows_that_are_no_multiple_run_at_the_next_one(tmp_path):
    bundle = onnx_bundle(tmp_path / "bundle", SUM, ONE, A_NUMBER, multiples={"time": 4})
    done, found, errors = run_table(bundle, pa.table({"x": floats([[1.0] * n for n in (3, 5, 7, 1)])}), tmp_path)
    assert (errors, done.exact_axes, found["y"]) == ([], (), [3, 5, 7, 1])


def test_null_rows_in_front_say_nothing(sums, tmp_path):
    for name, rows in {"a": [None] * 300, "b": [None] * 300, "c": [[1.0], [2.0, 3.0]], "d": [None]}.items():
        write(tmp_path / "in" / f"{name}.parquet", *rows)
    done = predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert (done.rows, done.errors, done.one_by_one, done.exact_axes) == (2, 601, False, ())


def test_another_source_of_the_same_size_and_statistics(tmp_path):
    """Ids: as many, of as many bits, with the same least and largest."""
    ids, file = ("int32", ["batch", 16]), tmp_path / "x.parquet"
    bundle = onnx_bundle(tmp_path / "bundle", "y = Add (ids, ids)", {"ids": ids}, {"y": ids})
    sizes = set()
    for seed in (1, 2):
        numbers = np.random.default_rng(seed).integers(0, 1000, (20000, 16)).astype("int32")
        pq.write_table(pa.table({"ids": list(numbers)}), file)
        sizes.add(file.stat().st_size)
        if seed == 1:
            predict(bundle, file, tmp_path / "out", progress=False)
    assert len(sizes) == 1, "sizes that differ would tell them apart"
    with pytest.raises(InputError, match=r"begun with another source"):
        predict(bundle, file, tmp_path / "out", progress=False)


@pytest.fixture
def sums(tmp_path):
    return onnx_bundle(tmp_path / "bundle", SUM, ONE, A_NUMBER)


def rows_of(folder):
    return sorted(value for file in folder.rglob("*.parquet") for value in pq.read_table(file).column("y").to_pylist())


def write(file, *rows):
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": floats(rows)}), file)


def test_linked_folders_are_read_and_circles_are_not(sums, tmp_path):
    write(tmp_path / "in" / "a.parquet", [1.0])
    write(tmp_path / "elsewhere" / "b.parquet", [2.0])
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "round").symlink_to(tmp_path / "in")
    predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert rows_of(tmp_path / "out") == [1, 2]


@pytest.mark.parametrize("pattern", ["*", "year=*", "**/**/*.parquet"])
def test_patterns_that_match_folders_or_files_twice(sums, tmp_path, pattern):
    write(tmp_path / "in" / "year=1" / "a.parquet", [1.0])
    write(tmp_path / "in" / "year=2" / "b.parquet", [2.0])
    done = predict(sums, f"{tmp_path}/in/{pattern}", tmp_path / "out", progress=False)
    assert (done.parts, rows_of(tmp_path / "out")) == (2, [1, 2])


@pytest.mark.parametrize(
    ("source", "target", "said"),
    [
        ("in/**/*.parquet", "in/out", "is where .* looks for files"),  # which would find what is written
        ("in/_x.parquet", "out", r"_x.parquet begins with `_` or `\.`"),  # which readers leave out
        ("shut", "out", "Cannot read .*locked: Permission denied"),
    ],
)
def test_sources_that_are_refused(sums, tmp_path, source, target, said, monkeypatch):
    def scandir(path, honest=os.scandir):  # root may read any folder
        if str(path).endswith("locked"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return honest(path)

    write(tmp_path / "in" / "a.parquet", [1.0])
    write(tmp_path / "in" / "_x.parquet", [1.0])
    write(tmp_path / "shut" / "a.parquet", [1.0])
    (tmp_path / "shut" / "locked").mkdir()
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(InputError, match=said):
        predict(sums, f"{tmp_path}/{source}", tmp_path / target, progress=False)


def test_an_output_beyond_the_limit_is_a_row_of_errors(tmp_path, monkeypatch):
    nodes = f"{EVERY_TWO}\n y = Identity (products)\n z = Neg (products)"
    outputs = dict.fromkeys("yz", ("float32", ["batch", "time", "time"]))
    bundle = onnx_bundle(tmp_path / "bundle", nodes, ONE, outputs)
    table = pa.table({"x": floats([np.ones(n, "float32") for n in (2, 200_000, 1)])})
    _, found, (error,) = run_table(bundle, table, tmp_path, limit_memory="100M")
    assert [np.shape(y) for y in found["y"]] == [(2, 2), (1, 1)]
    assert (error["row"], error["reason"]) == (1, "has an output of 152,588 MiB, and 100 MiB are the limit")
    monkeypatch.setattr(run_parts, "MOST_BYTES", 2**20)  # of a column, and both together have more
    _, found, errors = run_table(bundle, pa.table({"x": floats([np.ones(400, "float32")])}), tmp_path / "two")
    assert (np.shape(found["z"]), errors) == ((1, 400, 400), [])


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (pa.array([1, 2, 3], pa.timestamp("ns")), "1970-01-01 00:00:00.000000002"),
        (pa.array([1, 2, 3], pa.duration("ns")), "2"),
        (pa.array([1, None, 3]), None),
        (pa.array([datetime.date(2026, 1, day) for day in (1, 2, 3)]), "2026-01-02"),
        (pa.array([[1], [2], [3]]), "[2]"),
        (pa.array(["a", "b", "c"]).dictionary_encode(), "b"),
    ],
    ids=lambda value: str(getattr(value, "type", "")),
)
def test_a_key_of_any_type(sums, tmp_path, keys, text):
    table = pa.table({"x": floats([[1.0], None, [3.0]]), "key": keys})
    _, found, (error,) = run_table(sums, table, tmp_path, columns=["y"], key="key")
    assert found == {"y": [1, 3]}
    assert error["key"] == text or (text is not None and text in error["key"])


def test_columns_of_any_type_are_passed_on_with_a_bad_row_between(sums, tmp_path):
    columns = {
        "view": pa.array(["a", "b", "c"], pa.string_view()),
        "bytes": pa.array([b"a", None, b"\xff"], pa.binary_view()),
        "struct": pa.array([{"a": 1}, {"a": None}, None]),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
    _, found, errors = run_table(sums, pa.table({"x": floats([[1.0], None, [3.0]]), **columns}), tmp_path)
    assert len(errors) == 1
    assert {name: found[name] for name in columns} == {
        name: [column[0].as_py(), column[2].as_py()] for name, column in columns.items()
    }


def test_a_part_broken_twice_in_two_ways_is_still_mended(sums, tmp_path):
    source, target = tmp_path / "in", tmp_path / "out"
    write(source / "a.parquet", [1.0], [2.0])
    write(source / "b.parquet", [3.0])
    good = (source / "a.parquet").read_bytes()
    (source / "a.parquet").write_bytes(good[:50])
    assert predict(sums, source, target, progress=False).errors == 1
    pq.write_table(pa.table({"z": [1]}), source / "a.parquet")
    assert predict(sums, source, target, progress=False).errors == 1
    (source / "a.parquet").write_bytes(good)
    done = predict(sums, source, target, progress=False)
    assert (done.errors, done.errors_file, rows_of(target)) == (0, None, [1, 2, 3])


@pytest.fixture
def seen(monkeypatch):
    """Return a list of how many rows each window has, which fills while something runs."""
    found, honest = [], run_parts.read_window
    monkeypatch.setattr(run_parts, "read_window", lambda batch, *rest: found.append(len(batch)) or honest(batch, *rest))
    return found


def test_small_row_groups_run_together(sums, tmp_path, seen):
    table = pa.table({"x": floats([[float(n)] for n in range(1000)])})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10)
    predict(sums, tmp_path / "x.parquet", tmp_path / "out", progress=False)
    assert seen == [1000]
    assert pq.read_table(tmp_path / "out" / "x.parquet").column("y").to_pylist() == list(range(1000))


@pytest.mark.parametrize("window", [7, 25, 4096])
def test_a_row_group_that_cannot_be_read_among_small_ones(sums, tmp_path, monkeypatch, window):
    file = tmp_path / "x.parquet"
    table = pa.table({"x": floats([[float(n)] for n in range(100)])})
    pq.write_table(table, file, row_group_size=10, compression="none", use_dictionary=False, write_page_checksum=True)
    column = pq.read_metadata(file).row_group(4).column(0)
    content = bytearray(file.read_bytes())
    content[column.data_page_offset + column.total_compressed_size - 3] ^= 0xFF
    file.write_bytes(content)
    monkeypatch.setattr(run_parts, "WINDOW_ROWS", window)
    done = predict(sums, file, tmp_path / "out", progress=False)
    found = pq.read_table(tmp_path / "out" / "x.parquet").column("y").to_pylist()
    bad = pq.read_table(done.errors_file).column("row").to_pylist()
    assert (found, bad) == ([n for n in range(100) if n // 10 != 4], list(range(40, 50)))


def test_windows_go_by_what_rows_take_in_memory(sums, tmp_path, monkeypatch, seen):
    """Numbers that are all alike are packed to nothing, and are as large as any in memory."""
    monkeypatch.setattr(run_parts, "WINDOW_BYTES", 2**20)
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2**20)
    done, _, _ = run_table(sums, pa.table({"x": floats([np.zeros(10_000, "float32")] * 200)}), tmp_path)
    assert done.rows == 200
    assert 20 <= max(seen) <= 26


def test_an_output_as_long_as_only_the_model_knows_counts_as_the_row(tmp_path):
    sizes = np.array([[3], [5]])
    ragged = windows.Ragged(np.zeros(8, "float32"), np.array([0, 3, 8]), sizes)
    window = windows.Window(0, 2, {"x": ragged}, {"time": sizes[:, 0]}, {})
    specs = [Spec("y", "float32", ("batch", "other", 2))]
    assert windows.output_bytes(specs, window).tolist() == [[24, 40], [24, 40]]
