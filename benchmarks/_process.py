"""A contestant, and the process it runs in."""

import contextlib
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import _stats

SCRIPT = Path(__file__).with_name("_worker.py")

# glibc gives memory back to the system after a step or keeps it, by where in the heap a block happens to lie. In two
# processes that allocate the same, one step may thus cost a quarter more. These keep it; other allocators ignore them.
KEPT_PAGES = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_THRESHOLD_": str(2**30)}


@dataclass
class Contestant:
    """One way to compute one case.

    Attributes:
        label: What the tables call it.
        kind: A key of `_contestants.KINDS`.
        options: What that kind needs.
        optional: Whether a failure is told in the tables instead of ending the benchmark, as without a compiler.
        unavailable: Why it cannot take part; empty if it can.
        note: What the tables say beside it.
        computes: What it computes, where not all of a case compute the same; those that do must agree.
    """

    label: str
    kind: str = "onnx"
    options: dict[str, Any] = field(default_factory=dict)
    optional: bool = False
    unavailable: str = ""
    note: str = ""
    computes: str = ""


class Process:
    """A contestant's process."""

    def __init__(self, contestant: Contestant, inputs: Path, folder: Path, provider: str, threads: int) -> None:
        self.contestant = contestant
        self.answer = folder / "answer.npz"
        self.rounds: list[list[float]] = []
        self.memory, self.difference = 0, 0.0
        spec = {
            "kind": contestant.kind, "options": contestant.options, "inputs": str(inputs), "answer": str(self.answer),
            "provider": provider, "threads": threads,
        }  # fmt: skip
        (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        self.log = folder / "log.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(folder / "spec.json")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), **_environment(contestant)},
            )  # fmt: skip

    def ask(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the reply."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # a process that has ended gives no reply, which is told then
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        return self.reply()

    def reply(self) -> dict[str, Any]:
        """Return the next reply; note why the contestant drops out, if it does."""
        assert self.process.stdout is not None
        said = self.process.stdout.readline()
        reply: dict[str, Any] = json.loads(said) if said else {"failed": "the process ended without a word"}
        if "failed" in reply and not self.contestant.optional:
            raise RuntimeError(f"{self.contestant.label}: {reply['failed']}\n{self.log.read_text('utf-8')[-3000:]}")
        self.contestant.unavailable = reply.get("unavailable") or reply.get("failed", "")
        return reply

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def row(self, peer: "Process | None") -> dict[str, Any]:
        """Return what the results say of this contestant: times in ms, memory in MiB."""
        times = [seconds * 1e3 for taken in self.rounds for seconds in taken]
        return {
            "contestant": self.contestant.label,
            "note": self.contestant.note,
            "ms": {**_stats.spread(times), "runs": len(times)},
            "memory": self.memory / 2**20,
            "difference": self.difference,
            "faster": _stats.ratio(self.rounds, peer.rounds) if peer else None,
        }


def _environment(contestant: Contestant) -> dict[str, str]:
    return {"KERAS_BACKEND": contestant.options["backend"], **KEPT_PAGES} if "backend" in contestant.options else {}
