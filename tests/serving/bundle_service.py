"""The example service `examples/serve_bundle.py` in a separate process, started as in docs/serving.md.

The service and its clients run in a separate environment; without this environment, the tests fail.
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
SERVING = Path(pytest.__file__).parents[5] / ".nox" / "serving"  # next to the environment of pytest
SHUTDOWN_OPTIONS = ("--timeout-graceful-shutdown", "1")
OPTIONS = ("--host", "127.0.0.1", "--port", "0", "--limit-concurrency", "1000", *SHUTDOWN_OPTIONS)  # 0: any free port
VALID_INPUTS = {  # inputs of the small bundle: two examples, three queries, two keys
    "queries": np.ones((2, 3, 4)).tolist(),
    "keys": np.ones((2, 2, 6)).tolist(),
    "values": np.ones((2, 2, 5)).tolist(),
    "valid_lens": [1, 2],
}


def find_serving_python():
    if not (SERVING / "bin" / "uvicorn").is_file():
        pytest.fail("Tests of the service need a separate environment: run nox -s serving.", pytrace=False)
    return SERVING / "bin" / "python"


@dataclass(frozen=True)
class Server:
    """A running service: its process, which is the leader of its group, its port and its bundle."""

    process: subprocess.Popen[bytes]
    port: int
    bundle: Path

    def connect(self):
        return contextlib.closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60))

    def post(self, body):
        """Return the status and content of the response to a request on a new connection."""
        with self.connect() as connection:
            return post_request(connection, body)

    def read_memory(self, field):
        """Return the present (VmRSS) or largest (VmHWM) memory of the process in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition(f"{field}:")[2].split()[0]) * 1024

    def list_listening_addresses(self):
        """Return the addresses with this port open, in the notation of /proc/net."""
        tables = [Path(f"/proc/net/{protocol}").read_text() for protocol in ("tcp", "tcp6")]
        lines = [line.split() for table in tables for line in table.splitlines()]
        sockets = (line[1].split(":") for line in lines if line[3] == "0A")
        return {address for address, port in sockets if port == f"{self.port:04X}"}


def post_request(connection, body):
    content = body if isinstance(body, bytes) else json.dumps(body)
    connection.request("POST", "/predict", content, {"Content-Type": "application/json"})
    response = connection.getresponse()
    return response.status, response.read()


def start_service(folder, bundle, **limits):
    """Start the service in a new process group; `limits` replace its constants, as `MAX_QUEUED=1`."""
    content = SERVICE.read_text(encoding="utf-8")
    for name, limit in limits.items():
        content, count = re.subn(rf"^{name} = \d+", f"{name} = {limit}", content, flags=re.MULTILINE)
        assert count == 1, name
    (folder / SERVICE.name).write_text(content, encoding="utf-8")
    (folder / "verify.py").write_text(verify_script(), encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    env["BUNDLE"] = str(bundle)
    command = [str(find_serving_python()), "-m", "uvicorn", "serve_bundle:app", *OPTIONS]
    with (folder / "log.txt").open("wb") as log:
        return subprocess.Popen(command, cwd=folder, env=env, stdout=log, stderr=log, start_new_session=True)


@contextlib.contextmanager
def run_service(folder, bundle, **limits):
    """Run the service in a context; assert that its log has no traceback and that its group ends with it."""
    process = start_service(folder, bundle, **limits)
    try:
        yield Server(process, wait_for_port(process, folder / "log.txt"), bundle)
    finally:
        process.terminate()
        try:
            process.wait(timeout=20)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise AssertionError("the server left processes, or did not end after SIGTERM")
    assert "Traceback" not in (folder / "log.txt").read_text(encoding="utf-8")


def wait_for_port(process, log):
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = log.read_text(encoding="utf-8")
        if match := re.search(r"running on http://127\.0\.0\.1:(\d+)", text):
            return int(match[1])
        assert process.poll() is None, text
        time.sleep(0.05)
    raise AssertionError(f"no service within a minute: {text}")
