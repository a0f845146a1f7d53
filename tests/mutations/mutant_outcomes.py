"""What becomes of a mutant of a bundle's ONNX file, in a process of its own: onnxruntime ends its own on some."""

import os
import shutil
from multiprocessing import get_context
from pathlib import Path

import numpy as np

from keras_attn_export import Bundle, ExportError, verify_bundle
from keras_attn_export._bundle.bundle_files import finalize_bundle
from keras_attn_export._format.compare import scale_of
from keras_attn_export._format.interruptible_session import open_session, run_session
from keras_attn_export._format.manifest import Manifest
from keras_attn_export._format.names import MANIFEST, MODEL

ENDLESS = 20  # seconds after which the loop of a mutant is taken to go on for ever

Outputs = dict[str, np.ndarray]
Judged = tuple[str, float, float]  # the outcome, how much it changes, and how much of the limit where it passed
BROKEN = "broken", 0.0, 0.0  # a mutant that onnxruntime refuses, or crashes on, or runs for ever


class Judge:
    """Holds a bundle without a fault, and inputs on which to see a change."""

    def __init__(self, bundle: Bundle, fresh: list[Outputs]) -> None:
        self._bundle, self._fresh = bundle, fresh
        right = open_session(bundle.path / MODEL)
        self._expected = [run_session(right, inputs) for inputs in fresh]

    def judge(self, mutant: bytes, visible: float) -> Judged:
        """What becomes of a mutant; of one on which the process ends, or goes on for ever, that it is broken."""
        context = get_context("fork")
        answer, sent = context.Pipe(duplex=False)
        process = context.Process(target=lambda: sent.send(self._judged(mutant, visible)))
        process.start()
        sent.close()
        try:
            return answer.recv() if answer.poll(ENDLESS) else BROKEN
        except EOFError:
            return BROKEN
        finally:
            process.kill()
            process.join()
            answer.close()

    def _judged(self, mutant: bytes, visible: float) -> Judged:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # where onnxruntime says what is wrong with mutants
        folder = self._bundle.path.with_name("mutant")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._bundle.path, folder)
        (folder / MODEL).write_bytes(mutant)
        try:
            session = open_session(folder / MODEL)
            found = [run_session(session, inputs) for inputs in self._fresh]
        except ExportError:
            return BROKEN
        change = max(map(change_of, self._expected, found))
        if change < visible:
            return "invisible", change, 0.0
        seal_again(folder, self._bundle.manifest)
        try:
            report = verify_bundle(folder)
        except ExportError:
            return "caught", change, 0.0
        return "passed", change, max(row.of_limit for row in report.rows)


def seal_again(folder: Path, manifest: dict) -> None:
    """Seals what is in a folder now."""
    (folder / MANIFEST).unlink()
    finalize_bundle(folder, Manifest.from_dict(manifest))


def change_of(expected: Outputs, actual: Outputs) -> float:
    """The largest change of a number, of what stands beside it; infinite where a shape or an integer differs."""
    largest = 0.0
    for name, array in expected.items():
        other = actual[name]
        if (other.shape, other.dtype) != (array.shape, array.dtype):
            return np.inf
        if array.dtype.kind != "f":
            largest = largest if (array == other).all() else np.inf
            continue
        if not np.array_equal(np.isfinite(array), np.isfinite(other)):
            return np.inf
        wide = array.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.abs(wide - other) / scale_of(wide)
        largest = max(largest, float(np.nanmax(np.where(np.isnan(shares), 0, shares), initial=0.0)))
    return largest
