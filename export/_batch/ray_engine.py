"""Ray engine: source files as tasks, on this machine or on a cluster whose machines share the folders."""

import contextlib
import functools
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .._dependencies import require_extra
from .._errors import ExportError
from .._format.names import first_line
from .file_run import run_file
from .output_folder import OutputFolder
from .row_runner import Job, RowRunner


def run_on_ray(files: Mapping[str, Path], job: Job, folder: OutputFolder, max_tasks: int | None) -> Iterator[Any]:
    """Run each file as a task of one core; yield the name of a file and the number of rows written."""
    ray = import_ray()
    with contextlib.nullcontext() if ray.is_initialized() else _start_ray(ray, max_tasks):
        task = ray.remote(num_gpus=int(job.provider in ("cuda", "tensorrt", "migraphx")), max_retries=3)(_run_task)
        count = max_tasks or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        task_job, pending, running = replace(job, workers=1), list(files), dict[Any, str]()
        try:
            while pending or running:
                for name in pending[: count - len(running)]:
                    running[task.remote(name, str(files[name]), task_job, str(folder.folder))] = pending.pop(0)
                (ready,), _ = ray.wait(list(running))
                yield running.pop(ready), ray.get(ready)
        except ray.exceptions.RayTaskError as error:
            raise error.cause if isinstance(error.cause, ExportError) else error from None
        except ray.exceptions.RayError as error:
            reason = first_line(error).rstrip(".")
            raise ExportError(f"Ray failed: {reason}. The same command continues the run.") from error
        finally:
            for reference in running:
                ray.cancel(reference, force=True)


def _run_task(name: str, file: str, job: Job, folder: str) -> int:
    return run_file(name, Path(file), _get_runner(job), OutputFolder(folder), lambda rows: None)


_get_runner = functools.lru_cache(maxsize=1)(RowRunner)  # a worker process keeps the session for its next file


def import_ray() -> Any:
    """Import and return `ray`; raise an `ExportError` with the install command if it is missing."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules and not {"RAY_ADDRESS", "RAY_AUTH_MODE"} & {*os.environ}:
        # A local Ray listens on all network addresses, so clients need a token. Ray reads it when it is imported.
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    with require_extra("ray", "Ray"):
        import ray
    return ray


@contextlib.contextmanager
def _start_ray(ray: Any, cores: int | None) -> Iterator[None]:
    """Connect to the cluster of `RAY_ADDRESS`, or start Ray for this process alone."""
    address, handler = os.environ.get("RAY_ADDRESS"), signal.getsignal(signal.SIGTERM)
    local = {} if address else {"num_cpus": cores, "include_dashboard": False}
    try:
        ray.init(address=address or "local", logging_level="ERROR", log_to_driver=False, **local)
    # While Ray starts, its own handler of SIGTERM is set, which raises SystemExit.
    except SystemExit:
        signal.signal(signal.SIGTERM, handler)
        signal.raise_signal(signal.SIGTERM)
    except (OSError, RuntimeError, ValueError) as error:
        reason = first_line(error).rstrip(".")
        raise ExportError(f"Ray does not start at {address or 'this machine'}: {reason}.") from error
    # Ray's handler would end the process before files are closed. Outside the main thread Ray sets no handler.
    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGTERM, handler)
    try:
        yield
    finally:
        ray.shutdown()
