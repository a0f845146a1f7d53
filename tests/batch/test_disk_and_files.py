"""A disk that is full, files that are broken: one sentence, and nothing lost."""

import errno
import re
import shutil
import sys

import pyarrow.parquet as pq
import pytest
from batch_killing import files_of, leftovers
from batch_tables import make_table, own_files, plain_loop, read_errors, same_rows, write_source, written_files
from bundles import assert_one_line, finished, flip_byte

from keras_attn_export import ExportError, predict

# The command, once for each limit, in a process whose files may not grow beyond so many bytes.
LIMITED = """
import resource, sys
from keras_attn_export._cli.main import main
limits, bundle, source, targets = sys.argv[1].split(), *sys.argv[2:4], sys.argv[4:]
for limit, target in zip(limits, targets, strict=True):
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), resource.RLIM_INFINITY))
    assert main(["predict", bundle, source, target, "--workers", "1"]) == 1
"""
# The command, with a disk of its own of so many bytes at its destination, which it copies to another place at the end.
ON_A_SMALL_DISK = """
mount -t tmpfs -o size="$1" none "$2" || exit 99
"$3" -m keras_attn_export predict "$4" "$5" "$2/out" --engine ray --workers 1
code=$?
cp -a "$2/out" "$6"
umount "$2"
exit $code
"""


def predicted(bundle, source, target, **options):
    return predict(bundle, source, target, progress=False, **options)


def largest_output(bundle, source, folder):
    """Return the size of the largest file that a whole run writes."""
    predicted(bundle, source, folder)
    return max(file.stat().st_size for (file,) in written_files(folder).values())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs limits of a process; CI runs Linux")
def test_a_file_that_may_not_grow(exported, tmp_path):
    """The third part is larger than a file may be here, as on a disk without room: it is not there, two others are.

    Then there is no room even for the manifest.
    """
    source = write_source(tmp_path / "in", {f"part-{n}.parquet": 200 if n == 2 else 20 for n in range(4)})
    limit = largest_output(exported, source, tmp_path / "whole") // 2
    targets = tmp_path / "some", tmp_path / "none"
    done = finished(sys.executable, "-c", LIMITED, f"{limit} 10", exported, source, *targets)
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
    some, none = done.stderr.splitlines(keepends=True)
    for said in some, none:
        assert_one_line(said, "error: Cannot write ")
    assert "part-2.parquet: File too large" in some
    goes_on_with_room(exported, source, targets[0], {"part-0.parquet", "part-1.parquet"})
    goes_on_with_room(exported, source, targets[1], set())


def test_a_part_that_cannot_be_begun_leaves_the_one_before(exported, tmp_path, monkeypatch):
    source, target = write_source(tmp_path / "in", {f"part-{n}.parquet": 5 for n in range(2)}), tmp_path / "out"
    begun = []

    class Limited(pq.ParquetWriter):
        def __init__(self, *given, **options):
            begun.append(given)
            if len(begun) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            super().__init__(*given, **options)

    monkeypatch.setattr(pq, "ParquetWriter", Limited)
    with pytest.raises(ExportError, match=r"Cannot write .*part-1"):
        predicted(exported, source, target)
    monkeypatch.undo()
    goes_on_with_room(exported, source, target, {"part-0.parquet"})


def can_mount():
    """Tell whether a process may have a disk of its own, as root or as its own namespace's."""
    probe = "unshare", "-rm", "sh", "-c", "mount -t tmpfs none /mnt"
    return shutil.which("unshare") is not None and finished(*probe).returncode == 0


@pytest.mark.skipif(not can_mount(), reason="may not mount a disk here; test_a_file_that_may_not_grow runs everywhere")
@pytest.mark.slow
@pytest.mark.needs("ray")
def test_a_disk_that_is_full_under_workers_of_ray(exported, tmp_path):
    source = write_source(tmp_path / "in", {f"part-{number}.parquet": 100 for number in range(8)})
    size = int(4.5 * largest_output(exported, source, tmp_path / "whole"))
    (tmp_path / "disk").mkdir()
    places = tmp_path / "disk", sys.executable, exported, source, tmp_path / "out"
    done = finished("unshare", "-rm", "sh", "-c", ON_A_SMALL_DISK, "sh", size, *places)
    assert (done.returncode, done.stdout) == (1, ""), done.stderr
    assert_one_line(done.stderr, "error: Cannot write ")
    assert "No space left on device" in done.stderr
    done_before = set(files_of(tmp_path / "out"))
    assert 3 <= len(done_before) < 8
    goes_on_with_room(exported, source, tmp_path / "out", done_before)


