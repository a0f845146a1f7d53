"""Processes of distributed_worker.py and of the example that find each other here; none outlives its time."""

import json
import os
import socket
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from environments import build_environment

WORKER = Path(__file__).with_name("distributed_worker.py")
LIMIT = 480  # seconds that a process may take; the longest takes 25 on two cores that do nothing else


@dataclass(frozen=True)
class Trained:
    """What a worker wrote: its weights by path, its losses by step and branch, and what else it found."""

    weights: dict[str, np.ndarray]
    losses: list[dict[str, float]]
    found: dict


def free_ports(count):
    """Return ports that nobody on this machine listens at, all held until the last is found, so that no two agree."""
    with ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


def cluster_of_tensorflow(count):
    """Return the environments of processes that TF_CONFIG tells of each other."""
    addresses = [f"127.0.0.1:{port}" for port in free_ports(count)]
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})}
        for index in range(count)
    ]


def group_of_torch(count):
    """Return the environments that torchrun would give to processes of one machine."""
    (port,) = free_ports(1)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def devices_of_jax(count):
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    return [{"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip()}]


def processes_of_jax(count):
    """Return the environments of processes that `keras.distribution.initialize()` tells of each other."""
    (port,) = free_ports(1)
    shared = {"JAX_PLATFORMS": "cpu", "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}"}
    shared["KERAS_DISTRIBUTION_NUM_PROCESSES"] = str(count)
    return [shared | {"KERAS_DISTRIBUTION_PROCESS_ID": str(index)} for index in range(count)]


def trained(engine, folder, branches, environments):
    """Train on an engine, a process for each environment, and return what each wrote, by rank."""
    run([[str(WORKER), engine, str(folder), *branches]] * len(environments), folder, environments)
    return [_read(folder, rank) for rank in range(len(environments))]


def run(commands, folder, environments):
    """Run scripts side by side to their ends, and return what each wrote.

    Fails with what all of them wrote when one fails, or when the time is over; none is left behind.
    """
    logs = [folder / f"process-{number}.log" for number in range(len(commands))]
    processes: list[subprocess.Popen] = []
    try:
        for command, log, extra in zip(commands, logs, environments, strict=True):
            with log.open("wb") as out:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, *command], env=_environment(extra), stdout=out, stderr=subprocess.STDOUT
                    )
                )
        codes = _codes(processes, time.monotonic() + LIMIT)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    texts = [log.read_text(errors="replace") for log in logs]
    told = "\n".join(f"-- process {number}:\n{text[-3000:]}" for number, text in enumerate(texts))
    assert codes == [0] * len(codes), (
        f"exit codes {codes}; None: it ran past {LIMIT} s, or beside one that failed.\n{told}"
    )
    return texts


def _codes(processes, deadline):
    while True:
        codes = [process.poll() for process in processes]
        if None not in codes or any(codes) or time.monotonic() > deadline:
            return codes
        time.sleep(0.05)


def _environment(extra):
    # One thread each: on two cores, those of two processes that wait for each other would stand in each other's way.
    quiet = {"CUDA_VISIBLE_DEVICES": "-1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"}
    return build_environment(**(quiet | extra))


def _read(folder, rank):
    found = json.loads((folder / f"{rank}.json").read_text())
    with np.load(folder / f"{rank}.npz") as arrays:
        return Trained(dict(arrays), found.pop("losses"), found)
