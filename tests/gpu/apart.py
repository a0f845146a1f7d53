"""A process of its own for what may crash: the fault of a kernel ends it, and the check goes on in a new one."""

import multiprocessing
import signal
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from .sessions import first_line

LIMIT = 600.0  # seconds for one task


class ApartError(Exception):
    """A task gave no result; the message is a sentence."""


class Apart:
    """Runs functions, one at a time, in a process that it starts when there is none."""

    def __init__(self, limit: float = LIMIT) -> None:
        self.limit = limit
        self._process: Any = None
        self._end: Connection | None = None

    def __call__(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the function returns.

        Raises:
            ApartError: It raised, its process ended, or it took too long.
        """
        end = self._started()
        try:
            end.send((function, arguments))
            if not end.poll(self.limit):
                self.close()
                raise ApartError(f"It took longer than {self.limit:.0f} seconds and was ended.")
            done, result = end.recv()
        except (EOFError, OSError) as error:
            self._process.join()
            code = self._process.exitcode
            self.close()
            raise ApartError(f"The process that ran it ended {_how(code)}.") from error
        if not done:
            raise ApartError(result)
        return result

    @classmethod
    def once(cls, function: Callable[..., Any], *arguments: Any) -> Any:
        """Return what the function returns in a process of its own, which then ends."""
        apart = cls()
        try:
            return apart(function, *arguments)
        finally:
            apart.close()

    def close(self) -> None:
        """End the process, if there is one; the next task gets a new one, without what this one held or broke."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
        if self._end is not None:
            self._end.close()
        self._process = self._end = None

    def _started(self) -> Connection:
        if self._end is None:
            context = multiprocessing.get_context("spawn")  # a fork of a process that has used CUDA cannot use it
            self._end, other = context.Pipe()
            self._process = context.Process(target=_serve, args=(other,), daemon=True)
            self._process.start()
            other.close()
        return self._end


def _how(code: int | None) -> str:
    if code is not None and code < 0:
        return f"by signal {signal.Signals(-code).name}"
    return f"by itself with exit code {code}"


def _serve(end: Connection) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the process that waits
    while True:
        try:
            function, arguments = end.recv()
        except EOFError:
            return
        try:
            answer = True, function(*arguments)
        except Exception as error:  # noqa: BLE001 - it is told where it is waited for
            answer = False, first_line(error)
        end.send(answer)
