"""Tables for the small model of small_bundle.py, and the outputs of a plain loop over their rows.

The loop runs one row at a time through onnxruntime: no batches, no padding, no code of the tested package.
"""

import math

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq

from keras_attn_export import predict

WIDTHS = {"queries": 4, "keys": 6, "values": 5}  # as in small_bundle.py
OUTPUTS = ["context", "weights"]
# Share of the largest output: a row in a batch is summed in another order; measured, it is at most 5.
ROUNDING = 32 * float(np.finfo("float32").eps)


def make_table(rows, *, seed, first_id=0, typical=20, longest=400, lens=False):
    """Return a table with ids, log-normal numbers of keys and one to four queries a row.

    `lens` adds lengths, from 0 to beyond the number of keys.
    """
    rng = np.random.default_rng(seed)
    keys = np.clip(rng.lognormal(math.log(typical), 1, rows).astype(int), 1, longest)
    ids = range(first_id, first_id + rows)
    columns = {
        "id": pa.array(ids, pa.int64()),
        "keys": nested(rng, keys, WIDTHS["keys"]),
        "queries": nested(rng, rng.integers(1, 5, rows), WIDTHS["queries"]),
        "name": pa.array([f"row {number}" if number % 7 else None for number in ids], pa.string()),
        "values": nested(rng, keys, WIDTHS["values"]),
    }
    if lens:
        columns["valid_lens"] = pa.array(rng.integers(0, keys + 3), pa.int64())
    return pa.table(columns)


def nested(rng, lengths, width):
    total = int(lengths.sum())
    numbers = pa.array(rng.standard_normal(total * width, dtype="float32"))
    inner = pa.ListArray.from_arrays(np.arange(total + 1, dtype="int32") * width, numbers)
    return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype("int32"), inner)


def with_nulls(table, *rows):
    """Return a table whose keys are null in some rows."""
    index = table.schema.get_field_index("keys")
    keys = [None if number in rows else value for number, value in enumerate(table.column("keys").to_pylist())]
    return table.set_column(index, "keys", pa.array(keys, table.schema.field("keys").type))


def floats(rows):
    return pa.array(rows, pa.list_(pa.float32()))


def write_source(folder, files, *, row_group=None, **options):
    """Write a folder of tables with as many rows as `files` gives by name, and consecutive ids."""
    first_id = 0
    for number, (name, rows) in enumerate(files.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table = make_table(rows, seed=number, first_id=first_id, **options)
        pq.write_table(table, folder / name, row_group_size=row_group)
        first_id += rows
    return folder


def run_table(bundle, table, folder, columns=None, **options):
    """Run one table; return the result, the output by column (all, or some), and the rows that failed."""
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "x.parquet")
    done = predict(bundle, folder / "x.parquet", folder / "out", progress=False, **options)
    errors = read_errors(folder / "out")
    assert (done.errors, done.errors_file is None) == (len(errors), not errors)
    return done, pq.read_table(folder / "out" / "x.parquet", columns=columns).to_pydict(), errors


def plain_loop(bundle, root):
    """Return the outputs of each row of each table below a folder, one at a time."""
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


def assert_rows_equal(destination, oracle, *, without=()):
    """Check that a destination holds the rows of the plain loop except some ids: once, in order, without padding."""
    assert set(files_of(destination)) == set(oracle)
    for name, rows in oracle.items():
        written = read_rows(destination / name)
        expected = [row for row in rows if row["id"] not in without]
        assert [row["id"] for row in written] == [row["id"] for row in expected], name
        for own, one in zip(written, expected, strict=True):
            assert set(own) == set(one)
            assert own["name"] == one["name"]
            for output in set(own) & set(OUTPUTS):
                atol = ROUNDING * float(np.abs(one[output]).max())
                numbers = np.array(own[output], "float32")  # refuses lists of different lengths
                np.testing.assert_allclose(numbers, one[output], rtol=0, atol=atol, err_msg=f"{name}, {one['id']}")


def files_of(destination):
    """Return the inode of each file that readers of a destination see, by name."""
    files = [file for file in destination.rglob("*.parquet") if "_predict" not in file.parts]
    return {file.relative_to(destination).as_posix(): file.stat().st_ino for file in files}


def read_errors(destination):
    """Return the rows of the table of errors; none if there is no such table."""
    file = destination / "_predict" / "errors.parquet"
    return read_rows(file) if file.is_file() else []
