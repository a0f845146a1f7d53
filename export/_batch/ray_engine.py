"""Source files as tasks on Ray, on this machine or on a cluster whose machines share the folders."""

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

from .._dependencies import needing
from .._errors import ExportError
from .._format.names import first_line
from .file_run import run_file
from .output_folder import OutputFolder
from .row_runner import Job, Runner


def run_on_ray(files: Mapping[str, Path], job: Job, folder: OutputFolder, cores: int | None) -> Iterator[Any]:
    """Run each file as a task of one core; yield its name and the number of rows written."""
    ray = check_ray()
    with contextlib.nullcontext() if ray.is_initialized() else _started(ray, cores):
        task = ray.remote(num_gpus=int(job.provider in ("cuda", "tensorrt", "migraphx")), max_retries=3)(_run_task)
        count = cores or 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        one, waiting, running = replace(job, workers=1), list(files), dict[Any, str]()
        try:
            while waiting or running:
                for name in waiting[: count - len(running)]:
                    running[task.remote(name, str(files[name]), one, str(folder.folder))] = waiting.pop(0)
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
    return run_file(name, Path(file), _runner(job), OutputFolder(folder), lambda rows: None)


_runner = functools.lru_cache(maxsize=1)(Runner)  # a worker keeps the session for its next file


def check_ray() -> Any:
    """Return the module `ray`, or raise an `ExportError` with the installing command."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if "ray" not in sys.modules and not {"RAY_ADDRESS", "RAY_AUTH_MODE"} & {*os.environ}:
        # a Ray that is started here listens on all addresses; its import reads the token that clients need
        os.environ.update(RAY_AUTH_MODE="token", RAY_AUTH_TOKEN=secrets.token_hex(32))
    with needing("ray", "Ray"):
        import ray
    return ray


@contextlib.contextmanager
def _started(ray: Any, cores: int | None) -> Iterator[None]:
    """Connect to the cluster of `RAY_ADDRESS`, or start Ray for this process alone."""
    address, handler = os.environ.get("RAY_ADDRESS"), signal.getsignal(signal.SIGTERM)
    local = {} if address else {"num_cpus": cores, "include_dashboard": False}
    try:
        ray.init(address=address or "local", logging_level="ERROR", log_to_driver=False, **local)
    except SystemExit:  # of Ray's own handler of SIGTERM, which is there while it starts
        signal.signal(signal.SIGTERM, handler)
        signal.raise_signal(signal.SIGTERM)
    except (OSError, RuntimeError, ValueError) as error:
        reason = first_line(error).rstrip(".")
        raise ExportError(f"Ray does not start at {address or 'this machine'}: {reason}.") from error
    with contextlib.suppress(ValueError):  # in another thread, where Ray sets no handler
        signal.signal(signal.SIGTERM, handler)  # Ray's own ends the process before files are closed
    try:
        yield
    finally:
        ray.shutdown()
