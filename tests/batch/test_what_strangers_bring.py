"""Models, tables and folders that are not as the tests' own: nothing is lost, no wrong number comes out in silence."""

import datetime
import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from onnx_bundles import onnx_bundle

from keras_attn_export import ExportError, InputError, predict
from keras_attn_export._batch import run_parts, windows

ONE = {"x": ("float32", ["batch", "time"])}
A_NUMBER = {"y": ("float32", ["batch"])}
LARGEST = "y = ReduceMax <axes = [1], keepdims = 0> (x)"
SUM = "last = Constant <value = int64[1] {1}> ()\n y = ReduceSum <keepdims = 0> (x, last)"


def floats(rows):
    return pa.array(rows, pa.list_(pa.float32()))


def run(bundle, table, folder, **options):
    pq.write_table(table, folder / "x.parquet")
    done = predict(bundle, folder / "x.parquet", folder / "out", progress=False, **options)
    return done, pq.read_table(folder / "out" / "x.parquet")


def test_padding_that_matters_for_other_numbers_than_those_tried(tmp_path):
    """A largest number minds zeros only where all are negative: those of the first rows are positive."""
    bundle = onnx_bundle(tmp_path / "bundle", LARGEST, ONE, A_NUMBER)
    rows = [[float(1 + n % 5)] * (1 + n % 7) for n in range(400)] + [[-3.0, -4.0], [-5.0], [-1.0, -2.0, -3.0]]
    done, table = run(bundle, pa.table({"x": floats(rows)}), tmp_path)
    assert done.exact_axes == ("time",)
    assert table.column("y").to_pylist() == [max(row) for row in rows]


# The sum of a row, and of those longer than 64 steps what stands at their ends
LATE = """
    last = Constant <value = int64[1] {1}> ()
    sums = ReduceSum <keepdims = 0> (x, last)
    sizes = Shape (x)
    one = Constant <value = int64 {1}> ()
    long = Gather <axis = 0> (sizes, one)
    many = Constant <value = int64 {64}> ()
    beyond = Greater (long, many)
    at_end = Constant <value = int64 {-1}> ()
    final = Gather <axis = 1> (x, at_end)
    more = Add (sums, final)
    y = Where (beyond, more, sums)
"""


def test_padding_that_matters_for_rows_that_were_not_tried(tmp_path, monkeypatch):
    """No row that is tried is long enough to show it; of each window, one is run again by itself."""
    monkeypatch.setattr(run_parts, "WINDOW_ROWS", 256)
    bundle = onnx_bundle(tmp_path / "bundle", LATE, ONE, A_NUMBER)
    rng = np.random.default_rng(0)
    short = [np.ones(rng.integers(1, 20), "float32") for _ in range(256)]
    long = [np.ones(rng.integers(65, 120), "float32") for _ in range(2000)]
    table = pa.table({"x": floats([*short, *long, *short])})
    with pytest.raises(
        ExportError, match=r"^Row \d+ gives another `y` among other rows than by itself, .* size of 1\.$"
    ):
        run(bundle, table, tmp_path)
    assert not (tmp_path / "out" / "x.parquet").exists()
    pq.write_table(table, tmp_path / "x.parquet")
    done = predict(bundle, tmp_path / "x.parquet", tmp_path / "other", batch_size=1, progress=False)
    found = pq.read_table(tmp_path / "other" / "x.parquet").column("y").to_pylist()
    assert done.errors == 0
    assert found == [len(row) + (len(row) > 64) for row in [*short, *long, *short]]


def test_a_small_output_beside_a_large_one(tmp_path):
    nodes = """
        mean = ReduceMean <axes = [1], keepdims = 1> (x)
        last = Constant <value = int64[1] {1}> ()
        none = Sub (mean, mean)
        much = Constant <value = float[1] {250000}> ()
        large = Add (none, much)
        y = Concat <axis = 1> (large, mean)
    """
    bundle = onnx_bundle(tmp_path / "bundle", nodes, ONE, {"y": ("float32", ["batch", 2])})
    rows = [[float(n)] * (1 + n % 9) for n in range(1, 60)]
    done, table = run(bundle, pa.table({"x": floats(rows)}), tmp_path)
    assert done.exact_axes == ("time",)
    np.testing.assert_allclose([y[1] for y in table.column("y").to_pylist()], np.arange(1, 60), rtol=1e-6)


@pytest.mark.parametrize(
    ("nodes", "dtype"),
    [
        ("top = ReduceMax <axes = [0], keepdims = 1> (x)\n y = Sub (top, x)", "int32"),
        ("top = ReduceMax <axes = [0], keepdims = 1> (x)\n y = Div (x, top)", "float32"),
        ("low = ReduceMin <axes = [0], keepdims = 1> (x)\n y = Sub (x, low)", "float32"),
    ],
)
def test_rows_that_are_seen_against_those_beside_them(tmp_path, nodes, dtype):
    bundle = onnx_bundle(tmp_path / "bundle", nodes, {"x": (dtype, ["batch"])}, {"y": (dtype, ["batch"])})
    numbers = np.array([4, 8, 1, 6, 2], dtype)
    done, table = run(bundle, pa.table({"x": numbers}), tmp_path)
    assert done.one_by_one
    assert table.column("y").to_pylist() == ([1.0] * 5 if "Div" in nodes else [0] * 5)


