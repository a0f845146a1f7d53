"""Which rows run together: each once, of like length, and as many as there is memory for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from keras_attn_export._batch import windows
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
def test_each_row_once_in_batches_of_like_length(table, most, padded, data):
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
def test_little_is_padded(axes, median, longest, most):
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


def test_what_was_too_much_is_less_from_then_on():
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
def test_a_window_is_cut_where_its_inputs_and_outputs_take_too_much(monkeypatch, room, expected):
    monkeypatch.setattr(windows, "WINDOW_BYTES", room)
    sizes = np.array([[2], [3], [9], [4]])
    starts = np.concatenate([[0], np.cumsum(sizes[:, 0])])
    ragged = Ragged(np.zeros(starts[-1], "float32"), starts, sizes)
    window = Window(0, 4, {"x": ragged}, {"time": sizes[:, 0]}, {})
    # a row takes 4 bytes a number, and its square in the output: 24, 48, 360, 80
    outputs = [Spec("pairs", "float32", ("batch", "time", "time"))]
    assert list(spans(window, outputs)) == expected
