"""Processes below another one, by Linux's `/proc`: those of Ray among them."""

import contextlib
import os
import signal
import time
from pathlib import Path

WORKERS = 2  # of Ray


def family(pids):
    """Return those processes that run, and those below them."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (entry / "stat").read_text(encoding="latin-1").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                parents[int(entry.name)] = int(parent)
    found = {pid for pid in pids if pid in parents}
    while more := {pid for pid, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def name_of(pid):
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return ""


def workers(pids):
    """Return those below some processes that run a part for Ray at this moment."""
    return sorted(pid for pid in family(pids) if name_of(pid).startswith("ray::_run_part"))


def ended(pids, patience=60):
    """Wait until processes have ended; kill those that do not, and return their commands."""
    until = time.monotonic() + patience
    while left := {pid: name_of(pid) for pid in family(pids)}:
        if time.monotonic() > until:
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return left
        time.sleep(0.1)
    return {}
