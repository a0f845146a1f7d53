"""A server that is started for a test marked `serving`, and the environment that it and its clients run in.

A test that wants that environment and finds it missing fails and says so: whoever chose the marker asked for it.
"""

import contextlib
import http.client
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from distributed_processes import free_ports

# Beside the environment that pytest lies in: nox -s mutate runs a copy of the tests, on a Python of its own.
SERVING = Path(pytest.__file__).parents[5] / ".nox" / "serving"
PORTS = ("HTTP", "GRPC", "METRICS")
# 127.0.0.1, as /proc/net writes it, and the same as an address of IPv6
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def serving_python():
    if not (SERVING / "bin" / "mlserver").is_file():
        pytest.fail("Tests marked `serving` need an environment of their own: run nox -s serving.", pytrace=False)
    return SERVING / "bin" / "python"


@dataclass(frozen=True)
class Server:
    """A server that runs: its process, which leads a group, its ports by `HTTP`, `GRPC` and `METRICS`, and its log."""

    process: subprocess.Popen[bytes]
    ports: dict[str, int]
    log: Path

    def address(self, name):
        return f"127.0.0.1:{self.ports[name]}"

    def ready(self, path="/v2/health/ready"):
        with contextlib.closing(http.client.HTTPConnection(self.address("HTTP"), timeout=5)) as connection:
            try:
                connection.request("GET", path)
                return connection.getresponse().status == 200
            except OSError:
                return False

    def resident(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def listening(self):
        """Return the address that each port is open on, as /proc/net writes it."""
        names = {f"{port:04X}": name for name, port in self.ports.items()}
        tables = [Path(f"/proc/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.splitlines()]
        found = (line[1].split(":") for line in lines if line[3] == "0A")
        return {names[port]: address for address, port in found if port in names}


def spawned(command, folder, log, **variables):
    """Start a process in a folder and in a group of its own, without what this one knows of Python."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=folder, env={**clean, **variables}, stdout=output, stderr=output, start_new_session=True
        )


@contextlib.contextmanager
def started(command, folder, *, wait=60):
    """Start a server by the command that `keras-attn layout` prints, on free ports, until the block ends.

    It is ready or has ended when the block begins, and all its processes are gone afterwards.
    """
    serving_python()
    ports, log = dict(zip(PORTS, free_ports(len(PORTS)), strict=True)), folder / "server.log"
    variables = {f"MLSERVER_{name}_PORT": str(port) for name, port in ports.items()}
    path = os.pathsep.join([str(SERVING / "bin"), os.environ["PATH"]])
    process = spawned(["sh", "-c", f"exec env {command}"], folder, log, PATH=path, **variables)
    server = Server(process, ports, log)
    try:
        until = time.monotonic() + wait
        while process.poll() is None and not server.ready() and time.monotonic() < until:
            time.sleep(0.1)
        yield server
    finally:
        end(process)


def end(process):
    """Tell a server to end, and see that nothing of its group is left."""
    process.terminate()
    try:
        process.wait(timeout=20)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise AssertionError("the server left processes behind, or did not end when it was told to")


def in_serving(script, *arguments, timeout):
    command = [str(serving_python()), str(script), *map(str, arguments)]
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=clean, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
