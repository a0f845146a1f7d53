"""A million rows take no more memory than a hundred thousand."""

import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from batch_tables import write_source, written_files

ROWS, FEWER = 1_000_000, 100_000


# Linux counts what a process was forked from in what `wait` tells of it, so it says its largest size itself.
COMMAND = """
import re, sys
from pathlib import Path
from keras_attn_export._cli.main import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


@pytest.mark.nightly
@pytest.mark.skipif(not Path("/proc/self/status").is_file(), reason="needs Linux's /proc; CI runs Linux")
@pytest.mark.parametrize("files", [1, 100])
def test_a_million_rows_need_no_more_memory_than_fewer(exported, tmp_path, files):
    peaks = []
    for rows in (FEWER, ROWS):
        source, target, each = tmp_path / f"in-{rows}", tmp_path / f"out-{rows}", rows // files
        names = [f"part-{number:03d}.parquet" for number in range(files)]
        write_source(source, dict.fromkeys(names, each), row_group=each, typical=8, longest=20)
        begun = time.monotonic()
        command = [sys.executable, "-c", COMMAND, "predict", exported, source, target, "--json"]
        done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, timeout=900, check=True)
        peak, seconds = int(done.stdout.split()[-1]) / 1024, time.monotonic() - begun
        print(f"{rows:,} rows in {files} files: {peak:,.0f} MiB, {seconds:.1f} s, {rows / seconds:,.0f} rows a second")
        peaks.append(peak)
        found = written_files(target)
        assert sorted(found) == names
        ids = [pq.read_table(file, columns=["id"])["id"].to_pylist() for name in names for file in found[name]]
        assert [number for column in ids for number in column] == list(range(rows))
    assert peaks[1] - peaks[0] < 60, peaks  # a million of these rows take 600 MB
