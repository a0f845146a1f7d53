"""Damaged parts of a source: all others are written, and a second run gives the same errors."""

import os
import random
import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_processes import WORKERS
from batch_tables import floats, own_files, read_errors
from bundles import finished

from keras_attn_export import InputError, predict
from keras_attn_export._batch import run_parts

ROWS = 1000  # of two numbers each, so that a footer can tell of rows and of numbers apart
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


def falsify(file, rows, told, *, values=True):
    """Replace a number in the footer of a file: the rows of the file and of row groups, the values of columns.

    In Thrift's compact protocol, a field of 64 bits that follows the field before is `0x16` and the number. Without
    `values`, only the first and the last field are replaced: those of the file and of the only row group.
    """
    content = file.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    old, new = b"\x16" + _number(rows), b"\x16" + _number(told)
    head, *middle, tail = content[start:-8].split(old)
    between = [(new if values else old).join(middle)] if middle else []
    footer = new.join([head, *between, tail])
    file.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + content[-4:])


def _number(value):
    """Encode a number as Thrift does: zigzag, then seven bits a byte."""
    left, found = value << 1 if value >= 0 else ~(value << 1), bytearray()
    while left >= 128:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found, left])


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


FALSE_FOOTERS = {  # numbers and their replacements; rows that are written; row, count and reason of the errors
    "more rows than there are": (
        [(ROWS, 1500)],
        ROWS,
        (1000, 500, "the footer tells of 1,500 rows there, and the pages"),
    ),
    "fewer": (
        [(ROWS, 700, {"values": False})],
        0,
        (None, 1, "cannot be read: its footer tells of 700 rows in a row group, and of 1,000 in a column"),
    ),
    "far more": (
        [(ROWS, 2**45, {"values": False})],
        ROWS,
        (1000, 1, f"rows 1000 to {2**45 - 1}: cannot be read: the f"),
    ),
    "far more of numbers too": (
        [(ROWS, 2**45), (2 * ROWS, 2**46)],
        0,
        (None, 1, "cannot be read: its rows unpack to 536,870,912 MiB in a row group, of a file of 0.0"),
    ),
}


@pytest.mark.parametrize(("changes", "written", "error"), FALSE_FOOTERS.values(), ids=FALSE_FOOTERS)
def test_false_footer_fails_its_part_only(sums, folder, tmp_path, changes, written, error):
    file = write(folder / "a.parquet", [[1.0, 1.0]] * ROWS)
    for rows, told, *options in changes:
        falsify(file, rows, told, **dict(*options))
    found = stays_apart(sums, folder, tmp_path / "out", written + 3, written)
    row, count, reason = error
    assert (found[0]["part"], found[0]["row"], len(found)) == ("a.parquet", row, count)
    assert reason in found[0]["reason"]


def test_rows_keep_their_numbers_beside_a_false_row_group(sums, folder, tmp_path):
    file = write(folder / "a.parquet", [[1.0, float(row)] for row in range(30)], row_group_size=11)  # 11, 11 and 8
    falsify(file, 8, 9)
    falsify(file, 11, 12)
    falsify(file, 30, 33)
    found = stays_apart(sums, folder, tmp_path / "out", 33, 30)
    assert [each["row"] for each in found] == [11, 23, 32]
    written = pq.read_table(tmp_path / "out" / "a.parquet").column("y").to_pylist()
    assert written == [1 + row for row in range(30)]


