"""Processes that train together on this machine: their environments, their time limit and their results."""

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
PROCESS_TIMEOUT_SECONDS = 480  # the slowest process takes 25 s on two idle cores


@dataclass(frozen=True)
class Result:
    """Result of a worker: weights by path, losses by step and branch, and details such as rank and replicas."""

    weights: dict[str, np.ndarray]
    losses: list[dict[str, float]]
    details: dict


def find_free_ports(count):
    """Return different ports on which no process of this machine listens."""
    with ExitStack() as stack:
        # All sockets stay open until the last is bound, so that no port occurs twice.
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for opened in sockets:
            opened.bind(("127.0.0.1", 0))
        return [opened.getsockname()[1] for opened in sockets]


def prepare_tensorflow(count):
    """Return the environments of a cluster's processes, with the addresses of all in TF_CONFIG."""
    addresses = [f"127.0.0.1:{port}" for port in find_free_ports(count)]
    return [
        {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}})}
        for index in range(count)
    ]


def prepare_torch(count):
    """Return the environments of a process group on one machine, as torchrun sets them."""
    (port,) = find_free_ports(1)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(count)}
    return [shared | {"RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def prepare_jax_devices(count):
    """Return the environment of one process with several CPU devices, as a list."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count={count}"
    return [{"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags.strip()}]


def prepare_jax_processes(count):
    """Return the environments of processes that `keras.distribution.initialize()` connects."""
    (port,) = find_free_ports(1)
    shared = {"JAX_PLATFORMS": "cpu", "KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}"}
    shared["KERAS_DISTRIBUTION_NUM_PROCESSES"] = str(count)
    return [shared | {"KERAS_DISTRIBUTION_PROCESS_ID": str(index)} for index in range(count)]


def train(engine, folder, branches, environments):
    """Train on an engine with one process for each environment, and return the results by rank."""
    run_scripts([[str(WORKER), engine, str(folder), *branches]] * len(environments), folder, environments)
    return [_read_result(folder, rank) for rank in range(len(environments))]


def run_scripts(commands, folder, environments):
    """Run scripts in parallel, and return the output of each.

    If a script fails or the time is over, all are stopped, and the error shows their outputs.
    """
    logs = [folder / f"process-{number}.log" for number in range(len(commands))]
    processes: list[subprocess.Popen] = []
    try:
        for command, log, extra in zip(commands, logs, environments, strict=True):
            with log.open("wb") as out:
                processes.append(
                    subprocess.Popen(
                        [sys.executable, *command], env=_build_environment(extra), stdout=out, stderr=subprocess.STDOUT
                    )
                )
        codes = _wait_for_exit_codes(processes, time.monotonic() + PROCESS_TIMEOUT_SECONDS)
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
            process.wait()
    outputs = [log.read_text(errors="replace") for log in logs]
    tails = "\n".join(f"-- process {number}:\n{output[-3000:]}" for number, output in enumerate(outputs))
    assert codes == [0] * len(codes), (
        f"exit codes {codes}; None: stopped after {PROCESS_TIMEOUT_SECONDS} s or the failure of another.\n{tails}"
    )
    return outputs


def _wait_for_exit_codes(processes, deadline):
    while True:
        codes = [process.poll() for process in processes]
        if None not in codes or any(codes) or time.monotonic() > deadline:
            return codes
        time.sleep(0.05)


def _build_environment(extra):
    # One thread for each process: threads of two processes that wait for each other would compete for two cores.
    base = {"CUDA_VISIBLE_DEVICES": "-1", "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1", "NO_PROXY": "127.0.0.1"}
    return build_environment(**(base | extra))


def _read_result(folder, rank):
    details = json.loads((folder / f"{rank}.json").read_text())
    with np.load(folder / f"{rank}.npz") as arrays:
        return Result(dict(arrays), details.pop("losses"), details)
