"""Tables for the small model of bundles.py, and what a plain loop over their rows gives.

The loop takes one row at a time through onnxruntime: no batches, no padding, nothing of the package that is tested.
"""

import math
from pathlib import Path

import numpy as np
import onnxruntime as ort
import pyarrow as pa
import pyarrow.parquet as pq

from keras_attn_export import predict

WIDTHS = {"queries": 4, "keys": 6, "values": 5}  # as in bundles.py
LONGEST = 400
OUTPUTS = ["context", "weights"]
# A row among others is summed in another order. Times the largest number of an output; measured, it is at most 5.
ROUNDING = 32 * float(np.finfo("float32").eps)


def make_table(rows, *, seed, first_id=0, typical=20, longest=LONGEST, lens=False):
    """Return a table with ids from `first_id` on, log-normal numbers of keys and one to four queries a row.

    `typical` and `longest` are of the numbers of keys; `lens` adds lengths, from 0 to beyond the number of keys.
    """
    rng = np.random.default_rng(seed)
    keys = np.clip(rng.lognormal(math.log(typical), 1, rows).astype(int), 1, longest)
    queries = rng.integers(1, 5, rows)
    ids = range(first_id, first_id + rows)
    names = [f"row {number}" if number % 7 else None for number in ids]
    columns = {
        "id": pa.array(ids, pa.int64()),
        "keys": _lists(rng, keys, WIDTHS["keys"]),
        "queries": _lists(rng, queries, WIDTHS["queries"]),
        "name": pa.array(names, pa.string()),
        "values": _lists(rng, keys, WIDTHS["values"]),
    }
    if lens:
        columns["valid_lens"] = pa.array(rng.integers(0, keys + 3), pa.int64())
    return pa.table(columns)


def _lists(rng, lengths, width):
    total = int(lengths.sum())
    numbers = pa.array(rng.standard_normal(total * width, dtype="float32"))
    inner = pa.ListArray.from_arrays(np.arange(total + 1, dtype="int32") * width, numbers)
    return pa.ListArray.from_arrays(np.concatenate([[0], np.cumsum(lengths)]).astype("int32"), inner)


def with_nulls(table, *rows):
    """Return a table whose keys are null in some rows, so that those cannot be run."""
    index = table.schema.get_field_index("keys")
    keys = [None if number in rows else each for number, each in enumerate(table.column("keys").to_pylist())]
    return table.set_column(index, "keys", pa.array(keys, table.schema.field("keys").type))


def floats(rows):
    return pa.array(rows, pa.list_(pa.float32()))


def write_source(folder, files, *, row_group=None, **options):
    """Write a folder of tables of as many rows as `files` says by name; their ids go on from one to the next."""
    first_id = 0
    for number, (name, rows) in enumerate(files.items()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        table = make_table(rows, seed=number, first_id=first_id, **options)
        pq.write_table(table, folder / name, row_group_size=row_group)
        first_id += rows
    return folder


def run_table(bundle, table, folder, columns=None, **options):
    """Run one table; return what the run said, what it wrote by column (all, or some), and the rows that failed."""
    folder.mkdir(exist_ok=True)
    pq.write_table(table, folder / "x.parquet")
    done = predict(bundle, folder / "x.parquet", folder / "out", progress=False, **options)
    errors = read_errors(folder / "out")
    assert (done.errors, done.errors_file is None) == (len(errors), not errors)
    return done, pq.read_table(folder / "out" / "x.parquet", columns=columns).to_pydict(), errors


def plain_loop(bundle, root):
    """Return what each row of each table below a folder gives, one at a time."""
    session = ort.InferenceSession(str(bundle / "model.onnx"), providers=["CPUExecutionProvider"])

    def run(row):
        feeds = {name: np.array([row[name]], "float32") for name in WIDTHS}
        feeds["valid_lens"] = np.array([row.get("valid_lens", len(row["keys"]))], "int32")
        found = dict(zip(OUTPUTS, session.run(OUTPUTS, feeds), strict=True))
        return {"id": row["id"], "name": row["name"], **{name: array[0] for name, array in found.items()}}

    files = sorted(root.rglob("*.parquet"))
    return {file.relative_to(root).as_posix(): [run(row) for row in _rows(file)] for file in files}


def _rows(file):
    with pq.ParquetFile(file) as opened:
        return opened.read().to_pylist()


def written_files(destination):
    """Return the files of a destination by that of the source they are of: one, or those in a folder of its name."""
    found: dict[str, list[Path]] = {}
    for file in sorted(destination.rglob("*")):
        own = file.relative_to(destination)
        if file.is_file() and own.parts[0] != "_predict":
            of = own.parent if own.parent.suffix == ".parquet" else own
            found.setdefault(of.as_posix(), []).append(file)
    return found


def same_rows(destination, oracle, *, without=()):
    """Check that a destination holds what the plain loop gave, but for some ids: every row once, in order, unpadded."""
    found = written_files(destination)
    expected = {name: [row for row in rows if row["id"] not in without] for name, rows in oracle.items()}
    assert set(found) == set(expected)
    for name, rows in expected.items():
        written = [row for file in found[name] for row in _rows(file)]
        assert [row["id"] for row in written] == [row["id"] for row in rows], name
        for own, one in zip(written, rows, strict=True):
            same_row(own, one, f"{name}, id {one['id']}")


def same_row(own, one, place):
    assert set(own) == set(one), place
    for name, value in one.items():
        if not isinstance(value, np.ndarray):
            assert own[name] == value, (place, name)
            continue
        assert (len(own[name]), len(own[name][0])) == value.shape, (place, name)
        numbers = np.array(own[name], "float32")  # which refuses lists of different lengths
        np.testing.assert_allclose(
            numbers, value, rtol=0, atol=ROUNDING * float(np.abs(value).max()), err_msg=f"{place}, {name}"
        )


def own_files(destination):
    """Return what lies in `_predict/`, without folders."""
    own = destination / "_predict"
    return sorted(file.relative_to(own).as_posix() for file in own.rglob("*") if file.is_file())


def read_errors(destination):
    """Return the rows of the table of errors; none where there is no such table."""
    file = destination / "_predict" / "errors.parquet"
    return _rows(file) if file.is_file() else []


def files_of(destination):
    """Return the inode and the time of writing of each table in a destination, by name."""
    found = (file for file in destination.rglob("*") if file.is_file() and "_predict" not in file.parts)
    return {file.relative_to(destination).as_posix(): (file.stat().st_ino, file.stat().st_mtime_ns) for file in found}


def leftovers(destination):
    return sorted(file.relative_to(destination).as_posix() for file in destination.rglob("*.partial"))