def goes_on_with_room(bundle, source, target, expected):
    """Check what a run left that found no room, and that another one ends well."""
    before = files_of(target)
    assert set(before) == expected
    assert leftovers(target) == []
    done = predicted(bundle, source, target)
    assert (done.errors, done.resumed) == (0, len(before))
    assert {name: place for name, place in files_of(target).items() if name in before} == before
    same_rows(target, plain_loop(bundle, source))


def other_columns(file):
    table = pq.read_table(file)
    pq.write_table(table.rename_columns([name.replace("keys", "clefs") for name in table.column_names]), file)


def gone(file):
    file.unlink()
    file.symlink_to("nowhere")


DAMAGES = {
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-100]), "cannot be read: "),
    "empty": (lambda file: file.write_bytes(b""), "cannot be read: "),
    "other columns": (other_columns, "has no column `keys`, an input of the model"),
    "gone": (gone, "cannot be read: .*No such file"),
}


@pytest.mark.parametrize(("damage", "reason"), DAMAGES.values(), ids=DAMAGES)
def test_a_broken_file_among_others(exported, tmp_path, damage, reason):
    """All others are done; when it is mended it is done too, and nothing else."""
    source, target = tmp_path / "in", tmp_path / "out"
    write_source(source, {f"part-{number}.parquet": 3 for number in range(6)})
    oracle, file = plain_loop(exported, source), source / "part-1.parquet"
    shutil.copy(file, tmp_path / "kept")
    damage(file)
    done = predicted(exported, source, target)
    assert (done.rows, done.errors, done.parts) == (15, 1, 6)
    (error,) = read_errors(target)
    assert (error["part"], error["row"], error["key"]) == (file.name, None, None)
    assert re.match(reason, error["reason"])
    assert leftovers(target) == []
    same_rows(target, {name: rows for name, rows in oracle.items() if name != file.name})
    before = files_of(target)

    again = predicted(exported, source, target)
    assert (again.rows, again.errors, again.resumed) == (0, 1, 5)
    file.unlink()
    shutil.copy(tmp_path / "kept", file)
    mended = predicted(exported, source, target)
    assert (mended.rows, mended.errors, mended.errors_file, mended.resumed) == (3, 0, None, 5)
    assert own_files(target) == ["lock", "manifest.json"]
    assert {name: place for name, place in files_of(target).items() if name in before} == before
    same_rows(target, oracle)


@pytest.mark.parametrize("compression", ["snappy", "none"])
def test_a_flipped_bit_in_a_page_of_data(exported, tmp_path, compression):
    """Files with checksums of their pages say so; the rows of that page and what stands behind them are errors."""
    source = tmp_path / "in"
    source.mkdir()
    options = {"compression": compression, "write_page_checksum": True, "row_group_size": 20}
    for number in range(3):
        table = make_table(60, seed=number, first_id=60 * number)
        pq.write_table(table, source / f"part-{number}.parquet", **options)
    oracle = plain_loop(exported, source)
    shutil.copy(source / "part-1.parquet", tmp_path / "kept")
    flip_byte(source / "part-1.parquet")  # the middle is among the values of the second row group
    done = predicted(exported, source, tmp_path / "out", key="id")
    errors = read_errors(tmp_path / "out")
    assert [(each["part"], each["row"]) for each in errors] == [("part-1.parquet", row) for row in range(20, 40)]
    assert all("cannot be read" in each["reason"] for each in errors)
    assert (done.rows, done.errors) == (160, 20)
    same_rows(tmp_path / "out", oracle, without=range(80, 100))

    shutil.copy(tmp_path / "kept", source / "part-1.parquet")
    mended = predicted(exported, source, tmp_path / "out", key="id")
    assert (mended.rows, mended.errors) == (60, 0)
    same_rows(tmp_path / "out", oracle)
    assert own_files(tmp_path / "out") == ["lock", "manifest.json"]
