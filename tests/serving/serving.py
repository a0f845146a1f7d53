"""A service that a test starts, and the environment that the service and its clients run in.

A test that wants that environment and finds it missing fails and says so: whoever chose the marker asked for it.
"""

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

# Beside the environment that pytest lies in.
SERVING = Path(pytest.__file__).parents[5] / ".nox" / "serving"
# 127.0.0.1, as /proc/net writes it, and the same as an address of IPv6
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}


def serving_python():
    if not (SERVING / "bin" / "uvicorn").is_file():
        pytest.fail("Tests marked `serving` need an environment of their own: run nox -s serving.", pytrace=False)
    return SERVING / "bin" / "python"


@dataclass(frozen=True)
class Server:
    """A running service: its process, which leads a group, its port, and its log."""

    process: subprocess.Popen[bytes]
    port: int
    log: Path

    @property
    def address(self):
        return f"127.0.0.1:{self.port}"

    def resident(self):
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmRSS:")[2].split()[0]) * 1024

    def listening(self):
        """Return the addresses that the port is open on, as /proc/net writes them."""
        tables = [Path(f"/proc/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.splitlines()]
        found = (line[1].split(":") for line in lines if line[3] == "0A")
        return {address for address, port in found if port == f"{self.port:04X}"}


def spawned(command, folder, log, **variables):
    """Start a process in a folder and in a group of its own, without what this one knows of Python."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    with log.open("wb") as output:
        return subprocess.Popen(
            command, cwd=folder, env={**clean, **variables}, stdout=output, stderr=output, start_new_session=True
        )


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
