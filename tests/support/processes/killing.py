"""Kill processes that write bundles, and look at what is left: a script, started by test_kill.py.

`python killing.py FOLDER` prints JSON. It is a process of its own since it forks: from one with few threads, in which
everything slow is imported once.
"""

import contextlib
import itertools
import json
import os
import shutil
import signal
import sys
import warnings
from functools import partial
from pathlib import Path

from onnx_bundles import manifest_of

from keras_attn_export import BundleError, _atomic_writes, load_bundle
from keras_attn_export._atomic_writes import atomic_folder, old_name
from keras_attn_export._bundle.folder import seal, unless_replaceable
from keras_attn_export._standalone.verify import Spec


def make_bundle(folder, name):
    """Write a bundle of five small files that loads; all of them hold `name`."""
    for file in ("model.onnx", "parity/cases.npz", "parity/report.json", "saved_model/variables/variables.index"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"" if file == "model.onnx" else name.encode() * 1000)
    number = [Spec("x", "float32", ())]
    seal(folder, manifest_of(number, [Spec("y", "float32", ())], model=name))
    return folder


def stage(source, target, *, overwrite=True):
    with atomic_folder(target, partial(unless_replaceable, overwrite=overwrite)) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)


def fail_to_export(target):
    with contextlib.suppress(BundleError), atomic_folder(target, partial(unless_replaceable, overwrite=True)):
        raise BundleError("the model cannot be exported")


def ended(child):
    """Run a function in a forked process, told to end as the command line is, and return the exit code."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
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


def run_traced(run, number=0, deed=None):
    """Run a function, do a deed at one of the lines of `_atomic_writes.py` that it comes to, and return their count."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != _atomic_writes.__file__:
            return None
        if event == "line":
            count += 1
            if count == number:
                deed()
        return trace

    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)
    return count


def interrupt():
    raise KeyboardInterrupt


def name_of(target):
    """Return which bundle is in place, after checking all of its files, or the error."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a bundle that is restored
            return str(load_bundle(target).manifest["model"])
    except BundleError as error:
        return str(error) if target.exists() else "absent"


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def stop_at_each_line(folder):
    """Return how many processes were stopped, and what was wrong afterwards."""
    a, b, c = (make_bundle(folder / name, name) for name in "abc")
    stopped, problems = 0, []
    for before, allowed in ((a, "ab"), (None, ("absent", "b"))):
        lines = run_traced(partial(stage, b, fresh(folder, before)))
        for number, stop, restore in itertools.product(
            range(1, lines + 1), (kill, interrupt), (name_of, fail_to_export)
        ):
            target = fresh(folder, before)
            ended(partial(run_traced, partial(stage, b, target), number, stop))
            restore(target)
            found = name_of(target) if target.exists() else "absent"
            stage(c, target)
            after = name_of(target), old_name(target).exists()
            stopped += 1
            if found not in allowed or after != ("c", False):
                problems.append(
                    f"{stop.__name__} at line {number} before {before}, {restore.__name__}: {found}, {after}"
                )
    return {"stopped": stopped, "problems": problems}


def fresh(folder, old):
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if old is not None:
        shutil.copytree(old, place / "bundle")
    return place / "bundle"


if __name__ == "__main__":
    sys.modules["onnxruntime"] = None  # type: ignore[assignment]  # a smaller process forks faster
    print(json.dumps(stop_at_each_line(Path(sys.argv[1]))))
