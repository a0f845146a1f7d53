"""Runs tests and writes into the record what they took: `nox -s record`, with `--lines` what of the code they ran."""

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from . import plan, records

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
    parts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("seconds.*.json"))]
    tests = {nodeid: took / slower for part in parts for nodeid, took in part["tests"].items()}
    fixtures: dict[str, float] = {}
    for part in parts:
        for name, took in part["fixtures"].items():  # of a session it is made in each process
            fixtures[name] = max(fixtures.get(name, 0.0), took / slower)
    collected = {nodeid for part in parts for nodeid in part["users"]}
    known = records.load(backend)
    for gone in [file for file in known.functions if not (ROOT / file).exists()]:
        del known.functions[gone]
    records.save(backend, records.merged(known, tests, fixtures, collected))
    print(f"{len(tests)} tests, {sum(tests.values()) + sum(fixtures.values()):.0f} s, into {records.DURATIONS.name}")


def write_touched(folder: Path) -> None:
    """Merges into the record how many lines within functions of each source file a file of tests runs."""
    import coverage

    ran: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    users = users_of(folder)
    for path in sorted(folder.glob("lines.*")):
        data = coverage.CoverageData(str(path))
        data.read()
        for file in (Path(file) for file in data.measured_files()):
            if file.suffix == ".py" and file.is_relative_to(ROOT):  # templates are measured as well
                within, contexts = lines_of_functions(file), data.contexts_by_lineno(str(file))
                for line in within & contexts.keys():
                    for test_file in set().union(*(users[context] for context in contexts[line])):
                        ran[str(file.relative_to(ROOT))][test_file].add(line)
    measured = {file for files in ran.values() for file in files}
    merged = {source: {file: len(lines) for file, lines in files.items()} for source, files in ran.items()}
    for source, files in plan.touched_lines().items():
        if (ROOT / source).exists():
            kept = {file: count for file, count in files.items() if file not in measured and (ROOT / file).exists()}
            merged[source] = kept | merged.get(source, {})
    names = sorted({file for files in merged.values() for file in files})
    number = {name: str(index) for index, name in enumerate(names)}
    lines = {source: {number[file]: n for file, n in sorted(files.items())} for source, files in sorted(merged.items())}
    records.TOUCHED.write_text(records.as_lines({"tests": names, "lines": lines}, depth=2), encoding="utf-8")
    print(f"{len(names)} files of tests over {len(lines)} files of code, into {records.TOUCHED.name}")


def users_of(folder: Path) -> dict[str, set[str]]:
    """For each context of coverage, a test or a shared fixture, the files of tests: none for the import of modules."""
    users: dict[str, set[str]] = defaultdict(set)
    for path in folder.glob("seconds.*.json"):
        for nodeid, names in json.loads(path.read_text(encoding="utf-8"))["users"].items():
            for context in (nodeid, *(f"fixture {name}" for name in names)):
                users[context].add(records.split(nodeid)[0])
    return users


def lines_of_functions(path: Path) -> set[int]:
    """Lines that run when a function is called, and not when the module is imported."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    functions = [node for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return {line for node in functions for line in range(node.body[0].lineno, node.end_lineno + 1)}


if __name__ == "__main__":
    sys.exit(main())
