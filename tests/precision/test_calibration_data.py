"""Calibration data for int8: arrays, `.npz` and Parquet files, batches, and refused data."""

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from keras_attn_export import ExportError, InputError
from keras_attn_export._format.manifest import Spec
from keras_attn_export._options import validate_options
from keras_attn_export._precision.calibration_data import BATCH_ROWS, count_rows, read_calibration

X_SPEC, LENS_SPEC = Spec("x", "float32", ("batch", "length", 2)), Spec("lens", "int32", ("batch",))
X_ROWS = np.arange(2 * 3 * 2, dtype="float32").reshape(2, 3, 2)
ARRAYS = {"x": X_ROWS, "lens": np.array([3, 1], "int32")}


def read_batches(arrays, inputs=(X_SPEC, LENS_SPEC), counts=None):
    return read_calibration(arrays, inputs, counts=counts or {"lens": "length"}, multiples={})


def write_table(file, **columns):
    pq.write_table(pa.table(columns), file)
    return file


@pytest.mark.parametrize(
    "arrays",
    [ARRAYS, list(ARRAYS.values()), {"x": X_ROWS.tolist(), "lens": [3, 1]}],
    ids=["by name", "in order", "lists"],
)
def test_arrays_are_matched_by_name_or_order(arrays):
    (batch,) = read_batches(arrays)
    assert {name: array.dtype.name for name, array in batch.items()} == {"x": "float32", "lens": "int32"}
    np.testing.assert_array_equal(batch["x"], X_ROWS)


def test_one_array_is_split_into_batches_unless_the_batch_is_fixed():
    batches = read_batches(np.zeros((2 * BATCH_ROWS + 1, 4, 2)), (X_SPEC,))
    assert [count_rows(batch) for batch in batches] == [BATCH_ROWS, BATCH_ROWS, 1]
    spec = Spec("x", "float32", (2 * BATCH_ROWS, 3))
    (batch,) = read_batches(np.zeros(spec.shape, "float32"), (spec,))
    assert count_rows(batch) == 2 * BATCH_ROWS


def test_npz_files_are_read(tmp_path):
    np.savez(tmp_path / "x.npz", **ARRAYS)
    for path in (tmp_path / "x.npz", str(tmp_path / "x.npz")):
        (batch,) = read_batches(path)
        np.testing.assert_array_equal(batch["lens"], [3, 1])


def test_parquet_rows_are_batched_by_length(tmp_path):
    """A column of lengths may be absent, as for `predict`."""
    rows = [np.full((length, 2), row, "float32").tolist() for row, length in enumerate([3, 1, 3])]
    batches = read_batches(write_table(tmp_path / "rows.parquet", x=rows, other=["a", "b", "c"]))
    assert sorted(batch["x"].shape for batch in batches) == [(1, 1, 2), (2, 3, 2)]
    assert sorted(batch["lens"].tolist() for batch in batches) == [[1], [3, 3]]
    assert {float(row[0, 0]) for batch in batches for row in batch["x"]} == {0, 1, 2}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": X_ROWS}, r"`calibration` does not fit the model. Inputs \['lens'\] are missing"),
        ([X_ROWS], "It must be a mapping from names to arrays, or arrays for .* Received: 1 arrays"),
        ({**ARRAYS, "x": X_ROWS[..., :1]}, r"Input `x` must have shape .*, where 2 is fixed. Received: \(2, 3, 1\)"),
        ({**ARRAYS, "lens": np.array([3.0, 1.0])}, "Input `lens` must be of dtype int32. Received: float64"),
        ({**ARRAYS, "lens": np.array([3])}, r"`batch` is 2 in input `x`. Received: \(1,\)"),
        ({"x": X_ROWS[:0], "lens": np.zeros(0, "int32")}, "`calibration` has no rows"),
        ({**ARRAYS, "x": np.where(X_ROWS == 5, np.nan, X_ROWS)}, "has NaN or infinity in `x`"),
        ("nowhere.npz", "`calibration` cannot be read from nowhere.npz: No such file"),
        ("nowhere.parquet", "There is no Parquet file at 'nowhere.parquet'"),
    ],
    ids=["missing input", "order", "shape", "dtype", "batch", "no rows", "NaN", "no npz", "no table"],
)
def test_arrays_that_do_not_fit_are_refused(arrays, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=message):
        read_batches(arrays)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"x": [1.0]}, "column `x` must hold lists"),
        ({"lens": [1]}, "has no column `x`, an input of the model"),
        ({"x": [["a"]]}, "column `x` must hold lists of float32, nested 2 deep"),
        ({"x": [[[1.0, 2.0]], [[1.0]]]}, r"`x` must have shape .*; a list has 1 values, not 2"),
        ({"x": [[[1.0, 2.0]], None]}, "`x` is null"),
        ({"x": [[[1.0, float("nan")]]]}, "has NaN or infinity in `x`"),
    ],
)
def test_tables_that_do_not_fit_are_refused(columns, message, tmp_path):
    with pytest.raises(InputError, match=message):
        read_batches(write_table(tmp_path / "rows.parquet", **columns))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"calibration": X_ROWS}, "`calibration` is for `precision='int8'` and `provider='cpu'`"),
        ({"calibration": X_ROWS, "precision": "float16"}, "Received: precision='float16', provider='cpu'"),
        ({"calibration": X_ROWS, "precision": "int8", "provider": "cuda"}, "provider='cuda'"),
        ({"limit": 0.1, "precision": "int8"}, "`limit` needs `calibration`"),
        (
            {"limit": 0.0, "calibration": X_ROWS, "precision": "int8"},
            "`limit` must be a number above 0",
        ),
    ],
)
def test_calibration_options_that_conflict_are_refused(options, message):
    with pytest.raises(ExportError, match=message):
        validate_options(tolerance=None, static_axes=None, **options)
