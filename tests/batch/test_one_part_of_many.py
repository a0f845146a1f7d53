"""What one part of a table causes stays in that part: all others are written, and a run that goes on does go on."""

import os
import random
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from batch_processes import WORKERS
from batch_tables import floats, own_files, read_errors
from bundles import finished
from lying_footers import tell
from onnx_bundles import onnx_bundle

from keras_attn_export import InputError, predict
from keras_attn_export._batch import errors as table_of_errors
from keras_attn_export._batch import results, run_parts
from keras_attn_export._batch.errors import Errors, first_errors

ROWS = 1000  # of two numbers each, so that a footer can tell of rows and of numbers apart
FLIPS = 300  # of one byte each; --fuzz asks for more in the tests that are marked so


@pytest.fixture
def sums(tmp_path):
    nodes = "last = Constant <value = int64[1] {1}> ()\n y = ReduceSum <keepdims = 0> (x, last)"
    inputs, outputs = {"x": ("float32", ["batch", "time"])}, {"y": ("float32", ["batch"])}
    return onnx_bundle(tmp_path / "bundle", nodes, inputs, outputs)


@pytest.fixture
def folder(tmp_path):
    """Return a source of one good part, which comes last."""
    write(tmp_path / "in" / "z.parquet", [[1.0, 2.0]] * 3)
    return tmp_path / "in"


@pytest.fixture(params=["local", pytest.param("ray", marks=pytest.mark.needs("ray"))])
def engine(request):
    if request.param == "ray":
        request.getfixturevalue("ray_address")
    return request.param


def write(file, rows, **options):
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"x": floats(rows), "id": list(range(len(rows)))}), file, **options)
    return file


def stays_apart(bundle, source, target, written=3, again=0, **options):
    """Run a source twice, since what is broken is tried again; return what the table of errors says of it."""
    told = []
    for rows in (written, again):
        done = predict(bundle, source, target, progress=False, **options)
        assert pq.read_table(target / "z.parquet").column("y").to_pylist() == [3, 3, 3]
        assert [name for name in own_files(target) if ".partial" in name] == []
        told.append(read_errors(target))
        assert (done.rows, done.errors) == (rows, len(told[-1]))
    assert told[0] == told[1]
    return told[0]


# What is told in the place of what, what is written of it, and each line of the table of errors.
LIES = {
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
    "less than none": ([(ROWS, -5)], 0, (None, 1, "cannot be read: its footer tells of -5 rows")),
}


@pytest.mark.parametrize(("lies", "written", "line"), LIES.values(), ids=LIES)
def test_a_footer_that_lies(sums, folder, tmp_path, lies, written, line):
    file = write(folder / "a.parquet", [[1.0, 1.0]] * ROWS)
    good = file.read_bytes()
    for rows, told, *options in lies:
        tell(file, rows, told, **dict(*options))
    found = stays_apart(sums, folder, tmp_path / "out", written + 3, written)
    row, lines, reason = line
    assert (found[0]["part"], found[0]["row"], len(found)) == ("a.parquet", row, lines)
    assert reason in found[0]["reason"]
    file.write_bytes(good)
    done = predict(sums, folder, tmp_path / "out", progress=False)
    assert (done.rows, done.errors, done.errors_file) == (ROWS, 0, None)


def test_many_rows_that_cannot_be_read_are_one_line(sums, folder, tmp_path):
    file = write(folder / "a.parquet", [[1.0, 1.0]] * ROWS, compression="none", write_page_checksum=True)
    content = bytearray(file.read_bytes())
    content[50] ^= 1  # in the first page
    file.write_bytes(content)
    tell(file, ROWS, 2**45, values=False)
    (line,) = stays_apart(sums, folder, tmp_path / "out")
    assert (line["row"], line["reason"].partition(": ")[0]) == (0, f"rows 0 to {2**45 - 1}")


def test_row_groups_of_which_one_lies(sums, folder, tmp_path):
    """They are read together, and rows are still named by their places."""
    file = write(folder / "a.parquet", [[1.0, float(row)] for row in range(30)], row_group_size=11)  # 11, 11 and 8
    tell(file, 8, 9)
    with pq.ParquetFile(file) as opened:
        assert opened.metadata.num_rows == 30
    tell(file, 30, 31)
    found = stays_apart(sums, folder, tmp_path / "out", 33, 30)
    assert [(each["part"], each["row"]) for each in found] == [("a.parquet", 30)]
    tell(file, 11, 12)  # of the first two, which are found to lack one by one
    tell(file, 31, 33)
    shutil.rmtree(tmp_path / "out")
    found = stays_apart(sums, folder, tmp_path / "out", 33, 30)
    assert [each["row"] for each in found] == [11, 23, 32]
    written = pq.read_table(tmp_path / "out" / "a.parquet").column("y").to_pylist()
    assert written == [1 + row for row in range(30)]


@pytest.mark.slow
def test_rows_that_are_too_large_are_not_read(sums, folder, tmp_path, monkeypatch):
    """A row of zeros is packed to nothing; what it takes the footer tells, before there is room made for it."""
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


@pytest.mark.parametrize("where", [(run_parts, "read_window"), (run_parts, "Results"), (results.Results, "columns")])
def test_memory_that_ends(sums, folder, tmp_path, monkeypatch, where):
    """Of a part whose rows are partly written already: what is left of it is a line among the errors."""
    write(folder / "a.parquet", [[1.0, 1.0]] * 40)
    monkeypatch.setattr(run_parts, "WINDOW_ROWS", 20)
    place, name = where
    honest, calls = getattr(place, name), []

    def short_of_memory(*given):
        calls.append(given)
        if len(calls) in (2, 4):  # the second window of the part, in each of two runs, of which one has the good part
            raise MemoryError
        return honest(*given)

    monkeypatch.setattr(place, name, short_of_memory)
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


