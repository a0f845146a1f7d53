"""Kill processes that put bundles in place, and look at what is left: a script, started by test_kill.py.

`python killing.py lines|exports FOLDER SEED POINTS` prints JSON. It is a process of its own since it forks: from
a process with few threads, in which everything slow is imported once.
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
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from keras_attn_export import BundleError, load_bundle
from keras_attn_export._bundle import atomic_folder
from keras_attn_export._bundle.atomic_folder import staged_folder
from keras_attn_export._bundle.bundle import seal

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
WATCHED = {atomic_folder.__file__, shutil.__file__}


def make_bundle(folder: Path, name: str) -> Path:
    """Write a bundle of five small files that loads; all of them hold `name`."""
    for file in ("model.onnx", "parity/cases.npz", "parity/report.json", "saved_model/variables/variables.index"):
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(b"" if file == "model.onnx" else name.encode() * 1000)
    seal(folder, {"model": name, "inputs": [], "outputs": [], "parity": {}, "lowest_onnxruntime": "1.15"})
    return folder


def stage(source: Path, target: Path, *, overwrite: bool = True) -> None:
    """Put a copy of a bundle in place."""
    with staged_folder(target, overwrite=overwrite) as folder:
        for path in sorted(source.rglob("*")):  # not by shutil, whose lines are counted where it removes
            copy = folder / path.relative_to(source)
            copy.mkdir() if path.is_dir() else copy.write_bytes(path.read_bytes())


def fail(target: Path) -> None:
    """Do what an export does that finds a mismatch."""
    with staged_folder(target, overwrite=True):
        raise BundleError("midway")


def forked(child: Callable[[], None]) -> int:
    """Run a function in a forked process and return the process's number."""
    if pid := os.fork():
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, terminate)
        child()
        code = 0
    except BundleError:
        code = 3
    except KeyboardInterrupt:
        code = 130
    except SystemExit as stop:
        code = int(stop.code or 0)
    finally:
        os._exit(code)


def stop(pid: int, deed: signal.Signals, patience: float) -> int:
    """Send a signal and return the exit status.

    Python drops the exception of a handler that runs while an object is being deleted: such a process goes on, and is
    killed after a while.
    """
    os.kill(pid, deed)
    until = time.monotonic() + patience
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.002)
    os.kill(pid, signal.SIGKILL)
    return os.waitpid(pid, 0)[1]


def terminate(*_: object) -> None:
    """Do what the command line does when it is told to end."""
    raise SystemExit(143)


def whole(target: Path, names: set[str]) -> str:
    """Return which bundle is in place; raises `BundleError` unless one is, and whole."""
    name = load_bundle(target).manifest["model"]
    assert name in names, name
    return str(name)


def stop_at(number: int, deed: int | None, seen: list[str]) -> Callable[..., object]:
    """Return a trace function that does the deed at a line: a signal to this process, or Ctrl-C with `None`.

    `seen` gets the file of every line that is run.
    """

    def trace(frame: FrameType, event: str, _: object) -> object:
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            seen.append(frame.f_code.co_filename)
            if len(seen) == number:
                if deed is None:
                    raise KeyboardInterrupt
                os.kill(os.getpid(), deed)
        return trace

    return trace


def lines(folder: Path, seed: int, points: int) -> dict[str, object]:
    """Stop a process at every line of `atomic_folder.py` that it runs, and at some of `shutil.py`."""
    rng = random.Random(seed)
    a, b, c = (make_bundle(folder / name, name) for name in "abc")
    found: Counter[str] = Counter()
    problems = []
    for before in ("a bundle", "nothing"):
        for system in ("exchanges", "renames twice"):
            if system == "renames twice":
                atomic_folder.ctypes.CDLL = lambda *_, **__: object()  # type: ignore[assignment,misc]
            target = fresh(folder, a, before)
            with_trace(stop_at(-1, None, seen := []), lambda: stage(b, target))  # noqa: B023 - it runs at once
            ours = [number for number, file in enumerate(seen, 1) if file == atomic_folder.__file__]
            others = sorted(set(range(1, len(seen) + 1)) - set(ours))
            for deed in (signal.SIGKILL, None):
                for number in ours + rng.sample(others, min(points, len(others))):
                    target = fresh(folder, a, before)
                    pid = forked(lambda: with_trace(stop_at(number, deed, []), lambda: stage(b, target)))  # noqa: B023
                    os.waitpid(pid, 0)
                    left = left_behind(target, c, before, may_be_absent=system == "renames twice")
                    found[f"{before}, {system}: {left}"] += 1
                    if "!" in left:
                        problems.append(f"{before}, {system}, deed {deed}, line {number}: {left}")
            atomic_folder.ctypes.CDLL = CDLL  # type: ignore[misc]
    return {"points": sum(found.values()), "found": found, "problems": problems}


