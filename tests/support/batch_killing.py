"""Kill runs over tables, and look at what is left: a script, started by test_batch_kills.py.

`python batch_killing.py times|renames|mended|lines BUNDLE SOURCE FOLDER SEED POINTS` prints JSON. As in killing.py, it
is a process of its own that forks. What a run gives that nobody stops is in `FOLDER/whole`, for the test to check; all
others must end up the same, byte for byte.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

import onnxruntime  # noqa: F401 - in the parent once, not in every child
import pyarrow.parquet  # noqa: F401 - as above
from killing import SIGNALS, forked, forked_and_done, quiet, stop, stop_at, with_trace

from keras_attn_export import _whole_file
from keras_attn_export._batch import destination, part_file
from keras_attn_export._batch.destination import OWN
from keras_attn_export._cli.main import main

WATCHED = {module.__file__ for module in (_whole_file, destination, part_file)}
MENDED, BROKEN = "1/part-1.parquet", "broken.parquet"  # below the source; below the folder of `mended`
ENDS = {signal.SIGTERM: 143, signal.SIGINT: 130}


def files_of(folder: Path) -> dict[str, tuple[int, int]]:
    """Return which file it is, and from when, by the name of what lies in a destination, without what is its own."""
    found = (file for file in folder.rglob("*") if file.is_file() and OWN not in file.parts)
    return {file.relative_to(folder).as_posix(): (file.stat().st_ino, file.stat().st_mtime_ns) for file in found}


def leftovers(folder: Path) -> list[str]:
    """Return what lies among files that are being written."""
    return sorted(os.listdir(folder / OWN / "partial")) if (folder / OWN / "partial").is_dir() else []


def problems_of(folder: Path, whole: Path, before: dict[str, tuple[int, int]]) -> list[str]:
    """Return what is wrong with a destination that was gone on with to the end, where `before` was there before."""
    now, wanted, found = files_of(folder), files_of(whole), []
    if set(now) != set(wanted):
        found.append(f"files {sorted(set(now) ^ set(wanted))}")
    same = [*(set(now) & set(wanted)), f"{OWN}/errors.parquet"]
    found += [f"{name} differs" for name in same if bytes_of(folder, name) != bytes_of(whole, name)]
    return found + made_again(folder, before) + [f"{name} is left" for name in leftovers(folder)]


def made_again(folder: Path, before: dict[str, tuple[int, int]]) -> list[str]:
    """Return which files are not those of before."""
    now = files_of(folder)
    return [f"{name} was made again" for name, place in before.items() if now.get(name) != place]


def bytes_of(folder: Path, name: str) -> bytes | None:
    """Return what is in a file, if it is there."""
    return (folder / name).read_bytes() if (folder / name).is_file() else None


class Runs:
    """Runs of one source through one bundle, each in a forked process."""

    def __init__(self, bundle: str, source: str, folder: Path) -> None:
        self.folder, self.whole, self.source = folder, folder / "whole", Path(source)
        self._start = ["predict", bundle, source]
        self._options = ["--json", "--batch-size", "4", "--key", "id"]
        begun = time.monotonic()
        self.code = forked_and_ended(self.run(self.whole))
        self.takes = time.monotonic() - begun

    def run(self, target: Path) -> Callable[[], None]:
        """Return what runs the command in the process it is called in."""
        return lambda: sys.exit(quiet(main, [*self._start, str(target), *self._options]))

    def end(self, target: Path, *, made_again: bool = False) -> list[str]:
        """Go on to the end, and return what is wrong then; files that are there stay, unless one may be made again."""
        before = {} if made_again else files_of(target)
        code = forked_and_ended(self.run(target))
        wrong = [] if code == self.code else [f"exit code {code}"]
        return wrong + problems_of(target, self.whole, before)


def times(runs: Runs, rng: random.Random, points: int) -> dict[str, object]:
    """Stop runs at random moments, one to three times each, and let them end."""
    found: Counter[str] = Counter()
    problems, number = [], 0
    while number < points:
        target = fresh(runs)
        for _ in range(min(rng.randint(1, 3), points - number)):
            before, deed, moment = files_of(target), rng.choice(SIGNALS), rng.uniform(0, 1.05 * runs.takes)
            pid = forked(runs.run(target))
            time.sleep(moment)
            code = os.waitstatus_to_exitcode(stop(pid, deed, patience=60))
            now, wrong = files_of(target), made_again(target, before)
            if deed != signal.SIGKILL and code not in (ENDS[deed], -deed, runs.code):  # -deed: before it was heeded
                wrong.append(f"exit code {code}")
            if deed != signal.SIGKILL and code != -deed:
                wrong += [f"{name} is left" for name in leftovers(target)]
            state = "at the end" if code == runs.code else "midway" if now else "before the first part"
            found[f"{deed.name} {state}"] += 1
            problems += [f"point {number}, {deed.name} after {moment:.2f} s: {each}" for each in wrong]
            number += 1
        problems += [f"point {number}, gone on with: {each}" for each in runs.end(target)]
    return {"points": number, "takes": runs.takes, "found": found, "problems": problems}


def renames(runs: Runs, rng: random.Random, points: int) -> dict[str, object]:
    """Kill runs right before every rename, and with two points right after it as well."""
    return killed_everywhere(runs, ["replace"], lambda target: None, (False, True)[:points])


def mended(runs: Runs, rng: random.Random, points: int) -> dict[str, object]:
    """Kill runs that go on when a file is mended, around everything they rename or remove."""
    file, whole, broken = (Path(place) for place in (runs.source / MENDED, runs.folder / "good", runs.folder / BROKEN))
    shutil.copy(file, whole)

    def before(target: Path) -> None:
        shutil.copy(broken, file)
        forked_and_ended(runs.run(target))
        assert b"cannot be read" in (target / OWN / "errors.parquet").read_bytes()
        shutil.copy(whole, file)

    return killed_everywhere(runs, ["replace", "unlink"], before, (False, True))


def killed_everywhere(
    runs: Runs, calls: list[str], before: Callable[[Path], None], moments: Sequence[bool]
) -> dict[str, object]:
    """Kill runs right before or after every call of some methods of `Path`, and let them end.

    `before` makes the destination what it is before the run that is killed; `moments` are whether after the call.
    """
    found: Counter[str] = Counter()
    problems = []
    for after in moments:
        for number in range(1, 1000):
            target = fresh(runs)
            before(target)
            if forked_and_ended(killed_at(runs, target, calls, number, after=after)) != -signal.SIGKILL:
                break
            found[f"killed {'after' if after else 'before'}"] += 1
            problems += [f"call {number}, {after=}: {each}" for each in runs.end(target, made_again=calls[1:] != [])]
    return {"points": sum(found.values()), "found": found, "problems": problems}


def killed_at(runs: Runs, target: Path, calls: list[str], number: int, *, after: bool) -> Callable[[], None]:
    """Return a run that kills itself at one of its calls."""
    seen = []

    def watched(honest: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **options: object) -> object:
            seen.append(arguments)
            own = len(seen)
            try:
                return honest(*arguments, **options) if own != number or after else None
            finally:
                if own == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    def child() -> None:
        for name in calls:
            setattr(Path, name, watched(getattr(Path, name)))
        runs.run(target)()

    return child


def forked_and_ended(child: Callable[[], None]) -> int:
    """Run a function in a forked process and return its exit code."""
    return os.waitstatus_to_exitcode(os.waitpid(forked(child), 0)[1])


def lines(runs: Runs, rng: random.Random, points: int) -> dict[str, object]:
    """Stop runs at lines that write: killed, or by Ctrl-C."""
    import killing

    killing.WATCHED = WATCHED
    counted = runs.folder / "lines"

    def count() -> None:
        seen: list[str] = []
        with contextlib.suppress(SystemExit):
            with_trace(stop_at(-1, None, seen), runs.run(runs.folder / "counted"))
        counted.write_text(str(len(seen)), encoding="ascii")

    forked_and_done(count)
    number_of_lines = int(counted.read_text(encoding="ascii"))
    found: Counter[str] = Counter()
    problems = []
    for deed in (signal.SIGKILL, None):
        for number in sorted(rng.sample(range(1, number_of_lines + 1), min(points, number_of_lines))):
            target = fresh(runs)
            code = forked_and_ended(lambda: with_trace(stop_at(number, deed, []), runs.run(target)))  # noqa: B023
            wrong = [f"{name} is left" for name in leftovers(target) if deed is None]
            name = "Ctrl-C" if deed is None else "killed"
            found[f"{name}, exit code {code}"] += 1
            problems += [f"{name} at line {number}: {each}" for each in wrong + runs.end(target)]
    return {"points": sum(found.values()), "lines": number_of_lines, "found": found, "problems": problems}


def fresh(runs: Runs) -> Path:
    """Return a destination where nothing was begun."""
    target = runs.folder / "out"
    shutil.rmtree(target, ignore_errors=True)
    return target


if __name__ == "__main__":
    kind, bundle_text, source_text, where, seed_text, points_text = sys.argv[1:]
    wanted = {"times": times, "renames": renames, "mended": mended, "lines": lines}[kind]
    found_here = wanted(Runs(bundle_text, source_text, Path(where)), random.Random(int(seed_text)), int(points_text))
    print(json.dumps(found_here))