def test_rows_that_are_no_multiple_run_at_the_next_one(tmp_path):
    bundle = onnx_bundle(tmp_path / "bundle", SUM, ONE, A_NUMBER, multiples={"time": 4})
    rows = [[1.0] * n for n in (3, 5, 7, 1)]
    done, table = run(bundle, pa.table({"x": floats(rows)}), tmp_path)
    assert (done.errors, done.exact_axes, table.column("y").to_pylist()) == (0, (), [3, 5, 7, 1])


def test_null_rows_in_front_say_nothing(tmp_path):
    bundle = onnx_bundle(tmp_path / "bundle", SUM, ONE, A_NUMBER)
    (tmp_path / "in").mkdir()
    for name, rows in {"a": [None] * 300, "b": [None] * 300, "c": [[1.0], [2.0, 3.0]], "d": [None]}.items():
        pq.write_table(pa.table({"x": floats(rows)}), tmp_path / "in" / f"{name}.parquet")
    done = predict(bundle, tmp_path / "in", tmp_path / "out", progress=False)
    assert (done.rows, done.errors, done.one_by_one, done.exact_axes) == (2, 601, False, ())


def test_another_source_of_the_same_size_and_statistics(tmp_path):
    """Ids: as many, of as many bits, with the same least and largest."""
    bundle = onnx_bundle(
        tmp_path / "bundle", "y = Add (ids, ids)", {"ids": ("int32", ["batch", 16])}, {"y": ("int32", ["batch", 16])}
    )

    def write(seed):
        ids = np.random.default_rng(seed).integers(0, 1000, (20000, 16)).astype("int32")
        pq.write_table(pa.table({"ids": list(ids)}), tmp_path / "x.parquet")
        return (tmp_path / "x.parquet").stat().st_size

    assert write(1) == write(2), "sizes that differ would tell them apart"
    write(1)
    predict(bundle, tmp_path / "x.parquet", tmp_path / "out", progress=False)
    write(2)
    with pytest.raises(InputError, match=r"begun with another source"):
        predict(bundle, tmp_path / "x.parquet", tmp_path / "out", progress=False)


@pytest.fixture
def sums(tmp_path):
    return onnx_bundle(tmp_path / "bundle", SUM, ONE, A_NUMBER)


def rows_of(folder):
    return sorted(value for file in folder.rglob("*.parquet") for value in pq.read_table(file).column("y").to_pylist())


def write(file, *numbers):
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": floats([[number] for number in numbers])}), file)


def test_linked_folders_are_read_and_circles_are_not(sums, tmp_path):
    write(tmp_path / "in" / "a.parquet", 1.0)
    write(tmp_path / "elsewhere" / "b.parquet", 2.0)
    (tmp_path / "in" / "linked").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "in" / "round").symlink_to(tmp_path / "in")
    predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert rows_of(tmp_path / "out") == [1, 2]


@pytest.mark.parametrize("pattern", ["*", "year=*", "**/**/*.parquet"])
def test_patterns_that_match_folders_or_files_twice(sums, tmp_path, pattern):
    write(tmp_path / "in" / "year=1" / "a.parquet", 1.0)
    write(tmp_path / "in" / "year=2" / "b.parquet", 2.0)
    done = predict(sums, f"{tmp_path}/in/{pattern}", tmp_path / "out", progress=False)
    assert (done.parts, rows_of(tmp_path / "out")) == (2, [1, 2])


def test_a_pattern_that_would_find_what_is_written(sums, tmp_path):
    write(tmp_path / "in" / "a.parquet", 1.0)
    with pytest.raises(InputError, match=r"is where .* looks for files"):
        predict(sums, f"{tmp_path}/in/**/*.parquet", tmp_path / "in" / "out", progress=False)


def test_names_that_readers_leave_out(sums, tmp_path):
    write(tmp_path / "_x.parquet", 1.0)
    with pytest.raises(InputError, match=r"_x.parquet begins with `_` or `\.`"):
        predict(sums, tmp_path / "_x.parquet", tmp_path / "out", progress=False)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read any folder; CI runs it where it is not root")
def test_a_folder_that_may_not_be_read(sums, tmp_path):
    write(tmp_path / "in" / "a.parquet", 1.0)
    (tmp_path / "in" / "locked").mkdir(mode=0)
    with pytest.raises(InputError, match=r"Cannot read .*locked: Permission denied"):
        predict(sums, tmp_path / "in", tmp_path / "out", progress=False)


