"""The benchmark of batch inference: its tables of rows, what it takes away from `predict`, and what it says of Ray."""

import _rows
import _tables
import batch
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from _tables_of_rows import pays_from

from keras_attn_export._batch import columns, windows

ONE, RAY = {"start": 1.0, "rate": 1000.0}, {"start": 5.0, "rate": 500.0}


def test_rows_have_ids_in_order_and_lengths_that_agree(tmp_path):
    _rows.write_pairs(tmp_path / "pairs", 50, 3)
    assert len(list((tmp_path / "pairs").iterdir())) == 3
    rows = pq.read_table(tmp_path / "pairs").to_pylist()
    assert [row["id"] for row in rows] == list(range(50))
    lengths = [len(row["keys"]) for row in rows]
    assert lengths == [len(row["values"]) for row in rows]
    assert {len(key) for row in rows for key in row["keys"]} == {_rows.KEY_SIZE}


def test_lengths_are_log_normal_and_bounded(tmp_path):
    _rows.write_words(tmp_path / "words", 5000, 1)
    lengths = np.diff(pq.read_table(tmp_path / "words")["words"].combine_chunks().offsets)
    assert (lengths.min(), lengths.max()) == (1, _rows.LONGEST)
    assert np.median(lengths) == pytest.approx(np.exp(3.5), rel=0.1)


def test_what_was_written_is_compared_with_its_lengths(tmp_path):
    table = pa.table({"id": [0, 1], "name": ["a", "b"], "out": [[1.0], [2.0, 3.0]]})
    pq.write_table(table, tmp_path / "0.parquet")
    assert [array.tolist() for array in _rows._written(tmp_path)] == [[1, 2], [1, 2, 3]]
    pq.write_table(table.take([1, 0]), tmp_path / "0.parquet")
    with pytest.raises(RuntimeError, match="order of the source"):
        _rows._written(tmp_path)


def test_python_lists_give_what_buffers_give():
    spec = {"name": "x", "dtype": "float32", "shape": ["batch", "time", 2]}
    column = pa.array([[[1, 2], [3, 4]], [[5, 6]]], pa.list_(pa.list_(pa.float32())))
    ours, _ = columns.read_column(column, spec)
    objects, _ = _rows._from_objects(column, spec)
    for name in ("values", "starts", "sizes"):
        np.testing.assert_array_equal(getattr(objects, name), getattr(ours, name))
    assert _rows._to_objects(ours.values, ours.sizes).equals(columns.to_lists(ours.values, ours.sizes))


@pytest.mark.parametrize("without", _rows.WITHOUT)
def test_what_is_taken_away_is_there(without, monkeypatch):
    replaced = []
    monkeypatch.setattr(_rows, "_replace", lambda owner, name, by: replaced.append((getattr(owner, name), by)))
    _rows.WITHOUT[without]()
    assert replaced
    assert all(callable(old) and callable(new) for old, new in replaced)


def test_rows_in_their_order_are_cut_and_not_sorted(monkeypatch):
    monkeypatch.setattr(windows.Batches, "of", windows.Batches.of)  # so that it is put back
    _rows.WITHOUT["buckets"]()
    lengths = {"time": np.array([9, 1, 8, 2, 7])}
    batches = windows.Batches(2, frozenset({"time"})).of(lengths, np.arange(5))
    assert [batch.tolist() for batch in batches] == [[0, 1], [2, 3], [4]]


def test_ray_pays_where_both_lines_meet():
    rows = pays_from(ONE, RAY, 4)
    assert rows == pytest.approx(8000)
    assert ONE["start"] + rows / ONE["rate"] == pytest.approx(RAY["start"] + rows / (4 * RAY["rate"]))


@pytest.mark.parametrize("machines", [1, 2])
def test_ray_never_pays_where_it_is_no_faster(machines):
    assert pays_from(ONE, RAY, machines) is None


def test_ray_that_starts_sooner_pays_from_the_first_row():
    assert pays_from({**ONE, "start": 9.0}, RAY, 4) == 0


def test_tables():
    ms = {"median": 2000.0, "p10": 1000.0, "p90": 3000.0}
    row = {"contestant": "loop", "ms": ms, "memory": 7.4, "faster": {"median": 0.25}}
    case = {"size": "model", "rows_of_table": 40_000, "peer": "ours", "rows": [row]}
    engines = [{"engine": "here", "seconds": [1.1, 5.0], **ONE}, {"engine": "ray", "seconds": [5.2, 9.0], **RAY}]
    environment = {
        "date": "2026-01-02", "processor": "P", "gpu": None, "cores": 2, "system": "S", "threads": 2, "load": 0.1,
        "versions": {},
    }  # fmt: skip
    result = {"name": "batch", "cases": [case], "bars": [], "environment": environment}
    assert "Ray" not in _tables.markdown(result)
    lines = _tables.markdown(
        {**result, "ray": {"rows": [128, 40_000], "engines": engines, "machines": [2, 4]}}
    ).splitlines()
    assert "| loop | 20,000 | 2 (1 to 3) | 4x | 7 |" in lines
    assert "| ray | 5.2 | 9 | 5 | 500 |" in lines
    assert "| 2 | never |  |" in lines
    assert "| 4 | 8,000 | 9 s |" in lines


def test_a_line_goes_through_the_times_of_both_tables():
    few, many = (
        {"rows_of_table": rows, "rows": [{"contestant": "here", "ms": {"median": ms}}]}
        for rows, ms in ((100, 1100.0), (4100, 5100.0))
    )
    assert batch._engines([few, many]) == [
        {"engine": "here", "seconds": [1.1, 5.1], "start": pytest.approx(1.0), "rate": pytest.approx(1000)}
    ]
