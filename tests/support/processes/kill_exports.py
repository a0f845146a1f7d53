"""Script: stop exports at every line of `atomic_writes.py`, and check the bundle that remains.

`python kill_exports.py FOLDER` prints JSON. It forks for each line, so it is a separate process: one with few threads,
which has done the slow imports once.
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

from handwritten_bundles import build_manifest

from keras_attn_export import BundleError, load_bundle
from keras_attn_export._bundle import atomic_writes
from keras_attn_export._bundle.atomic_writes import atomic_folder, old_path
from keras_attn_export._bundle.bundle_files import finalize_bundle, find_overwrite_objection
from keras_attn_export._format.manifest import Spec


def make_bundle(folder, name):
    """Write a loadable bundle of five small files that contain `name`."""
    for file in ("model.onnx", "parity/cases.npz", "parity/report.json", "saved_model/variables/variables.index"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"" if file == "model.onnx" else name.encode() * 1000)
    inputs = [Spec("x", "float32", ())]
    finalize_bundle(folder, build_manifest(inputs, [Spec("y", "float32", ())], model=name))
    return folder


def stage(source, target, *, overwrite=True):
    with atomic_folder(target, partial(find_overwrite_objection, overwrite=overwrite)) as folder:
        shutil.copytree(source, folder, dirs_exist_ok=True)


def fail_to_export(target):
    with contextlib.suppress(BundleError), atomic_folder(target, partial(find_overwrite_objection, overwrite=True)):
        raise BundleError("the model cannot be exported")


def run_in_fork(function):
    """Run a function in a forked process, and return its exit code: 130 for an interrupt, negative for a signal."""
    if pid := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    code = 1
    try:
        function()
        code = 0
    except KeyboardInterrupt:
        code = 130
    finally:
        os._exit(code)


def run_traced(function, line=0, action=None):
    """Run a function, call `action` at an executed line of `atomic_writes.py`, and return the number of lines."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if frame.f_code.co_filename != atomic_writes.__file__:
            return None
        if event == "line":
            count += 1
            if count == line:
                action()
        return trace

    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)
    return count


def interrupt():
    raise KeyboardInterrupt


def kill():
    os.kill(os.getpid(), signal.SIGKILL)


def load_name(target):
    """Load the bundle, which checks its files, and return its name, the error, or that it is absent."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a restored bundle
            return str(load_bundle(target).manifest["model"])
    except BundleError as error:
        return str(error) if target.exists() else "absent"


def stop_at_each_line(folder):
    """Return the number of stopped processes, and descriptions of wrong results."""
    a, b, c = (make_bundle(folder / name, name) for name in "abc")
    stopped, problems = 0, []
    for before, allowed in ((a, ("a", "b")), (None, ("absent", "b"))):
        lines = run_traced(partial(stage, b, make_target(folder, before)))
        choices = itertools.product(range(1, lines + 1), (kill, interrupt), (load_name, fail_to_export))
        for line, stop, restore in choices:
            target = make_target(folder, before)
            code = run_in_fork(partial(run_traced, partial(stage, b, target), line, stop))
            restore(target)
            # Without `exists`, `load_name` would restore a bundle that `fail_to_export` should have restored.
            state = load_name(target) if target.exists() else "absent"
            stage(c, target)
            after = load_name(target), old_path(target).exists()
            stopped += 1
            if code not in (-signal.SIGKILL, 130) or state not in allowed or after != ("c", False):
                problems.append(f"{stop.__name__} at line {line} before {before}, {restore.__name__}: {state}, {after}")
    return {"stopped": stopped, "problems": problems}


def make_target(folder, old_bundle):
    """Return the path of a bundle in an empty folder, with a copy of `old_bundle` unless it is None."""
    parent = folder / "place"
    shutil.rmtree(parent, ignore_errors=True)
    parent.mkdir()
    if old_bundle is not None:
        shutil.copytree(old_bundle, parent / "bundle")
    return parent / "bundle"


if __name__ == "__main__":
    sys.modules["onnxruntime"] = None  # type: ignore[assignment]  # a smaller process forks faster
    print(json.dumps(stop_at_each_line(Path(sys.argv[1]))))
