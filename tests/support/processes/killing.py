"""Kill processes that put bundles in place, and look at what is left: a script, started by test_kill.py.

`python killing.py FOLDER SEED POINTS` prints JSON. It is a process of its own since it forks: from
a process with few threads, in which everything slow is imported once.
"""

import contextlib
import json
import os
import random
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path
from unittest.mock import patch

from onnx_bundles import manifest_of

from keras_attn_export import BundleError, load_bundle
from keras_attn_export._bundle import atomic_folder
from keras_attn_export._bundle.atomic_folder import staged_folder
from keras_attn_export._bundle.folder import seal
from keras_attn_export._standalone.verify import Spec

SYSTEMS = {"exchanges": atomic_folder.ctypes.CDLL, "renames twice": lambda *_, **__: object()}


def make_bundle(folder, name):
    """Write a bundle of five small files that loads; all of them hold `name`."""
    for file in ("model.onnx", "parity/cases.npz", "parity/report.json", "saved_model/variables/variables.index"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"" if file == "model.onnx" else name.encode() * 1000)
    number = [Spec("x", "float32", ())]
    seal(folder, manifest_of(number, [Spec("y", "float32", ())], model=name))
    return folder


def stage(source, target, *, overwrite=True):
    with staged_folder(target, overwrite=overwrite) as folder:
        for path in sorted(source.rglob("*")):  # not by shutil, whose lines are counted where it removes
            copy = folder / path.relative_to(source)
            copy.mkdir() if path.is_dir() else copy.write_bytes(path.read_bytes())


def forked(child):
    """Run a function in a forked process, told to end as the command line is, and return the process's number."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        child()
        code = 0
    except KeyboardInterrupt:
        code = 130
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        os._exit(code)


def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(forked(child), 0)[1])


def command(*arguments):
    def run():
        from keras_attn_export._cli.main import main

        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        sys.exit(main([*map(str, arguments)]))

    return run


def run_watched(run, files, seen, number=-1, deed=None):
    """Run a function, and do a deed at one of its lines in some files: a signal to this process, or Ctrl-C with `None`.

    `seen` gets the file of each such line.
    """

    def trace(frame, event, _):
        if frame.f_code.co_filename not in files:
            return None
        if event == "line":
            seen.append(frame.f_code.co_filename)
            if len(seen) == number:
                if deed is None:
                    raise KeyboardInterrupt
                os.kill(os.getpid(), deed)
        return trace

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)


def whole(target, names):
    """Return which bundle is in place; raises `BundleError` unless one is, and whole."""
    name = load_bundle(target).manifest["model"]
    assert name in names, name
    return str(name)


def lines(folder, rng, points):
    """Stop a process at every line of `atomic_folder.py` that it runs, and at some of `shutil.py`."""
    a, b, c = (make_bundle(folder / name, name) for name in "abc")
    files = {atomic_folder.__file__, shutil.__file__}
    found: Counter[str] = Counter()
    problems = []
    for before in ("a bundle", "nothing"):
        for system, library in SYSTEMS.items():
            with patch.object(atomic_folder.ctypes, "CDLL", library):
                target = fresh(folder, a, before)
                run_watched(lambda: stage(b, target), files, seen := [])  # noqa: B023 - it runs at once
                ours = [number for number, file in enumerate(seen, 1) if file == atomic_folder.__file__]
                others = sorted(set(range(1, len(seen) + 1)) - set(ours))
                for deed in (signal.SIGKILL, None):
                    for number in ours + rng.sample(others, min(points, len(others))):
                        target = fresh(folder, a, before)
                        ended(lambda: run_watched(lambda: stage(b, target), files, [], number, deed))  # noqa: B023
                        left = left_behind(target, c, before, may_be_absent=system == "renames twice")
                        found[f"{before}, {system}: {left}"] += 1
                        if "!" in left:
                            problems.append(f"{before}, {system}, deed {deed}, line {number}: {left}")
    return {"points": sum(found.values()), "found": found, "problems": problems}


def fresh(folder, old, before):
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if before == "a bundle":
        shutil.copytree(old, place / "bundle")
    return place / "bundle"


def left_behind(target, third, before, *, may_be_absent):
    """Return what a stopped process left, with `!` if it should not be so; then export once more and look again."""
    try:
        left = whole(target, {"a", "b"})
    except BundleError as error:
        left = "absent" if not target.exists() else f"half! {error}"
        if before == "a bundle" and left == "absent":
            with contextlib.suppress(BundleError), staged_folder(target, overwrite=True):
                raise BundleError("midway") from None  # an export that fails still puts the old one back
            left = f"{left}, then {whole(target, {'a', 'b'})}" if may_be_absent else "absent!"
    stage(third, target)
    if whole(target, {"c"}) != "c" or os.listdir(target.parent) != ["bundle"]:
        left += f" and {sorted(os.listdir(target.parent))}!"
    return left


if __name__ == "__main__":
    sys.modules["onnxruntime"] = None  # type: ignore[assignment]  # a smaller process forks faster
    where, seed, count = sys.argv[1:]
    print(json.dumps(lines(Path(where), random.Random(int(seed)), int(count))))
