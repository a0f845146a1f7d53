"""Batches of rows of similar length, and windows of bounded size."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_tables import floats, run_table
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn_export import predict
from keras_attn_export._batch import run_parts, windows
from keras_attn_export._batch.columns import Ragged
from keras_attn_export._batch.windows import PADDING, RUN, Batches, Window, spans
from keras_attn_export._standalone.verify import Spec


@st.composite
def lengths(draw):
    rows = draw(st.integers(1, 200))
    seed = draw(st.integers(0, 2**32 - 1))
    rng = np.random.default_rng(seed)
    axes = draw(st.sampled_from([("time",), ("queries", "keys"), ()]))
    return rows, {axis: np.clip(rng.lognormal(2, 1, rows).astype(np.int64), 0, 400) for axis in axes}


@settings(max_examples=150, deadline=None)
@given(lengths(), st.integers(1, 40), st.sets(st.sampled_from(["time", "queries", "keys"])), st.data())
def test_batches_hold_each_row_once_and_little_padding(table, most, padded, data):
    rows, length = table
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, rows - 1)))), np.int64)
    found = Batches(most, frozenset(padded)).of(length, chosen)
    assert sorted(int(row) for batch in found for row in batch) == chosen.tolist()
    for batch in found:
        assert 1 <= len(batch) <= most
        for axis, of in length.items():
            if axis not in padded:
                assert len(set(of[batch])) == 1
        together = len(batch) * np.prod([max(1, of[batch].max()) for of in length.values()])
        alone = sum(np.prod([max(1, of[row]) for of in length.values()]) for row in batch)
        assert together - alone <= max(RUN, PADDING * alone)
    longest = [max(of[batch].max() for of in length.values()) for batch in found if length]
    assert longest == sorted(longest, reverse=True)


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


def test_batches_that_were_too_large_become_smaller():
    length = {"time": np.array([1000] * 64 + [10] * 64)}
    batches = Batches(32, frozenset(["time"]))
    rows = np.arange(128)
    assert {len(batch) for batch in batches.of(length, rows)} == {32}
    batches.lower(length, rows[:32])
    batches.lower(length, rows[:16])
    assert sorted({len(batch) for batch in batches.of(length, rows)}) == [8, 32]
    batches.lower(length, rows[:1])
    assert sorted({len(batch) for batch in batches.of(length, rows)}) == [1, 32]


@pytest.mark.parametrize(
    ("room", "expected"), [(10**9, [(0, 4)]), (100, [(0, 2), (2, 3), (3, 4)]), (1, [(0, 1), (1, 2), (2, 3), (3, 4)])]
)
def test_windows_are_cut_by_the_size_of_inputs_and_outputs(monkeypatch, room, expected):
    monkeypatch.setattr(windows, "WINDOW_BYTES", room)
    sizes = np.array([[2], [3], [9], [4]])
    starts = np.concatenate([[0], np.cumsum(sizes[:, 0])])
    ragged = Ragged(np.zeros(starts[-1], "float32"), starts, sizes)
    window = Window(0, 4, {"x": ragged}, {"time": sizes[:, 0]}, {})
    # a row takes 4 bytes a number, and its square in the output: 24, 48, 360, 80
    outputs = [Spec("pairs", "float32", ("batch", "time", "time"))]
    assert list(spans(window, outputs)) == expected


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
