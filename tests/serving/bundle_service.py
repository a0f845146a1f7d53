"""`examples/serve_bundle.py` as a process of its own, laid out and started as docs/serving.md says."""

import contextlib
import re
import shutil
import time
from pathlib import Path

from serving import Server, end, serving_python, spawned

from keras_attn_export._standalone import verify

ROOT = Path(__file__).resolve().parents[2]
SERVICE = ROOT / "examples" / "serve_bundle.py"
ENDING = ("--timeout-graceful-shutdown", "1")
OPTIONS = ("--host", "127.0.0.1", "--port", "0", "--limit-concurrency", "1000", *ENDING)  # 0: any free port
LOG = "log.txt"
LIMITS = "SECONDS, MOST_COMING, MOST_BEGUN = 10, 256, 128"


def start(folder, bundle, limits=None):
    """Start the service; `limits` stand for `SECONDS`, `MOST_COMING` and `MOST_BEGUN` in the place of its own."""
    content = SERVICE.read_text(encoding="utf-8")
    assert LIMITS in content
    content = content if limits is None else content.replace(LIMITS, f"{LIMITS.partition('=')[0]}= {limits}")
    (folder / SERVICE.name).write_text(content, encoding="utf-8")
    shutil.copy(verify.__file__, folder / "verify.py")
    command = [str(serving_python()), "-m", "uvicorn", "serve_bundle:app", *OPTIONS]
    return spawned(command, folder, folder / LOG, BUNDLE=str(bundle))


@contextlib.contextmanager
def running(folder, bundle, limits=None):
    """Start the service, wait until it says where it listens, and end it. Nothing may have surprised it."""
    process = start(folder, bundle, limits)
    try:
        yield Server(process, _port(process, folder / LOG), folder / LOG)
    finally:
        end(process)
    assert "Traceback" not in (folder / LOG).read_text(encoding="utf-8")


def _port(process, log):
    until = time.monotonic() + 60
    while time.monotonic() < until:
        said = log.read_text(encoding="utf-8")
        if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", said):
            return int(found[1])
        assert process.poll() is None, said
        time.sleep(0.05)
    raise AssertionError(f"no service within a minute: {said}")
