"""Chunks of rows through onnxruntime, in threads that can be stopped."""

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
from .._tables.rows import pad_rows, padded_lengths, plan_batches, row_lengths
from .memory_limit import is_out_of_memory

DEVICE_FAILURES = ("cuda failure", "cudnn failure", "cublas failure", "cuda error")
MAX_LIST_BYTES = 2**31 - 2**20  # offsets of Arrow lists have 32 bits
TOO_LARGE = "needs more memory than `limit_memory`"
POLL_SECONDS = 0.2  # on Windows a signal does not end a wait


@dataclass(frozen=True)
class Job:
    """Options that are the same for all files and workers; `digest` is that of the manifest in the folder `bundle`."""

    bundle: str
    digest: str
    provider: str
    outputs: tuple[str, ...]
    key: str | None
    batch_size: int
    memory_limit: int
    workers: int
    paddable: frozenset[str] = frozenset()  # axes along which padding changes no output


@dataclass
class Chunk:
    """Rows of a `pyarrow.RecordBatch`: lengths by axis, bytes of inputs and outputs, and results by row."""

    batch: Any
    lengths: dict[str, np.ndarray]
    sizes: np.ndarray
    outputs: dict[int, list[np.ndarray]] = field(default_factory=dict)
    errors: dict[int, str] = field(default_factory=dict)
    futures: list[Future[None]] = field(default_factory=list)


def split_batch(batch: Any, manifest: Manifest, outputs: Sequence[Spec]) -> Iterator[Chunk]:
    """Yield the rows of a record batch in chunks whose inputs and outputs have bounded bytes."""
    lengths, sizes = row_lengths(batch, manifest), np.zeros(batch.num_rows)
    longest = np.max([sizes + 1, *lengths.values()], axis=0)  # for a size that the model alone determines
    for spec in (*manifest.inputs, *outputs):
        shape = [size if isinstance(size, int) else lengths.get(size, longest) for size in spec.shape[1:]]
        sizes = sizes + math.prod(shape, start=float(numpy_dtype(spec.dtype).itemsize))
    starts = np.flatnonzero(np.diff(np.cumsum(sizes) // CHUNK_BYTES, prepend=-1)).tolist()
    for start, stop in pairwise([*starts, batch.num_rows]):
        part = {axis: values[start:stop] for axis, values in lengths.items()}
        yield Chunk(batch.slice(start, stop - start), part, sizes[start:stop])


class Runner:
    """A bundle opened for a job: one session, and a thread for each of its concurrent runs."""

    def __init__(self, job: Job, bundle: Bundle | None = None) -> None:
        """Open the session."""
        import onnxruntime as ort

        bundle = bundle or load_bundle(job.bundle)
        if bundle.entries.manifest_sha256 != job.digest:
            raise BundleError(f"{job.bundle} is another bundle on this machine. Share one folder between the machines.")
        self.job, self.manifest, self.pool = job, bundle.entries, ThreadPoolExecutor(job.workers)
        self.outputs = [spec for name in job.outputs for spec in self.manifest.outputs if spec.name == name]
        self.options = ort.RunOptions()
        if job.provider != "cpu":
            self._session = bundle.session(job.provider)
            return
        # unused memory is freed after each run: in pieces, it would not fit the next batch
        self.options.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        memory = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
        # strategy 1 extends the arena by the requested bytes, the default by powers of two
        arena = ort.OrtArenaCfg({"max_mem": job.memory_limit, "arena_extend_strategy": 1})
        with contextlib.suppress(RuntimeError):  # older releases keep the first limit of a process
            ort.create_and_register_allocator(memory, arena)
        fresh = Bundle(bundle.path, bundle.manifest)  # an open session keeps its arena
        # runs of one thread each scale better than several threads in one run
        self._session = fresh.session("cpu", threads=1, config={"session.use_env_allocators": "1"})

    def __enter__(self) -> Runner:
        """Return the runner."""
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        """End the threads; after an error, such as that of a signal, also their runs."""
        self.options.terminate = error is not None
        self.pool.shutdown(wait=False, cancel_futures=True)

    def run(self, inputs: Arrays) -> list[np.ndarray]:
        """Return the outputs of a batch."""
        outputs: list[np.ndarray] = self._session.run(list(self.job.outputs), inputs, self.options)
        return outputs

    def start(self, chunk: Chunk) -> None:
        """Run the rows of a chunk in threads."""
        batches = plan_batches(chunk.lengths, len(chunk.sizes), self.job.paddable, self.job.batch_size)
        chunk.futures = [self.pool.submit(self._run_rows, chunk, rows) for rows in batches]

    def finish(self, chunk: Chunk) -> None:
        """Wait for a chunk, then run rows again, one at a time, that lacked memory beside others."""
        results_of(chunk.futures)
        for row in [row for row, reason in chunk.errors.items() if reason == TOO_LARGE]:
            del chunk.errors[row]
            results_of([self.pool.submit(self._run_rows, chunk, np.array([row]))])

    def _run_rows(self, chunk: Chunk, rows: np.ndarray) -> None:
        """Run rows as one batch; if the batch fails, run its halves, down to the rows that fail."""
        try:
            if chunk.sizes[rows].max() * len(rows) > min(self.job.memory_limit, MAX_LIST_BYTES):
                raise MemoryError
            names = [spec.name for spec in self.manifest.inputs if spec.name in chunk.batch.schema.names]
            lengths = {axis: values[rows] for axis, values in chunk.lengths.items()}
            padded = padded_lengths(lengths, self.manifest, self.job.paddable)
            outputs = self.run(pad_rows(chunk.batch.select(names).take(rows), self.manifest, lengths, padded))
            for index, row in enumerate(rows.tolist()):
                own = {axis: int(values[index]) for axis, values in lengths.items()}
                pairs = zip(outputs, self.outputs, strict=True)
                chunk.outputs[row] = [strip_padding(output[index, ...], spec, own) for output, spec in pairs]
        except Exception as error:  # onnxruntime has no public classes of errors
            is_too_large, text = is_out_of_memory(error), first_line(error).rstrip(".")
            if not is_too_large and any(message in text.lower() for message in DEVICE_FAILURES):
                raise ProviderError(f"onnxruntime failed on {self.job.provider}: {text}.") from error
            if len(rows) == 1:
                chunk.errors[int(rows[0])] = TOO_LARGE if is_too_large else text
                return
            for half in np.array_split(rows, 2):
                self._run_rows(chunk, half)


def strip_padding(output: np.ndarray, spec: Spec, lengths: Mapping[Any, int]) -> np.ndarray:
    """Return the part of an output that belongs to a row; an axis that is not an axis of an input is kept."""
    return output[(*(slice(lengths.get(size)) for size in spec.shape[1:]), ...)]  # `...` keeps a string an array


def results_of(futures: Iterable[Future[Any]]) -> list[Any]:
    """Wait for futures and return their results."""
    while wait(futures, timeout=POLL_SECONDS).not_done:
        pass
    return [future.result() for future in futures]
