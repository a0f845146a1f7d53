"""A process that times one ONNX file after another: only one session is alive in it at a time.

Run as a script it reads requests, a line of JSON each, on standard input: `{"model": file, "inputs": file}` opens a
file in the place of the one before and runs it; `{"seconds": s}` runs it for about that long.
"""

import contextlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

WARM_UP = 3  # runs: the second may still take memory that the first did not need


class Timer:
    """Such a process. As a context it ends with it."""

    def __init__(self, threads: int, provider: str = "cpu") -> None:
        self.process = subprocess.Popen(
            [sys.executable, __file__, str(threads), provider],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip

    def __enter__(self) -> "Timer":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def open(self, model: Path, inputs: Path) -> None:
        """Open a file in the place of the one before."""
        self._ask(model=str(model), inputs=str(inputs))

    def time(self, seconds: float) -> list[float]:
        """Return the seconds of each run, for about so long."""
        times: list[float] = self._ask(seconds=seconds)["times"]
        return times

    def _ask(self, **request: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        if not (line := self.process.stdout.readline()):
            raise RuntimeError(f"The process that times files ended at {request}; what it said stands above.")
        reply: dict[str, Any] = json.loads(line)
        return reply


def main(threads: str, provider: str) -> None:
    import numpy as np
    from _worker import timed

    from keras_attn_export._standalone import verify

    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints must not be taken for a reply
    run = None
    for line in sys.stdin:
        request = json.loads(line)
        reply: dict[str, Any] = {}
        if "model" in request:
            run = None  # the session of the one before goes first
            session = verify.open_session(Path(request["model"]), provider, threads=int(threads))
            with np.load(request["inputs"]) as arrays:
                run = partial(session.run, None, dict(arrays))
            del session
            for _ in range(WARM_UP):
                run()
        else:
            assert run is not None
            reply = timed(run, request["seconds"])
        replies.write(json.dumps(reply) + "\n")
        replies.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main(*sys.argv[1:])
