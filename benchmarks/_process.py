"""Client of a contestant's worker process: starts it, sends requests and stores its times."""

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
    """Worker process of a contestant.

    Attributes:
        unavailable: Reason why the contestant dropped out; empty if it runs.
        build_results: Results of the build: memory in bytes, and seconds of the build with the first runs.
        rounds: Seconds of the runs, a list for each round.
        difference: Largest relative difference from the reference answer.
    """

    def __init__(self, contestant: Contestant, inputs: Path, folder: Path, threads: int) -> None:
        self.contestant, self.unavailable = contestant, ""
        self.answer_file = folder / "answer.npz"
        self.build_results: dict[str, Any] = {}
        self.rounds: list[list[float]] = []
        self.difference = 0.0
        spec = {
            "builder": contestant.builder, "options": contestant.options, "threads": threads,
            "inputs": str(inputs), "answer": str(self.answer_file),
        }  # fmt: skip
        (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
        self.log = folder / "log.txt"
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(SCRIPT), str(folder / "spec.json")],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(threads), **contestant.environment},
            )  # fmt: skip

    def request(self, **request: Any) -> dict[str, Any]:
        """Send a request and return the reply."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `read_reply` reports a process that has ended
            self.process.stdin.write(json.dumps(request) + "\n")
            self.process.stdin.flush()
        return self.read_reply()

    def read_reply(self) -> dict[str, Any]:
        """Return the next reply; if the contestant drops out, store the reason in `unavailable`."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        reply: dict[str, Any] = json.loads(line) if line else {"failed": "the process ended without a reply"}
        if "failed" in reply and not self.contestant.optional:
            raise RuntimeError(f"{self.contestant.label}: {reply['failed']}\n{self.log.read_text('utf-8')[-3000:]}")
        self.unavailable = reply.get("unavailable") or reply.get("failed", "")
        return reply

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()

    def make_row(self, peer: "Process | None") -> dict[str, Any]:
        """Return a row of the results: times in ms, memory in MiB; without rounds, the results of the build."""
        if self.unavailable:
            return {"contestant": self.contestant.label, "unavailable": self.unavailable}
        if not self.rounds:
            return {"contestant": self.contestant.label, **self.build_results}
        times = [seconds * 1e3 for run_times in self.rounds for seconds in run_times]
        return {
            "contestant": self.contestant.label,
            "ms": {**_stats.summarize(times), "min": min(times), "runs": len(times)},
            "memory": self.build_results["memory"] / 2**20,
            "difference": self.difference,
            "speed": _stats.summarize_ratio(self.rounds, peer.rounds) if peer and peer.rounds else None,
        }
