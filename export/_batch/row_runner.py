"""Runs of chunks of rows in onnxruntime, in threads that a signal ends."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np

from .._bundle.bundle import Bundle, load_bundle
from .._errors import BundleError, ProviderError
from .._format.dtypes import numpy_dtype
from .._format.manifest import Manifest, Spec
from .._format.names import Arrays, first_line
from .._tables.parquet_files import CHUNK_BYTES
from .._tables.rows import measure_rows, pad_lengths, pad_rows, plan_batches
from .memory_limit import is_out_of_memory

# A batch that fails is split in two, and the halves are run again, down to the single rows that fail: k failing rows
# among n cost about 2 * k * log2(n / k) more runs. Rows that lacked memory run once more at the end of the chunk, one
# at a time, because concurrent batches share the memory limit.

# A failure of the device affects all later runs, so it ends the run and is not an error of a row.
DEVICE_FAILURES = ("cuda failure", "cudnn failure", "cublas failure", "cuda error")
MAX_LIST_BYTES = 2**31 - 2**20  # Arrow lists have offsets of 32 bits
TOO_LARGE_REASON = "needs more memory than `limit_memory`"
POLL_SECONDS = 0.2  # on Windows a signal does not end a wait


@dataclass(frozen=True)
class Job:
    """Options that all files and workers of a run share."""

    bundle: str  # path of the folder
    digest: str  # `manifest_sha256` of the bundle
    provider: str
    outputs: tuple[str, ...]
    key: str | None
    batch_size: int
    memory_limit: int
    workers: int
    paddable: frozenset[str] = frozenset()  # axes along which padding changes no output


@dataclass
class Chunk:
    """Rows that are read, run and written together."""

    batch: Any  # `pyarrow.RecordBatch`
    lengths: dict[str, np.ndarray]  # by dynamic axis, of shape (rows,)
    row_bytes: np.ndarray  # bytes of the inputs and outputs of each row, of shape (rows,)
    outputs: dict[int, list[np.ndarray]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    futures: list[Future[None]] = field(default_factory=list)


def split_into_chunks(batch: Any, manifest: Manifest, outputs: Sequence[Spec]) -> Iterator[Chunk]:
    """Yield the rows of a record batch in chunks of about `CHUNK_BYTES` of inputs and outputs."""
    lengths, row_bytes = measure_rows(batch, manifest), np.zeros(batch.num_rows)
    longest = np.max([row_bytes + 1, *lengths.values()], axis=0)  # estimate of an axis that only outputs have
    for spec in (*manifest.inputs, *outputs):
        shape = [size if isinstance(size, int) else lengths.get(size, longest) for size in spec.shape[1:]]
        row_bytes = row_bytes + math.prod(shape, start=float(numpy_dtype(spec.dtype).itemsize))
    starts = np.flatnonzero(np.diff(np.cumsum(row_bytes) // CHUNK_BYTES, prepend=-1)).tolist()
    for start, stop in pairwise([*starts, batch.num_rows]):
        part = {axis: values[start:stop] for axis, values in lengths.items()}
        yield Chunk(batch.slice(start, stop - start), part, row_bytes[start:stop])


class RowRunner:
    """Runner of a job: one session of a bundle, and a thread for each concurrent run."""

    def __init__(self, job: Job, loaded: Bundle | None = None) -> None:
        """Open the session."""
        import onnxruntime as ort

        loaded = loaded or load_bundle(job.bundle)
        if loaded.entries.manifest_sha256 != job.digest:
            raise BundleError(f"{job.bundle} is another bundle on this machine. Share one folder between the machines.")
        self.job, self.manifest, self.pool = job, loaded.entries, ThreadPoolExecutor(job.workers)
        self.outputs = [spec for name in job.outputs for spec in self.manifest.outputs if spec.name == name]
        self.options = ort.RunOptions()
        if job.provider != "cpu":
            self._session = loaded.session(job.provider)
            return
        # Unused memory is freed after each run: the arena's fragments would not fit the next batch.
        self.options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
        # Strategy 1 extends the arena by the requested bytes, the default by powers of two.
        arena = ort.OrtArenaCfg({"max_mem": job.memory_limit, "arena_extend_strategy": 1})
        with contextlib.suppress(RuntimeError):  # older releases keep the first limit of a process
            ort.create_and_register_allocator(memory, arena)
        # A session that `loaded` has opened before keeps its own arena, without the limit.
        unopened = Bundle(loaded.path, loaded.manifest)
        # Concurrent runs of one thread scale better than several threads in one run.
        self._session = unopened.session("cpu", threads=1, config={"session.use_env_allocators": "1"})

    def __enter__(self) -> RowRunner:
        """Return the runner."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """End the threads; after an error or a signal, terminate their runs."""
        self.options.terminate = error is not None
        self.pool.shutdown(wait=False, cancel_futures=True)

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Run a batch and return the outputs in the order of the job."""
        outputs: list[np.ndarray] = self._session.run(list(self.job.outputs), inputs, self.options)
        return outputs

    def start(self, chunk: Chunk) -> None:
        """Plan the batches of a chunk and submit them to the threads."""
        batches = plan_batches(chunk.lengths, len(chunk.row_bytes), self.job.paddable, self.job.batch_size)
        chunk.futures = [self.pool.submit(self._run_rows, chunk, rows) for rows in batches]

    def finish(self, chunk: Chunk) -> None:
        """Wait for a chunk; then run rows that lacked memory once more, one at a time."""
        wait_for_results(chunk.futures)
        for row in [row for row, reason in chunk.errors.items() if reason == TOO_LARGE_REASON]:
            del chunk.errors[row]
            wait_for_results([self.pool.submit(self._run_rows, chunk, np.array([row]))])

    def _run_rows(self, chunk: Chunk, rows: np.ndarray) -> None:
        """Run rows as one batch; if the batch fails, run its halves."""
        try:
            if chunk.row_bytes[rows].max() * len(rows) > min(self.job.memory_limit, MAX_LIST_BYTES):
                raise MemoryError
            names = [spec.name for spec in self.manifest.inputs if spec.name in chunk.batch.schema.names]
            lengths = {axis: values[rows] for axis, values in chunk.lengths.items()}
            padded = pad_lengths(lengths, self.manifest, self.job.paddable)
            outputs = self.run(pad_rows(chunk.batch.select(names).take(rows), self.manifest, lengths, padded))
            for index, row in enumerate(rows.tolist()):
                sizes = {axis: int(values[index]) for axis, values in lengths.items()}
                pairs = zip(outputs, self.outputs, strict=True)
                chunk.outputs[row] = [strip_padding(output[index, ...], spec, sizes) for output, spec in pairs]
        except Exception as error:  # onnxruntime has no public error classes
            is_too_large, text = is_out_of_memory(error), first_line(error).rstrip(".")
            if not is_too_large and any(message in text.lower() for message in DEVICE_FAILURES):
                raise ProviderError(f"onnxruntime failed on {self.job.provider}: {text}.") from error
            if len(rows) == 1:
                chunk.errors[int(rows[0])] = TOO_LARGE_REASON if is_too_large else text
                return
            for half in np.array_split(rows, 2):
                self._run_rows(chunk, half)


def strip_padding(output: np.ndarray, spec: Spec, lengths: Mapping[Any, int]) -> np.ndarray:
    """Remove padding from the output of one row, along axes of `lengths`; other axes have no padding."""
    return output[(*(slice(lengths.get(size)) for size in spec.shape[1:]), ...)]  # `...`: a string stays an array


def wait_for_results(futures: Iterable[Future[Any]]) -> list[Any]:
    """Wait for futures and return their results."""
    while wait(futures, timeout=POLL_SECONDS).not_done:
        pass
    return [future.result() for future in futures]
