"""`examples/serve_bundle.py` as a process of its own, laid out and started as docs/serving.md says.

The service and its clients run in an environment of their own; without that environment, a test fails.
"""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from keras_attn_export._format.verify_script import verify_script

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "examples" / "serve_bundle.py"
SERVING = Path(pytest.__file__).parents[5] / ".nox" / "serving"  # beside the environment of pytest
ENDING = ("--timeout-graceful-shutdown", "1")
OPTIONS = ("--host", "127.0.0.1", "--port", "0", "--limit-concurrency", "1000", *ENDING)  # 0: any free port
GOOD = {  # inputs of the small bundle: two examples, three queries, two keys
    "queries": np.ones((2, 3, 4)).tolist(),
    "keys": np.ones((2, 2, 6)).tolist(),
    "values": np.ones((2, 2, 5)).tolist(),
    "valid_lens": [1, 2],
}


def serving_python():
    if not (SERVING / "bin" / "uvicorn").is_file():
        pytest.fail("Tests of the service need an environment of their own: run nox -s serving.", pytrace=False)
    return SERVING / "bin" / "python"


@dataclass(frozen=True)
class Server:
    """A running service: its process, which leads a group, its port, and its bundle."""

    process: subprocess.Popen[bytes]
    port: int
    bundle: Path

    def connection(self):
        return contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60))

    def ask(self, body):
        """Return the status and the content of the answer to a request on a connection of its own."""
        with self.connection() as connection:
            return answer(connection, body)

    def memory(self, kind):
        """Return the bytes of memory that the process holds now (VmRSS) or held at most (VmHWM)."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{kind}:")[2].split()[0]) * 1024

    def listening(self):
        """Return the addresses that the port is open on, as /proc/net writes them."""
        tables = [Path(f"/proc/net/{kind}").read_text() for kind in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.splitlines()]
        found = (line[1].split(":") for line in lines if line[3] == "0A")
        return {address for address, port in found if port == f"{self.port:04X}"}


def answer(connection, body):
    content = body if isinstance(body, bytes) else json.dumps(body)
    connection.request("POST", "/predict", content, {"Content-Type": "application/json"})
    came = connection.getresponse()
    return came.status, came.read()


def start(folder, bundle, **limits):
    """Start the service in a group of its own, with other values of constants, as `MAX_QUEUED=1`."""
    content = SERVICE.read_text(encoding="utf-8")
    for name, limit in limits.items():
        content, count = re.subn(rf"^{name} = \d+", f"{name} = {limit}", content, flags=re.MULTILINE)
        assert count == 1, name
    (folder / SERVICE.name).write_text(content, encoding="utf-8")
    (folder / "verify.py").write_text(verify_script(), encoding="utf-8")
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [str(serving_python()), "-m", "uvicorn", "serve_bundle:app", *OPTIONS]
    with (folder / "log.txt").open("wb") as log:
        return subprocess.Popen(
            command, cwd=folder, env={**clean, "BUNDLE": str(bundle)}, stdout=log, stderr=log, start_new_session=True
        )


@contextlib.contextmanager
def running(folder, bundle, **limits):
    """Start the service, wait until it listens, and end it; its log may hold no traceback, its group no process."""
    process = start(folder, bundle, **limits)
    try:
        yield Server(process, _port(process, folder / "log.txt"), bundle)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise AssertionError("the server left processes behind, or did not end when it was told to")
    assert "Traceback" not in (folder / "log.txt").read_text(encoding="utf-8")


def _port(process, log):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        said = log.read_text(encoding="utf-8")
        if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", said):
            return int(found[1])
        assert process.poll() is None, said
        time.sleep(0.05)
    raise AssertionError(f"no service within a minute: {said}")