CDLL = atomic_folder.ctypes.CDLL


def with_trace(trace: Callable[..., object], run: Callable[[], None]) -> None:
    """Run under a trace function."""
    sys.settrace(trace)
    try:
        run()
    finally:
        sys.settrace(None)


def fresh(folder: Path, old: Path, before: str) -> Path:
    """Return a target in an empty folder, with a bundle at it or nothing."""
    place = folder / "place"
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    if before == "a bundle":
        shutil.copytree(old, place / "bundle")
    return place / "bundle"


def left_behind(target: Path, third: Path, before: str, *, may_be_absent: bool) -> str:
    """Return what a stopped process left, with `!` if it should not be so; then export once more and look again."""
    try:
        left = whole(target, {"a", "b"})
    except BundleError as error:
        left = "absent" if not target.exists() else f"half! {error}"
        if before == "a bundle" and left == "absent":
            with contextlib.suppress(BundleError):
                fail(target)  # an export that fails still puts the old one back
            left = f"{left}, then {whole(target, {'a', 'b'})}" if may_be_absent else "absent!"
    stage(third, target)
    if whole(target, {"c"}) != "c" or os.listdir(target.parent) != ["bundle"]:
        left += f" and {sorted(os.listdir(target.parent))}!"
    return left


def exports(folder: Path, seed: int, points: int) -> dict[str, object]:
    """Stop real exports, run by the command line, at random moments from their start to just after their end."""
    import keras  # noqa: F401 - in the parent once, not in every child
    import tf2onnx  # noqa: F401 - as above
    from bundles import small_model

    from keras_attn_export._cli.main import main
    from keras_attn_export._export import contents  # noqa: F401 - as above

    rng = random.Random(seed)
    target, model = folder / "place" / "bundle", folder / "model.keras"
    forked_and_done(lambda: small_model().save(model))
    arguments = ["export", str(model), str(target), "--overwrite", "--json"]
    started = time.monotonic()
    forked_and_done(lambda: sys.exit(quiet(main, arguments)))
    takes = time.monotonic() - started
    found: Counter[str] = Counter()
    problems = []
    for point in range(points):
        old = target.stat().st_ino
        pid = forked(lambda: sys.exit(quiet(main, arguments)))
        moment = rng.uniform(0.0, 1.1 * takes)
        time.sleep(moment)
        name = rng.choice(SIGNALS)
        status = stop(pid, name, patience=60)
        try:
            load_bundle(target)
            left = "old" if target.stat().st_ino == old else "new"
        except BundleError as error:
            left = f"half! {error}"
        beside = [name for name in os.listdir(target.parent) if name != "bundle"]
        found[f"{name.name} {left}"] += 1
        if "!" in left or (beside and name != signal.SIGKILL):
            problems.append(f"point {point}, {name.name} after {moment:.2f} s: {left}, {beside}, status {status}")
    stage(shutil.copytree(target, folder / "copy"), target)
    beside = [name for name in os.listdir(target.parent) if name != "bundle"]
    return {"points": points, "takes": takes, "found": found, "problems": problems, "beside": beside}


def forked_and_done(child: Callable[[], None]) -> None:
    """Run a function in a forked process and require that it does well."""
    assert os.waitpid(forked(child), 0)[1] == 0


def quiet(function: Callable[[list[str]], int], arguments: list[str]) -> int:
    """Call a function with its output thrown away."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    return function(arguments)


if __name__ == "__main__":
    if sys.argv[1] != "exports":
        sys.modules["onnxruntime"] = None  # type: ignore[assignment]  # a smaller process forks faster
    kind, where, seed_text, points_text = sys.argv[1:]
    print(json.dumps({"lines": lines, "exports": exports}[kind](Path(where), int(seed_text), int(points_text))))
