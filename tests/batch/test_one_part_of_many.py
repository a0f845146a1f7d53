"""Damaged parts of a source: all others are written, and a second run gives the same errors."""

import os
import random
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_processes import WORKERS
from batch_tables import floats, own_files, read_errors
from bundles import finished

from keras_attn_export import predict
from keras_attn_export._batch import run_parts

ROWS = 1000  # of two numbers each: rows and values of a column have different numbers in the footer
CHANGED_FILES = 300


@pytest.fixture
def folder(tmp_path):
    """Return a source of one good part, which comes last."""
    write(tmp_path / "in" / "z.parquet", [[1.0, 2.0]] * 3)
    return tmp_path / "in"


def write(file, rows, **options):
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": floats(rows), "id": list(range(len(rows)))}), file, **options)
    return file


def falsify(file, rows, *, values=True):
    """Replace 1,000 in the footer of a file: the rows of the file and of its row group, and the values of columns.

    In Thrift's compact protocol, a field of 64 bits that follows the field before is `0x16` and the doubled number in
    groups of 7 bits. Without `values`, only the first and the last field are replaced, the two numbers of rows.
    """
    old, new = (b"\x16" + bytes([2 * number % 128 | 128, 2 * number // 128]) for number in (ROWS, rows))
    content = file.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    head, *middle, tail = content[start:].split(old)
    file.write_bytes(content[:start] + new.join([head, (new if values else old).join(middle), tail]))


def stays_apart(bundle, source, target, written=3, again=0, **options):
    """Run a source twice, since broken parts are tried again; return the table of errors."""
    told = []
    for rows in (written, again):
        done = predict(bundle, source, target, progress=False, **options)
        assert pq.read_table(target / "z.parquet").column("y").to_pylist() == [3, 3, 3]
        assert [name for name in own_files(target) if ".partial" in name] == []
        told.append(read_errors(target))
        assert (done.rows, done.errors) == (rows, len(told[-1]))
    assert told[0] == told[1]
    return told[0]


@pytest.mark.parametrize(
    ("rows", "values", "written", "row", "errors", "reason"),
    [
        (1500, True, ROWS, 1000, 500, "the footer tells of 1,500 rows there, and the pages"),
        (
            700,
            False,
            0,
            None,
            1,
            "its footer tells of 700 rows in a row group, and of 1,000 in a column",
        ),
    ],
)
def test_false_footer_fails_its_part_only(sums, folder, tmp_path, rows, values, written, row, errors, reason):
    falsify(write(folder / "a.parquet", [[1.0, 1.0]] * ROWS), rows, values=values)
    found = stays_apart(sums, folder, tmp_path / "out", written + 3, written)
    assert (found[0]["part"], found[0]["row"], len(found)) == ("a.parquet", row, errors)
    assert reason in found[0]["reason"]


def test_part_fails_alone_when_memory_runs_out(sums, folder, tmp_path, monkeypatch):
    """Of a part whose rows are partly written, one line among the errors remains."""
    write(folder / "a.parquet", [[1.0, 1.0]] * 40)
    monkeypatch.setattr(run_parts, "WINDOW_ROWS", 20)
    honest, calls = run_parts.read_window, []

    def short_of_memory(*given):
        calls.append(given)
        if len(calls) == 2:  # the second window of the part
            raise MemoryError
        return honest(*given)

    monkeypatch.setattr(run_parts, "read_window", short_of_memory)
    assert predict(sums, folder, tmp_path / "out", progress=False).rows == 3
    why = "cannot be read: needs more memory than there is"
    assert read_errors(tmp_path / "out") == [{"part": "a.parquet", "row": None, "key": None, "reason": why}]
    assert not (tmp_path / "out" / "a.parquet").exists()
    monkeypatch.undo()
    assert predict(sums, folder, tmp_path / "out", progress=False).rows == 40


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here; CI runs Linux")
def test_pipes_and_devices_are_not_read(sums, folder, tmp_path):
    os.mkfifo(folder / "a.parquet")
    (folder / "b.parquet").symlink_to("/dev/zero")
    found = stays_apart(sums, folder, tmp_path / "out")
    assert [each["reason"] for each in found] == ["cannot be read: it is no regular file"] * 2


@pytest.mark.slow
def test_damaged_and_huge_parts_fail_alone_on_both_engines(sums, folder, engine, tmp_path):
    """A row of zeros is packed to nothing; the footer holds its size, and no room is made for it."""
    size = 2_000_000
    write(folder / "a.parquet", [np.zeros(size, "float32")])
    write(folder / "b.parquet", [np.zeros(size, "float32"), *[[1.0, 1.0]] * 50])
    write(folder / "c.parquet", [[1.0], np.arange(size, dtype="float32"), [1.0]])
    (folder / os.fsdecode(b"\xff.parquet")).write_bytes(b"no Parquet")
    options = {"engine": engine, "workers": WORKERS, "limit_memory": "6M"}
    found = stays_apart(sums, folder, tmp_path / "out", 5, **options)
    reasons = [(each["part"], each["row"], each["reason"].partition(" in a row group")[0]) for each in found[:3]]
    assert reasons == [
        ("a.parquet", None, "cannot be read: its rows take 8 MiB each, and 6 MiB are the limit"),
        ("b.parquet", None, "cannot be read: its rows unpack to 8 MiB"),
        ("c.parquet", 1, "has an input of 8 MiB, and 6 MiB are the limit"),
    ]
    assert [each["part"] for each in found[3:]] == ["\\udcff.parquet"]


# In a process of its own, since pyarrow may end it.
RUN = "import sys; from keras_attn_export import predict; predict(*sys.argv[1:], progress=False, limit_memory='256M')"


@pytest.mark.slow
def test_tables_with_a_changed_byte_fail_alone(sums, tmp_path, random_seed):
    draw, source, target = random.Random(random_seed), tmp_path / "in", tmp_path / "out"
    content = write(source / "z.parquet", [[1.0, 2.0]] * 3).read_bytes()
    for number in range(CHANGED_FILES):
        altered = bytearray(content)
        altered[draw.randrange(len(content))] ^= draw.randrange(1, 256)
        (source / f"{number:05}.parquet").write_bytes(altered)
    done = finished(sys.executable, "-c", RUN, sums, source, target)
    assert (done.returncode, done.stderr[-2000:]) == (0, "")
    assert pq.read_table(target / "z.parquet").column("y").to_pylist() == [3, 3, 3]
    failed = {each["part"] for each in read_errors(target)}
    for file in source.iterdir():
        assert file.name in failed or (target / file.name).is_file()
    assert len(failed) > CHANGED_FILES // 3
