"""A session whose tensors take no more memory than they may, for several threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from .._errors import InputError
from .._loaded_bundle import Bundle

PATIENCE, stopping = 0.5, lambda options: options

_NO_MEMORY = (
    "available memory of",
    "failed to allocate memory",
    "bad_alloc",
    "bad allocation",
    "out of memory",
    "alloc_failed",
)
_NO_DEVICE = ("cuda failure", "cudnn failure", "cublas failure", "cuda error")


def is_memory(error: Exception) -> bool:
    """Tell whether there was too little memory."""
    return isinstance(error, MemoryError) or any(sign in str(error).lower() for sign in _NO_MEMORY)


def is_device(error: Exception) -> bool:
    """Tell whether the device failed, which no row is to blame for."""
    return not is_memory(error) and any(sign in str(error).lower() for sign in _NO_DEVICE)


class LimitedSession:
    """An onnxruntime session with a limit to the memory of its tensors.

    A thread a run: several runs at once are faster than one run on several threads, since most models have parts that
    only one thread works on. On the CPU a run that needs more than the limit fails; elsewhere none is set.
    """

    def __init__(self, bundle: Bundle, provider: str, limit: int, threads: int) -> None:
        """Open it.

        Args:
            bundle: The bundle.
            provider: Where to run.
            limit: In bytes.
            threads: How many may run at once.
        """
        import onnxruntime as ort

        self._options, self._shrinking = (stopping(ort.RunOptions()) for _ in range(2))
        self._places, self._threads, self._one = threading.Semaphore(threads), threads, threading.Lock()
        if provider != "cpu":
            self._session = bundle.session(provider)
            return
        _set_limit(ort, limit)
        self._shrinking.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
        fresh = Bundle(bundle.path, bundle.manifest)  # a session keeps the arena that was registered when it was opened
        self._session = fresh.session("cpu", threads=1, config={"session.use_env_allocators": "1"})

    def stop(self) -> None:
        """End the runs of all threads, and those to come."""
        self._options.terminate = self._shrinking.terminate = True

    def run(self, outputs: list[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return outputs, while other threads may run too."""
        with self._places:
            return self._run(outputs, feeds, self._options)

    def run_alone(self, outputs: list[str], feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
        """Return outputs, while no other thread runs, of all the memory that there is."""
        with self._one, contextlib.ExitStack() as places:
            for _ in range(self._threads):
                places.enter_context(self._places)
            # gives back what is held in pieces; a run that fails gives back nothing
            with contextlib.suppress(Exception):
                self._session.run(outputs, {name: array[:0] for name, array in feeds.items()}, self._shrinking)
            return self._run(outputs, feeds, self._shrinking)

    def _run(self, outputs: list[str], feeds: Mapping[str, np.ndarray], options: Any) -> list[np.ndarray]:
        """Run the session and return its outputs.

        If a signal ended the run in the main thread, wait until the signal raises there. Otherwise the caller would
        take onnxruntime's error for an error of the rows.
        """
        try:
            arrays: list[np.ndarray] = self._session.run(outputs, dict(feeds), options)
        except Exception:
            if options.terminate and threading.current_thread() is threading.main_thread():
                time.sleep(2 * PATIENCE)  # a signal whose exception was lost is sent again after PATIENCE
            raise
        return arrays


_limits: list[int] = []  # the one that onnxruntime has in this process


def _set_limit(ort: Any, limit: int) -> None:
    """Let the sessions that are opened from now on share an arena of so many bytes.

    Raises:
        InputError: This process has another limit already, and its onnxruntime takes only one.
    """
    where = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
    # 1: it takes as much as is asked for, where the default doubles what it takes
    arena = ort.OrtArenaCfg({"max_mem": limit, "arena_extend_strategy": 1})
    try:
        ort.create_and_register_allocator(where, arena)
    except RuntimeError as error:
        if not _limits or _limits[0] > limit:
            raise InputError(
                f"onnxruntime {ort.__version__} takes one limit of memory in a process, and this one has another. "
                "Upgrade onnxruntime, or leave `limit_memory` as it was."
            ) from error
    else:
        _limits[:] = [limit]
