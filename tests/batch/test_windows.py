"""Batches of rows of similar length, and windows of bounded size."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import floats, run_table

from keras_attn_export import predict
from keras_attn_export._batch import run_parts, windows
from keras_attn_export._batch.windows import Batches


@pytest.mark.parametrize(
    ("axes", "median", "longest", "most"), [(("time",), 3.5, 400, 1.1), (("queries", "keys"), 3, 200, 1.25)]
)
def test_padding_is_a_small_share_of_what_runs(axes, median, longest, most):
    """Of 4,096 rows in log-normal lengths, a tenth or a quarter of what runs is padding; in order it is two thirds."""
    rng = np.random.default_rng(0)
    length = {axis: np.clip(rng.lognormal(median, 1, 4096).astype(int), 1, longest) for axis in axes}
    real = np.prod([*length.values()], axis=0).sum()

    def cells(batches):
        return sum(len(batch) * np.prod([of[batch].max() for of in length.values()]) for batch in batches)

    found = Batches(32, frozenset(length)).of(length, np.arange(4096))
    assert cells(found) < most * real
    assert cells(np.array_split(np.arange(4096), 128)) > 2.5 * real
    assert len(found) < 5 * 4096 / 32


@pytest.fixture
def seen(monkeypatch):
    """Return the list of the rows of each window, which a run extends."""
    found, honest = [], run_parts.read_window
    monkeypatch.setattr(run_parts, "read_window", lambda batch, *rest: found.append(len(batch)) or honest(batch, *rest))
    return found


def test_small_row_groups_share_a_window(sums, tmp_path, seen):
    table = pa.table({"x": floats([[float(n)] for n in range(1000)])})
    pq.write_table(table, tmp_path / "x.parquet", row_group_size=10)
    predict(sums, tmp_path / "x.parquet", tmp_path / "out", progress=False)
    assert seen == [1000]
    assert pq.read_table(tmp_path / "out" / "x.parquet").column("y").to_pylist() == list(range(1000))


def test_windows_are_bounded_by_unpacked_size(sums, tmp_path, monkeypatch, seen):
    """Equal numbers are packed to nothing in the file."""
    monkeypatch.setattr(run_parts, "WINDOW_BYTES", 2**20)
    monkeypatch.setattr(windows, "WINDOW_BYTES", 2**20)
    done, _, _ = run_table(sums, pa.table({"x": floats([np.zeros(10_000, "float32")] * 200)}), tmp_path)
    assert done.rows == 200
    assert 20 <= max(seen) <= 26
