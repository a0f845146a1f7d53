"""Tables for the small model of small_bundle.py, and reference outputs of their rows.

The reference loop runs onnxruntime on one row at a time: without batches, padding and code of the tested package.
"""

import math

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq

from keras_attn_export import predict

WIDTHS = {"queries": 4, "keys": 6, "values": 5}  # as in small_bundle.py
OUTPUTS = ["context", "weights"]
# Relative to the largest output. Batches change the order of sums; the largest measured error is 5 eps.
MAX_RELATIVE_ERROR = 32 * float(np.finfo("float32").eps)


def make_table(rows, *, seed, first_id=0, typical=20, longest=400, lens=False):
    """Return a table with ids, log-normal numbers of keys and one to four queries a row.

    `lens` adds lengths, from 0 to beyond the number of keys.
    """
    rng = np.random.default_rng(seed)
    keys = np.clip(rng.lognormal(math.log(typical), 1, rows).astype(int), 1, longest)
    ids = range(first_id, first_id + rows)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "keys": build_nested_lists(rng, keys, WIDTHS["keys"]),
        "queries": build_nested_lists(rng, rng.integers(1, 5, rows), WIDTHS["queries"]),
        "name": pa.array([f"row {number}" if number % 7 else None for number in ids], pa.string()),
        "values": build_nested_lists(rng, keys, WIDTHS["values"]),
    }
    if lens:
        columns["valid_lens"] = pa.array(rng.integers(0, keys + 3), pa.int64())
    return pa.table(columns)


def build_nested_lists(rng, lengths, width):
    total = int(lengths.sum())
    numbers = pa.array(rng.standard_normal(total * width, dtype="float32"))
    inner = pa.ListArray.from_arrays(np.arange(total + 1, dtype="int32") * width, numbers)
    return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype("int32"), inner)


def insert_nulls(table, *rows):
    """Return a table whose keys are null in some rows."""
    index = table.schema.get_field_index("keys")
    keys = [None if number in rows else value for number, value in enumerate(table.column("keys").to_pylist())]
    return table.set_column(index, "keys", pa.array(keys, table.schema.field("keys").type))


def to_lists(rows):
    return pa.array(rows, pa.list_(pa.float32()))


def write_source(folder, files, *, row_group=None, **options):
    """Write a folder of tables with consecutive ids; `files` maps their names to numbers of rows."""
    first_id = 0
    for number, (name, rows) in enumerate(files.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table = make_table(rows, seed=number, first_id=first_id, **options)
        pq.write_table(table, folder / name, row_group_size=row_group)
        first_id += rows
    return folder


def run_table(bundle, table, folder, columns=None, **options):
    """Run one table; return the result, the output by column (all or some), and the rows of the error table."""
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "x.parquet")
    result = predict(bundle, folder / "x.parquet", folder / "out", progress=False, **options)
    errors = read_errors(folder / "out")
    assert (result.errors, result.errors_file is None) == (len(errors), not errors)
    return result, pq.read_table(folder / "out" / "x.parquet", columns=columns).to_pydict(), errors


def run_reference_loop(bundle, root):
    """Return the rows with their outputs, by table below a folder; onnxruntime runs one row at a time."""
    session = ort.InferenceSession(str(bundle / "model.onnx"), providers=["CPUExecutionProvider"])

    def run(row):
        inputs = {name: np.array([row[name]], "float32") for name in WIDTHS}
        inputs["valid_lens"] = np.array([row.get("valid_lens", len(row["keys"]))], "int32")
        outputs = dict(zip(OUTPUTS, session.run(OUTPUTS, inputs), strict=True))
        return {"id": row["id"], "name": row["name"], **{name: array[0] for name, array in outputs.items()}}

    return {
        file.relative_to(root).as_posix(): [run(row) for row in read_rows(file)] for file in root.rglob("*.parquet")
    }


def read_rows(file):
    with pq.ParquetFile(file) as opened:
        return opened.read().to_pylist()


def assert_rows_equal(destination, oracle, *, excluded_ids=()):
    """Assert that a destination holds the rows of the oracle except some ids: once, in order, without padding."""
    assert set(list_inodes(destination)) == set(oracle)
    for name, rows in oracle.items():
        actual, expected = read_rows(destination / name), [row for row in rows if row["id"] not in excluded_ids]
        assert [row["id"] for row in actual] == [row["id"] for row in expected], name
        for actual_row, expected_row in zip(actual, expected, strict=True):
            assert set(actual_row) == set(expected_row)
            assert actual_row["name"] == expected_row["name"]
            for output in set(actual_row) & set(OUTPUTS):
                reference = expected_row[output]
                atol = MAX_RELATIVE_ERROR * float(np.abs(reference).max())
                numbers = np.array(actual_row[output], "float32")  # refuses lists of different lengths
                np.testing.assert_allclose(numbers, reference, rtol=0, atol=atol, err_msg=f"{name}, {actual_row['id']}")


def list_inodes(destination):
    """Return the inodes of the output files in a destination, by name."""
    files = [file for file in destination.rglob("*.parquet") if "_predict" not in file.parts]
    return {file.relative_to(destination).as_posix(): file.stat().st_ino for file in files}


def read_errors(destination):
    """Return the rows of the error table; an empty list if the table is missing."""
    file = destination / "_predict" / "errors.parquet"
    return read_rows(file) if file.is_file() else []
