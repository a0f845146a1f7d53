"""Runs tests and writes into the record what they took: `nox -s record`, with `--lines` what of the code they ran."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from . import plan, records
from .measured import Measured

ROOT = Path(__file__).resolve().parents[2]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="nox -s record --", description=__doc__)
    parser.add_argument("--lines", action="store_true", help="record lines, under coverage, in the place of seconds")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="leave what was measured in a folder")
    parser.add_argument("--merge", action="store_true", help="run nothing; merge what --keep has left")
    arguments, of_pytest = parser.parse_known_args(argv)
    with tempfile.TemporaryDirectory() as scratch:
        folder = (arguments.keep or Path(scratch)).resolve()
        code = 0 if arguments.merge else measure(folder, arguments.lines, of_pytest)
        if code not in (0, 1):  # 1: some failed, and are not recorded
            return code
        (write_touched if arguments.lines else write_durations)(folder)
    return code


def measure(folder: Path, lines: bool, of_pytest: Sequence[str]) -> int:
    """Runs tests and leaves in a folder what they took, with how fast the machine was before and after."""
    before = records.calibration()
    environment = os.environ | {"RECORD": str(folder)} | ({"RECORD_LINES": "yes"} if lines else {})
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadscope", "--no-loadscope-reorder"]
    command += ["-q", "--tier", "all", *of_pytest]
    code = subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode
    speeds = [before, records.calibration()]
    (folder / "calibration.json").write_text(json.dumps(speeds), encoding="utf-8")
    print(f"calibration: {speeds[0]:.2f} s before, {speeds[1]:.2f} s after, {records.REFERENCE} s where it is quiet")
    return code


def write_durations(folder: Path) -> None:
    """Merges seconds into the record of the backend in use."""
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    measured = folder / "calibration.json"  # which another session of nox has not left
    speeds = json.loads(measured.read_text(encoding="utf-8")) if measured.exists() else [records.calibration()]
    slower = max(sum(speeds) / len(speeds) / records.REFERENCE, 1.0)
    seen = Measured(folder)
    tests, fixtures = ({name: took / slower for name, took in of.items()} for of in (seen.tests, seen.fixtures))
    known = records.load(backend)
    for gone in [file for file in known.functions if not (ROOT / file).exists()]:
        del known.functions[gone]
    records.save(backend, records.merged(known, tests, fixtures, seen.shares))
    print(f"{len(tests)} tests, {sum(tests.values()) + sum(fixtures.values()):.0f} s, into {records.DURATIONS.name}")


def write_touched(folder: Path) -> None:
    """Merges into the record how many lines within functions of each source file a file of tests runs."""
    seen = Measured(folder)
    merged: dict[str, dict[str, int]] = {}
    for source in {Path(name) for data in seen.lines for name in data.measured_files()}:
        if source.suffix == ".py" and source.is_relative_to(ROOT):  # templates are measured as well
            files = ({records.split(test)[0] for test in tests} for tests in seen.tests_of(source).values())
            if counts := Counter(file for of_line in files for file in of_line):
                merged[str(source.relative_to(ROOT))] = counts
    measured = {file for files in merged.values() for file in files}
    for source, files in plan.touched_lines().items():
        if (ROOT / source).exists():
            kept = {file: count for file, count in files.items() if file not in measured and (ROOT / file).exists()}
            merged[source] = kept | merged.get(source, {})
    names = sorted({file for files in merged.values() for file in files})
    number = {name: str(index) for index, name in enumerate(names)}
    lines = {source: {number[file]: n for file, n in sorted(files.items())} for source, files in sorted(merged.items())}
    records.TOUCHED.write_text(records.as_lines({"tests": names, "lines": lines}, depth=2), encoding="utf-8")
    print(f"{len(names)} files of tests over {len(lines)} files of code, into {records.TOUCHED.name}")


if __name__ == "__main__":
    sys.exit(main())
