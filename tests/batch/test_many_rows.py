"""A million rows take no more memory than a hundred thousand."""

import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from batch_tables import write_source, written_files

ROWS, FEWER = 1_000_000, 100_000

# Prints its own largest size: the size that `wait` returns includes the process that forked it.
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
        command = [sys.executable, "-c", COMMAND, "predict", exported, source, target, "--json"]
        done = subprocess.run([*map(str, command)], stdout=subprocess.PIPE, text=True, timeout=900, check=True)
        peaks.append(int(done.stdout.split()[-1]) / 1024)
        found = written_files(target)
        assert sorted(found) == names
        ids = [pq.read_table(file, columns=["id"])["id"].to_pylist() for name in names for file in found[name]]
        assert [number for column in ids for number in column] == list(range(rows))
    assert peaks[1] - peaks[0] < 60, peaks  # a million of these rows take 600 MB
