"""The `keras-attn` command: runs a subcommand, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
import warnings
import weakref
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

from .._errors import ExportError
from .._standalone.verify import in_one_line, printable, say
from . import bench, convert, export, inspect, layout, predict, report, run, sign, verify

# One module each: its parser and its main.
COMMANDS = (export, verify, sign, run, predict, inspect, report, convert, layout, bench)

# Signals that tell a process to end: by whoever runs it, or because its terminal is closed (not on Windows).
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
PATIENCE = 0.5  # seconds until a signal is sent again: C++ may have made another error of what it raised


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 done and matched, 1 a mismatch or something that could not be done. Wrong usage exits with 2,
        Ctrl-C with 130.
    """
    arguments = _parser().parse_args(argv)
    with _plain_warnings(), _heeding_signals() as ending:
        try:
            arguments.run(arguments)
        except KeyboardInterrupt as stop:
            say(str(stop) or "interrupted: nothing was written", file=sys.stderr)
            return 130
        except SystemExit as end:
            if ending:
                raise
            # a layer, say, that calls `sys.exit(0)`, which would pass for success
            say(f"error: code that was run called `sys.exit({end.code!r})`; nothing came of it", file=sys.stderr)
            return 1
        except Exception as error:  # noqa: BLE001 - the last stop before the user: one line, or all with --debug
            if ending:  # what TensorFlow's C++ made of the end that a signal asked for
                return 128 + ending[-1]
            _print_error(error, debug=arguments.debug)
            return 1
        if ending:  # what it raised was lost, as while onnxruntime is imported
            return 128 + ending[-1]
    return 0


def _print_error(error: Exception, *, debug: bool) -> None:
    if debug:
        for part in traceback.format_exception(error):
            first, *more = part.strip("\n").split("\n")
            say(first, *(f"  {line}" for line in more), file=sys.stderr)
        return
    message = in_one_line(error)
    if not isinstance(error, ExportError | OSError):
        message = f"unexpected {type(error).__name__}: {message} (run again with --debug to see where)"
    say(f"error: {message}", file=sys.stderr)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Let each warning of Python be one line, in which nothing steers the terminal."""
    format_before = warnings.formatwarning

    def in_a_line(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return printable(f"{filename}:{lineno}: {category.__name__}: {in_one_line(message)}") + "\n"

    warnings.formatwarning = in_a_line
    try:
        yield
    finally:
        warnings.formatwarning = format_before


class _Parser(argparse.ArgumentParser):
    """A parser that says what it was given as `say` does."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        say(f"{self.prog}: error: {message}", file=sys.stderr)
        self.exit(2)


class _End(SystemExit):
    """What a signal to end raises: of a class of its own, so that it can be seen to be lost."""


class _Interrupt(KeyboardInterrupt):
    """The same of Ctrl-C."""


@contextlib.contextmanager
def _heeding_signals() -> Iterator[list[int]]:
    """Let `finally` clauses run when the process is told to end, so that no partial folder stays behind.

    A handler can only raise, and what it raises may be lost: Python drops it inside a `__del__`, of which TensorFlow
    has many, and tf2onnx has clauses that catch everything. A signal whose exception is gone while the command goes on
    is sent once more, a moment later. Yields the signals that came, without Ctrl-C.
    """
    ending: list[int] = []
    is_over = threading.Event()
    watched: list[weakref.ref[BaseException]] = []

    def again(number: int) -> None:
        if not is_over.wait(PATIENCE):
            os.kill(os.getpid(), number)

    def lost(number: int) -> None:
        if not is_over.is_set():
            threading.Thread(target=again, args=[number], daemon=True).start()

    def raised(number: int) -> BaseException:
        error = _Interrupt() if number == signal.SIGINT else _End(128 + number)
        watched.append(weakref.ref(error, lambda _: lost(number)))
        return error

    def terminate(number: int, _: object) -> None:
        if number != signal.SIGINT:
            ending.append(number)
        raise raised(number)  # under no name here: its traceback would keep this frame, and this frame it

    def dropped(failed: Any) -> None:
        if not ending and not isinstance(failed.exc_value, KeyboardInterrupt):
            sys.__unraisablehook__(failed)  # what is half made when the process ends may complain that it is

    heeded = [*ENDING, *([signal.SIGINT] if signal.getsignal(signal.SIGINT) is signal.default_int_handler else [])]
    handlers = {number: signal.signal(number, terminate) for number in heeded}
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        yield ending
    finally:
        is_over.set()
        if not ending:  # what is half made may complain until the process has ended
            sys.unraisablehook = hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="keras-attn",
        description="Export Keras models to ONNX bundles that are proven to give the same numbers.",
        epilog="Exit codes: 0 done and matched; 1 a mismatch, or something that could not be done; 2 wrong usage.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