def test_a_column_that_cannot_be_written_is_its_part_s_fault(sums, folder, tmp_path, monkeypatch):
    class Picky(pq.ParquetWriter):
        def write(self, table, **options):
            if len(table) == 5:
                raise pa.ArrowNotImplementedError("a type that is not written\nmore of it")
            super().write(table, **options)

    write(folder / "a.parquet", [[1.0]] * 5)
    monkeypatch.setattr(pq, "ParquetWriter", Picky)
    (line,) = stays_apart(sums, folder, tmp_path / "out")
    assert (line["row"], line["reason"]) == (None, "cannot be read: a type that is not written")


def test_names_that_are_no_text(sums, folder, tmp_path):
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


def test_a_key_that_is_no_text(sums, folder, tmp_path):
    """Parquet's strings are UTF-8 if who wrote them saw to it."""
    keys = pa.Array.from_buffers(
        pa.string(), 1, [None, pa.array([0, 2], pa.int32()).buffers()[1], pa.py_buffer(b"a\xff")]
    )
    pq.write_table(pa.table({"x": floats([None]), "id": keys}), folder / "a.parquet")
    (line,) = stays_apart(sums, folder, tmp_path / "out", key="id")
    assert line["key"] == "a\\xff"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes by name here; CI runs Linux")
def test_a_pipe_is_not_waited_for(sums, folder, tmp_path):
    os.mkfifo(folder / "a.parquet")
    (folder / "b.parquet").symlink_to("/dev/zero")
    found = stays_apart(sums, folder, tmp_path / "out")
    assert [each["reason"] for each in found] == ["cannot be read: it is no regular file"] * 2


def test_both_engines_keep_parts_apart(sums, folder, engine, tmp_path):
    tell(write(folder / "a.parquet", [[1.0, 1.0]] * ROWS), ROWS, 2**45, values=False)
    write(folder / "b.parquet", [np.zeros(2_000_000, "float32")])
    (folder / os.fsdecode(b"\xff.parquet")).write_bytes(b"no Parquet")
    found = stays_apart(
        sums, folder, tmp_path / "out", ROWS + 3, ROWS, engine=engine, workers=WORKERS, limit_memory="6M"
    )
    assert [each["part"] for each in found] == ["a.parquet", "b.parquet", "\\udcff.parquet"]


def test_errors_are_capped(monkeypatch):
    monkeypatch.setattr(table_of_errors, "MOST", 3)
    monkeypatch.setattr(table_of_errors, "ALONE", 2)
    errors = Errors()
    errors.add(0, "a", "first")
    errors.add_rows(range(1, 3), "both")
    for row in (4, 7, 9):
        errors.add(row, "key", f"reason {row}")
    errors.add_rows(range(10, 2**62), "unread")
    assert errors.lines() == [
        (0, "a", "first"),
        (1, None, "both"),
        (2, None, "both"),
        (10, None, f"rows 10 to {2**62 - 1}: unread"),
        (4, None, "3 rows of 4 to 9: reason 4"),
    ]


def test_the_first_of_each_of_three_parts_are_named(sums, folder, tmp_path):
    for name in "abcd":
        (folder / f"{name}\n\x1b[2J\u202e.parquet").write_bytes(b"no Parquet")
    write(folder / "A.parquet", [[1.0, 1.0], None, None])
    done = predict(sums, folder, tmp_path / "out", progress=False)
    first, second, third = first_errors(done.errors_file)
    assert first == "A.parquet: row 1: `x` is null, or holds one"
    assert second.startswith("a\n\x1b[2J\u202e.parquet: cannot be read: ")  # escaped where all is printed
    assert third.startswith("b")


# The command's own function, in a process of its own, which pyarrow may bring down.
RUN = "import sys; from keras_attn_export import predict; predict(*sys.argv[1:], progress=False, limit_memory='256M')"


def flipped(folder, count, seed):
    """Write copies of a small table into a folder, a byte of each another one than it was."""
    draw = random.Random(seed)
    content = write(folder / "z.parquet", [[1.0, 2.0]] * 3).read_bytes()
    for number in range(count):
        altered = bytearray(content)
        altered[draw.randrange(len(content))] ^= draw.randrange(1, 256)
        (folder / f"{number:05}.parquet").write_bytes(altered)


def run_flipped(bundle, folder, count, seed):
    flipped(folder / "in", count, seed)
    done = finished(Path(os.sys.executable), "-c", RUN, bundle, folder / "in", folder / "out")
    assert (done.returncode, done.stderr[-2000:]) == (0, "")
    assert pq.read_table(folder / "out" / "z.parquet").column("y").to_pylist() == [3, 3, 3]
    failed = {each["part"] for each in read_errors(folder / "out")}
    for file in (folder / "in").iterdir():
        assert file.name in failed or (folder / "out" / file.name).is_file()
    assert len(failed) > count // 3


@pytest.mark.slow
def test_bytes_that_were_flipped(sums, tmp_path, random_seed):
    run_flipped(sums, tmp_path, FLIPS, random_seed)


@pytest.mark.nightly
def test_many_bytes_that_were_flipped(sums, tmp_path, random_seed, request):
    for chunk in range(-(-request.config.getoption("--fuzz") // FLIPS)):
        run_flipped(sums, tmp_path / str(chunk), FLIPS, random_seed + chunk)
