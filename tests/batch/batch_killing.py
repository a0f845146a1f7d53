"""Kill runs over tables, and look at what is left: a script, started by test_batch_kills.py.

`python batch_killing.py times|renames|mended BUNDLE SOURCE FOLDER SEED POINTS` prints JSON. As in killing.py, it
is a process of its own that forks. What a run gives that nobody stops is in `FOLDER/whole`, for the test to check; all
others must end up the same, byte for byte.
"""

import itertools
import json
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import onnxruntime  # noqa: F401 - in the parent once, not in every child
import pyarrow.compute
import pyarrow.parquet  # noqa: F401 - as above
from killing import SIGNALS, command, ended, forked, stop

from keras_attn_export._batch.destination import OWN
from keras_attn_export._cli import main  # noqa: F401 - as above

MENDED, BROKEN = "1/part-1.parquet", "broken.parquet"  # below the source; below the folder of `mended`
ENDS = {signal.SIGTERM: 143, signal.SIGINT: 130}


def files_of(folder):
    """Return which file it is, and from when, by the name of what lies in a destination, without what is its own."""
    found = (file for file in folder.rglob("*") if file.is_file() and OWN not in file.parts)
    return {file.relative_to(folder).as_posix(): (file.stat().st_ino, file.stat().st_mtime_ns) for file in found}


def leftovers(folder):
    return sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.partial"))


def made_again(folder, before):
    now = files_of(folder)
    return [f"{name} was made again" for name, place in before.items() if now.get(name) != place]


class Runs:
    def __init__(self, bundle, source, folder):
        self.folder, self.whole, self.source = folder, folder / "whole", Path(source)
        self._bundle = bundle
        begun = time.monotonic()
        self.code = ended(self.run(self.whole))
        self.takes = time.monotonic() - begun

    def run(self, target):
        """Return what runs the command in the process it is called in."""
        return command("predict", self._bundle, self.source, target, "--json", "--batch-size", 4, "--key", "id")

    def fresh(self):
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        return self.folder / "out"

    def end(self, target, *, may_be_made_again=False):
        """Go on to the end, and return what is wrong then; files that are there stay, unless one may be made again."""
        before = {} if may_be_made_again else files_of(target)
        code = ended(self.run(target))
        wrong = [] if code == self.code else [f"exit code {code}"]
        now, wanted = set(files_of(target)), set(files_of(self.whole))
        if now != wanted:
            wrong.append(f"files {sorted(now ^ wanted)}")
        for name in [*(now & wanted), f"{OWN}/errors.parquet"]:
            mine, whole = ((folder / name) for folder in (target, self.whole))
            if mine.is_file() != whole.is_file() or (whole.is_file() and mine.read_bytes() != whole.read_bytes()):
                wrong.append(f"{name} differs")
        return wrong + made_again(target, before) + [f"{name} is left" for name in leftovers(target)]


def times(runs, rng, points):
    """Stop runs at random moments, one to three times each, and let them end."""
    found: Counter[str] = Counter()
    problems, number = [], 0
    while number < points:
        target = runs.fresh()
        for _ in range(min(rng.randint(1, 3), points - number)):
            before, deed, moment = files_of(target), rng.choice(SIGNALS), rng.uniform(0, 1.05 * runs.takes)
            left_before = leftovers(target)  # by a run that was killed; this one may be stopped before it looks
            pid = forked(runs.run(target))
            time.sleep(moment)
            code = stop(pid, deed)
            now, wrong = files_of(target), made_again(target, before)
            if deed != signal.SIGKILL and code not in (ENDS[deed], -deed, runs.code):  # -deed: before it was heeded
                wrong.append(f"exit code {code}")
            if deed != signal.SIGKILL and code != -deed:
                wrong += [f"{name} is left" for name in leftovers(target) if name not in left_before]
            state = "at the end" if code == runs.code else "midway" if now else "before the first part"
            found[f"{deed.name} {state}"] += 1
            problems += [f"point {number}, {deed.name} after {moment:.2f} s: {each}" for each in wrong]
            number += 1
        problems += [f"point {number}, gone on with: {each}" for each in runs.end(target)]
    return {"points": number, "takes": runs.takes, "found": found, "problems": problems}


def renames(runs, rng, points):
    """Kill runs right before every rename, and with two points right after it as well."""
    return killed_everywhere(runs, ["replace"], lambda target: None, (False, True)[:points])


def mended(runs, rng, points):
    """Kill runs that go on when a file is mended, around everything they rename or remove."""
    file, whole, broken = runs.source / MENDED, runs.folder / "good", runs.folder / BROKEN
    shutil.copy(file, whole)

    def before(target):
        shutil.copy(broken, file)
        ended(runs.run(target))
        assert b"cannot be read" in (target / OWN / "errors.parquet").read_bytes()
        shutil.copy(whole, file)

    return killed_everywhere(runs, ["replace", "unlink"], before, (False, True))


def killed_everywhere(runs, calls, before, moments):
    """Kill runs right before or after every call of some methods of `Path`, and let them end.

    `before` makes the destination what it is before the run that is killed; `moments` are whether after the call.
    """
    found: Counter[str] = Counter()
    problems = []
    for after in moments:
        for number in range(1, 1000):
            target = runs.fresh()
            before(target)
            if ended(killed_at(runs, target, calls, number, after=after)) != -signal.SIGKILL:
                break
            found[f"killed {'after' if after else 'before'}"] += 1
            wrong = runs.end(target, may_be_made_again=calls[1:] != [])
            problems += [f"call {number}, {after=}: {each}" for each in wrong]
    return {"points": sum(found.values()), "found": found, "problems": problems}


def killed_at(runs, target, calls, number, *, after):
    numbers = itertools.count(1)

    def watched(honest):
        def call(*arguments, **options):
            now = next(numbers) == number
            try:
                return honest(*arguments, **options) if after or not now else None
            finally:
                if now:
                    os.kill(os.getpid(), signal.SIGKILL)

        return call

    def child():
        for name in calls:
            setattr(Path, name, watched(getattr(Path, name)))
        runs.run(target)()

    return child


if __name__ == "__main__":
    kind, bundle, source, where, seed, count = sys.argv[1:]
    do = {"times": times, "renames": renames, "mended": mended}[kind]
    print(json.dumps(do(Runs(bundle, source, Path(where)), random.Random(int(seed)), int(count))))
