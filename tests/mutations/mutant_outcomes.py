"""Outcome of the parity check for a mutant of a bundle's ONNX file, in a subprocess: onnxruntime may crash."""

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

TIMEOUT_SECONDS = 20  # a mutant may have an endless loop

Outputs = dict[str, np.ndarray]
Outcome = tuple[str, float, float]  # its name, the change of outputs, and the share of the limit if the check passes
BROKEN = "broken", 0.0, 0.0  # onnxruntime rejects the mutant, crashes or does not end


class MutantChecker:
    """A bundle, and inputs on which its outputs and those of its mutants are compared."""

    def __init__(self, bundle: Bundle, inputs: list[Outputs]) -> None:
        self._bundle, self._inputs = bundle, inputs
        session = open_session(bundle.path / MODEL)
        self._expected = [run_session(session, arrays) for arrays in inputs]

    def check(self, mutant: bytes, min_change: float) -> Outcome:
        """Return the outcome of a mutant from a subprocess; "broken" if the process crashes or does not end."""
        context = get_context("fork")
        answer, sender = context.Pipe(duplex=False)
        process = context.Process(target=lambda: sender.send(self._check_in_process(mutant, min_change)))
        process.start()
        sender.close()
        try:
            return answer.recv() if answer.poll(TIMEOUT_SECONDS) else BROKEN
        except EOFError:
            return BROKEN
        finally:
            process.kill()
            process.join()
            answer.close()

    def _check_in_process(self, mutant: bytes, min_change: float) -> Outcome:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # onnxruntime writes errors of mutants to stderr
        folder = self._bundle.path.with_name("mutant")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self._bundle.path, folder)
        (folder / MODEL).write_bytes(mutant)
        try:
            session = open_session(folder / MODEL)
            outputs = [run_session(session, arrays) for arrays in self._inputs]
        except ExportError:
            return BROKEN
        change = max(map(measure_change, self._expected, outputs))
        if change < min_change:
            return "invisible", change, 0.0
        refresh_manifest(folder, self._bundle.manifest)
        try:
            report = verify_bundle(folder)
        except ExportError:
            return "caught", change, 0.0
        return "passed", change, max(row.of_limit for row in report.rows)


def refresh_manifest(folder: Path, manifest: dict) -> None:
    """Write the manifest again, with the checksums of the present files."""
    (folder / MANIFEST).unlink()
    finalize_bundle(folder, Manifest.from_dict(manifest))


def measure_change(expected: Outputs, actual: Outputs) -> float:
    """Return the largest change as a share of the scale; infinity if a shape, an integer or a special value differs."""
    largest = 0.0
    for name, array in expected.items():
        changed = actual[name]
        if (changed.shape, changed.dtype) != (array.shape, array.dtype):
            return np.inf
        if array.dtype.kind != "f":
            largest = largest if (array == changed).all() else np.inf
            continue
        if not np.array_equal(np.isfinite(array), np.isfinite(changed)):
            return np.inf
        float64_array = array.astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.abs(float64_array - changed) / scale_of(float64_array)
        largest = max(largest, float(np.nanmax(np.where(np.isnan(shares), 0, shares), initial=0.0)))
    return largest