def test_an_output_beyond_the_limit_is_a_row_of_errors(tmp_path):
    nodes = """
        one = Constant <value = int64[1] {1}> ()
        two = Constant <value = int64[1] {2}> ()
        across = Unsqueeze (x, one)
        down = Unsqueeze (x, two)
        y = Mul (across, down)
    """
    bundle = onnx_bundle(tmp_path / "bundle", nodes, ONE, {"y": ("float32", ["batch", "time", "time"])})
    rows = [np.ones(2, "float32"), np.ones(200_000, "float32"), np.ones(1, "float32")]
    done, table = run(bundle, pa.table({"x": floats(rows)}), tmp_path, limit_memory="100M")
    assert (done.errors, [np.shape(y) for y in table.column("y").to_pylist()]) == (1, [(2, 2), (1, 1)])
    (error,) = pq.read_table(done.errors_file).to_pylist()
    assert (error["row"], error["reason"]) == (1, "has an output of 152,588 MiB, and 100 MiB are the limit")


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
    done, table = run(sums, pa.table({"x": floats([[1.0], None, [3.0]]), "key": keys}), tmp_path, key="key")
    assert (done.errors, table.column("y").to_pylist()) == (1, [1, 3])
    found = pq.read_table(done.errors_file).column("key").to_pylist()[0]
    assert found == text or (text is not None and text in found)


def test_columns_of_any_type_are_passed_on_with_a_bad_row_between(sums, tmp_path):
    columns = {
        "view": pa.array(["a", "b", "c"], pa.string_view()),
        "bytes": pa.array([b"a", None, b"\xff"], pa.binary_view()),
        "struct": pa.array([{"a": 1}, {"a": None}, None]),
        "word": pa.array(["x", "y", "x"]).dictionary_encode(),
    }
    table = pa.table({"x": floats([[1.0], None, [3.0]]), **columns})
    done, found = run(sums, table, tmp_path)
    assert done.errors == 1
    for name, column in columns.items():
        assert found.column(name).to_pylist() == [column[0].as_py(), column[2].as_py()]


def test_a_part_broken_twice_in_two_ways_is_still_mended(sums, tmp_path):
    write(tmp_path / "in" / "a.parquet", 1.0, 2.0)
    write(tmp_path / "in" / "b.parquet", 3.0)
    good = (tmp_path / "in" / "a.parquet").read_bytes()
    (tmp_path / "in" / "a.parquet").write_bytes(good[:50])
    assert predict(sums, tmp_path / "in", tmp_path / "out", progress=False).errors == 1
    pq.write_table(pa.table({"z": [1]}), tmp_path / "in" / "a.parquet")
    assert predict(sums, tmp_path / "in", tmp_path / "out", progress=False).errors == 1
    (tmp_path / "in" / "a.parquet").write_bytes(good)
    done = predict(sums, tmp_path / "in", tmp_path / "out", progress=False)
    assert (done.errors, done.errors_file, rows_of(tmp_path / "out")) == (0, None, [1, 2, 3])


def test_small_row_groups_run_together(sums, tmp_path, monkeypatch):
    pq.write_table(
        pa.table({"x": floats([[float(n)] for n in range(1000)])}), tmp_path / "x.parquet", row_group_size=10
    )
    seen = []
    honest = run_parts.read_window
    monkeypatch.setattr(run_parts, "read_window", lambda batch, *rest: seen.append(len(batch)) or honest(batch, *rest))
    predict(sums, tmp_path / "x.parquet", tmp_path / "out", progress=False)
    assert (len(seen), sum(seen)) == (1, 1000)
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


def test_windows_go_by_what_rows_take_in_memory(tmp_path, monkeypatch):
    """Numbers that are all alike are packed to nothing, and are as large as any in memory."""
    bundle = onnx_bundle(tmp_path / "bundle", SUM, ONE, A_NUMBER)
    monkeypatch.setattr(run_parts, "WINDOW_BYTES", 2**20)
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2**20)
    seen = []
    honest = run_parts.read_window
    monkeypatch.setattr(run_parts, "read_window", lambda batch, *rest: seen.append(len(batch)) or honest(batch, *rest))
    rows = [np.zeros(10_000, "float32")] * 200
    done, _ = run(bundle, pa.table({"x": floats(rows)}), tmp_path)
    assert done.rows == 200
    assert 20 <= max(seen) <= 26


def test_an_output_as_long_as_only_the_model_knows_counts_as_the_row(tmp_path):
    sizes = np.array([[3], [5]])
    ragged = windows.Ragged(np.zeros(8, "float32"), np.array([0, 3, 8]), sizes)
    window = windows.Window(0, 2, {"x": ragged}, {"time": sizes[:, 0]}, {})
    specs = [{"name": "y", "dtype": "float32", "shape": ["batch", "other", 2]}]
    assert windows.output_bytes(specs, window).tolist() == [[24, 40], [24, 40]]
