"""The process that a contestant runs in."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import _stats
from _contestant import Contestant

SCRIPT = Path(__file__).with_name("_worker.py")


class Process:
    """A contestant's process.

    Attributes:
        unavailable: Why it dropped out; empty if it did not.
        built: What it said of its making: memory in bytes, and the seconds of making and of the first runs.
        rounds: The seconds of each run, by round.
        difference: How far its answer is from the first one's, relative.
    """

    def __init__(self, contestant: Contestant, inputs: Path, folder: Path, threads: int) -> None:
        self.contestant, self.unavailable = contestant, ""
        self.answer = folder / "answer.npz"
        self.built: dict[str, Any] = {}
        self.rounds: list[list[float]] = []
        self.difference = 0.0
        spec = {
            "kind": contestant.kind, "options": contestant.options, "inputs": str(inputs), "answer": str(self.answer),
            "threads": threads,
        }  # fmt: skip
        (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        self.log = folder / "log.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(folder / "spec.json")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), **contestant.environment},
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
        self.unavailable = reply.get("unavailable") or reply.get("failed", "")
        return reply

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()

    def row(self, peer: "Process | None") -> dict[str, Any]:
        """Return what the results say of this contestant: times in ms, memory in MiB; of one not timed, its making."""
        if self.unavailable:
            return {"contestant": self.contestant.label, "unavailable": self.unavailable}
        if not self.rounds:
            return {"contestant": self.contestant.label, **self.built}
        times = [seconds * 1e3 for taken in self.rounds for seconds in taken]
        return {
            "contestant": self.contestant.label,
            "ms": {**_stats.spread(times), "min": min(times), "runs": len(times)},
            "memory": self.built["memory"] / 2**20,
            "difference": self.difference,
            "faster": _stats.ratio(self.rounds, peer.rounds) if peer and peer.rounds else None,
        }
