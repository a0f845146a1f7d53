"""The parts of a run as tasks on Ray, on this machine or on a cluster."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from .._errors import ExportError
from .._packages import needing
from .destination import Destination
from .job import Job
from .model import Model
from .parquet import said
from .part_file import Done, fail_part
from .run_parts import run_parts
from .source import Part

ON_GPU = ("cuda", "tensorrt", "migraphx")  # of which Ray knows how many there are
TRIES = 4  # of a part whose worker dies under it; then the part is to blame
AHEAD = 2  # tasks for each core: one runs, and one waits for its end

_models: dict[Job, Model] = {}  # of this worker: one session, however many parts it runs


def run_on_ray(parts: Sequence[Part], job: Job, destination: Destination, done: Done, *, workers: int | None) -> None:
    """Run parts, each as a task of one core. Bundle, source and destination must be the same files for every machine.

    Args:
        parts: What to run.
        job: How.
        destination: Where to write.
        done: Called with how many rows were written and how many failed, after each part.
        workers: How many tasks at once; `None` for a task a core of the cluster.

    Raises:
        ExportError: Ray is not installed, or does not start; or as for `run_parts`.
    """
    with _started(workers) as ray:
        most = workers or AHEAD * max(1, int(ray.cluster_resources().get("CPU", 1)))
        gpus = {"num_gpus": 1} if job.provider in ON_GPU else {}
        task = ray.remote(num_cpus=1, **gpus, max_retries=TRIES - 1, retry_exceptions=False)(_run_part)
        waiting, running = list(reversed(parts)), dict[Any, Part]()
        one = replace(job, workers=1)
        try:
            while waiting or running:
                while waiting and len(running) < most:
                    part = waiting.pop()
                    running[task.remote(part, one, str(destination.folder))] = part
                ready, _ = ray.wait(list(running))
                for reference in ready:
                    _collect(ray, reference, running.pop(reference), destination, done)
        except BaseException:
            for reference in running:
                ray.cancel(reference, force=True)
            raise


def _run_part(part: Part, job: Job, folder: str) -> tuple[int, int]:
    """Run one part in a worker, and return how many rows were written and how many failed."""
    if job not in _models:
        _models.clear()
        _models[job] = Model(job)
    counted = [0, 0]

    def count(written: int, failed: int) -> None:
        counted[0] += written
        counted[1] += failed

    run_parts([part], job, _models[job], Destination(folder), count)
    return counted[0], counted[1]


def _collect(ray: ModuleType, reference: Any, part: Part, destination: Destination, done: Done) -> None:
    try:
        done(*ray.get(reference))
    except ray.exceptions.RayTaskError as error:
        cause = getattr(error, "cause", None)
        raise cause if isinstance(cause, ExportError) else error from None
    except (ray.exceptions.WorkerCrashedError, ray.exceptions.OutOfMemoryError, ray.exceptions.NodeDiedError) as error:
        if destination.is_done(part.name):  # it died after that
            done(part.rows, 0)
            return
        why = f"its worker died {TRIES} times ({type(error).__name__})"
        fail_part(part, destination, why)
        done(0, part.rows)
    except ray.exceptions.RayError as error:
        raise ExportError(f"Ray failed: {said(error)}. The same command goes on from there.") from error


def check_ray() -> ModuleType:
    """Return Ray, which is told not to report to its makers, and to serve nobody without a token if it is started here.

    It listens on every address of the machine, and whoever reaches it could run code.

    Raises:
        ExportError: It is not installed.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules and not os.environ.get("RAY_ADDRESS"):  # it reads these when it is imported
        token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
        os.environ.update({} if "RAY_AUTH_MODE" in os.environ else token)
    with needing("ray", "Ray"):
        import ray
    module: ModuleType = ray
    return module


@contextlib.contextmanager
def _started(workers: int | None) -> Iterator[ModuleType]:
    """Yield Ray, on the cluster of `RAY_ADDRESS`; without one on this machine, for this process alone."""
    ray = check_ray()
    if ray.is_initialized():
        yield ray
        return
    address = os.environ.get("RAY_ADDRESS")
    own = {} if address else {"num_cpus": workers, "include_dashboard": False}
    ending = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address or "local", logging_level="ERROR", log_to_driver=False, **own)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, ending)  # Ray's own ends the process before anything is put in order
    except (OSError, RuntimeError, ValueError) as error:
        where = f"the cluster at RAY_ADDRESS={address}" if address else "this machine"
        raise ExportError(f"Ray does not start on {where}: {said(error)}.") from error
    try:
        yield ray
    finally:
        ray.shutdown()