@pytest.mark.slow
def test_rows_beyond_the_limit_of_memory_are_not_read(sums, folder, tmp_path, monkeypatch):
    """A row of zeros is packed to nothing; the footer holds its size."""
    size = 2_000_000
    write(folder / "a.parquet", [np.zeros(size, "float32")])
    write(folder / "b.parquet", [np.zeros(size, "float32"), *[[1.0, 1.0]] * 50])
    write(folder / "c.parquet", [[1.0], np.arange(size, dtype="float32"), [1.0]])
    assert (folder / "a.parquet").stat().st_size < 100_000
    read, honest = [], run_parts.read_window
    monkeypatch.setattr(
        run_parts, "read_window", lambda batch, *rest: read.append(batch.nbytes) or honest(batch, *rest)
    )
    found = stays_apart(sums, folder, tmp_path / "out", 5, limit_memory="6M")
    assert [(each["part"], each["row"]) for each in found] == [
        ("a.parquet", None),
        ("b.parquet", None),
        ("c.parquet", 1),
    ]
    assert found[0]["reason"] == "cannot be read: its rows take 8 MiB each, and 6 MiB are the limit"
    assert found[1]["reason"].startswith("cannot be read: its rows unpack to 8 MiB in a row group, of a file of 0.0")
    assert found[2]["reason"] == "has an input of 8 MiB, and 6 MiB are the limit"
    assert sum(size > 6 * 2**20 for size in read) == 1, "the row of c.parquet"


def test_part_fails_alone_when_memory_runs_out(sums, folder, tmp_path, monkeypatch):
    """Of a part whose rows are partly written, one line among the errors remains."""
    write(folder / "a.parquet", [[1.0, 1.0]] * 40)
    monkeypatch.setattr(run_parts, "WINDOW_ROWS", 20)
    honest, calls = run_parts.read_window, []

    def short_of_memory(*given):
        calls.append(given)
        if len(calls) in (2, 4):  # the second window of the part, in each of two runs, of which one has the good part
            raise MemoryError
        return honest(*given)

    monkeypatch.setattr(run_parts, "read_window", short_of_memory)
    progress, told = [], []
    for _ in range(2):
        calls.clear()
        done = predict(sums, folder, tmp_path / "out", progress=lambda *rows: progress.append(rows))
        told.append((done.rows, read_errors(tmp_path / "out")))
        assert progress[-1] == (43, 43)
    why = "cannot be read: needs more memory than there is"
    line = {"part": "a.parquet", "row": None, "key": None, "reason": why}
    assert told == [(3, [line]), (0, [line])]
    assert not (tmp_path / "out" / "a.parquet").exists()
    monkeypatch.undo()
    assert predict(sums, folder, tmp_path / "out", progress=False).rows == 40


def test_file_names_may_be_other_than_utf8(sums, folder, tmp_path):
    name = os.fsdecode(b"caf\xe9.parquet")
    try:
        shutil.copy(folder / "z.parquet", folder / name)
    except OSError:
        pytest.skip("this file system takes text alone")
    Path(folder, os.fsdecode(b"\xff.parquet")).write_bytes(b"no Parquet")
    found = stays_apart(sums, folder, tmp_path / "out", 6)
    assert [(each["part"], each["row"]) for each in found] == [("\\udcff.parquet", None)]
    assert len(pq.ParquetFile(pa.OSFile(os.fsencode(tmp_path / "out" / name))).read()) == 3
    with pytest.raises(InputError, match=r"\\udcff is no text in UTF-8"):
        predict(sums, folder, tmp_path / os.fsdecode(b"\xff"), progress=False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here; CI runs Linux")
def test_pipes_and_devices_are_not_read(sums, folder, tmp_path):
    os.mkfifo(folder / "a.parquet")
    (folder / "b.parquet").symlink_to("/dev/zero")
    found = stays_apart(sums, folder, tmp_path / "out")
    assert [each["reason"] for each in found] == ["cannot be read: it is no regular file"] * 2


def test_damaged_parts_fail_alone_on_both_engines(sums, folder, engine, tmp_path):
    falsify(write(folder / "a.parquet", [[1.0, 1.0]] * ROWS), ROWS, 2**45, values=False)
    write(folder / "b.parquet", [np.zeros(2_000_000, "float32")])
    (folder / os.fsdecode(b"\xff.parquet")).write_bytes(b"no Parquet")
    found = stays_apart(
        sums, folder, tmp_path / "out", ROWS + 3, ROWS, engine=engine, workers=WORKERS, limit_memory="6M"
    )
    assert [each["part"] for each in found] == ["a.parquet", "b.parquet", "\\udcff.parquet"]


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
