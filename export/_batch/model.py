"""A bundle that runs rows of a window: padded together, and cut apart again."""

from __future__ import annotations

import numpy as np

from .._alike import alike
from .._errors import BundleError, ExportError, ProviderError
from .._loaded_bundle import Bundle, load_bundle
from .feeds import feeds_alone, feeds_of, longest_of
from .job import Job, specs_of
from .parquet import said
from .results import Results, rounding_of, without_padding
from .session import LimitedSession, is_device, is_memory
from .windows import Batches, Window, output_sizes


class Model:
    """A bundle opened for a job, once in a process, for all its threads."""

    def __init__(self, job: Job, bundle: Bundle | None = None) -> None:
        """Open the session.

        Raises:
            BundleError: The bundle is not whole, or is another than that of the job.
            ProviderError: The provider is absent.
        """
        bundle = load_bundle(job.bundle) if bundle is None else bundle
        if bundle.entries.manifest_sha256 != job.digest:
            raise BundleError(f"{job.bundle} is another bundle here than where the run was begun.")
        self.job, self.manifest = job, bundle.entries
        self.outputs = specs_of(self.manifest, job.outputs)
        self.batches = Batches(job.batch_size, job.padded)
        self._session = LimitedSession(bundle, job.provider, job.limit, job.workers + 1)  # and the one that writes

    def _feeds(self, window: Window, rows: np.ndarray) -> dict[str, np.ndarray]:
        return feeds_of(self.manifest, window, rows, longest_of(self.manifest, window, rows, self.job.padded))

    def stop(self) -> None:
        """End what other threads run, which is of no use to anyone, and must not be waited for."""
        self._session.stop()

    def run(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Return the outputs of the job, as they come from onnxruntime."""
        return self._session.run(list(self.job.outputs), feeds)

    def check_alone(self, window: Window, row: int, results: Results) -> None:
        """Run a row once more, by itself, and see that it gives what it gave among others.

        The trial took a few rows; this one is of those that count.

        Raises:
            ExportError: It gives something else.
        """
        if not all(length[row] for length in window.lengths.values()):
            return  # of nothing, which runs as one zero among others and is not compared with none
        try:
            alone = self.run(feeds_alone(self.manifest, window, row))
        except Exception:  # noqa: BLE001 - too little memory beside the others, say
            return
        for number, (spec, output) in enumerate(zip(self.outputs, alone, strict=True)):
            one, other = without_padding(output[0], output_sizes(spec, window)[row]), results.row(number, row)
            # whole numbers may be another for a tie that rounding decides
            limits = rounding_of(results.sizes_of_channels(number, spec), self.manifest.precision)
            if one.dtype.kind == "f" and not alike(one, other, atol=limits):
                raise ExportError(
                    f"Row {window.first_row + row} gives another `{spec.name}` among other rows than by itself, "
                    "though the rows that were tried did not: padding, or what is beside it, changes what the model "
                    "gives. Remove the destination, and run with a batch size of 1."
                )

    def run_rows(self, window: Window, rows: np.ndarray, results: Results) -> None:
        """Run rows together, and half as many at a time where that fails, down to the rows whose fault it is.

        Raises:
            ProviderError: The device failed, which is no fault of a row.
        """
        try:
            results.put(rows, self.run(self._feeds(window, rows)))
        except Exception as error:  # whatever onnxruntime makes of an index out of range, or of too little memory
            if is_device(error):
                raise ProviderError(f"onnxruntime failed on {self.job.provider}: {said(error)}.") from error
            if is_memory(error):
                self.batches.lower(window.lengths, rows)
            if len(rows) == 1:
                self._run_alone(window, rows, results, error)
                return
            for half in np.array_split(rows, 2):
                self.run_rows(window, half, results)

    def _run_alone(self, window: Window, rows: np.ndarray, results: Results, error: Exception) -> None:
        """Give a row up, unless it may have been other threads that held the memory it needs."""
        row, why = int(rows[0]), said(error)
        if is_memory(error):
            why = f"needs more than the {self.job.limit >> 20} MiB that the model may take"
            try:
                results.put(rows, self._session.run_alone(list(self.job.outputs), self._feeds(window, rows)))
                return
            except Exception as again:  # noqa: BLE001 - whatever onnxruntime makes of it
                why = why if is_memory(again) else said(again)
        results.problems[row] = why
