"""The `keras-attn` command: runs a subcommand, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

from .._errors import ExportError
from . import bench, convert, export, inspect, layout, predict, report, run, sign, verify

# One module each: its parser and its main.
COMMANDS = (export, verify, sign, run, predict, inspect, report, convert, layout, bench)

# Signals that tell a process to end: by whoever runs it, or because its terminal is closed (not on Windows).
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 done and matched, 1 a mismatch or something that could not be done. Wrong usage exits with 2,
        Ctrl-C with 130.
    """
    arguments = _parser().parse_args(argv)
    with _heeding_signals() as ending:
        try:
            arguments.run(arguments)
        except KeyboardInterrupt as stop:
            print(str(stop) or "interrupted: nothing was written", file=sys.stderr)
            return 130
        except SystemExit as end:
            if ending:
                raise
            # a layer, say, that calls `sys.exit(0)`, which would pass for success
            print(f"error: code that was run called `sys.exit({end.code!r})`; nothing came of it", file=sys.stderr)
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
        traceback.print_exception(error)
        return
    message = " ".join(str(error).split())
    if not isinstance(error, ExportError | OSError):
        message = f"unexpected {type(error).__name__}: {message} (run again with --debug to see where)"
    print(f"error: {message}", file=sys.stderr)


@contextlib.contextmanager
def _heeding_signals() -> Iterator[list[int]]:
    """Let `finally` clauses run when the process is told to end, so that no partial folder stays behind.

    A handler can only raise, and Python drops what is raised inside a `__del__`, of which TensorFlow has many. Such a
    signal is sent once more, a moment later. Yields the signals that came.
    """
    ending: list[int] = []

    def terminate(number: int, _: object) -> None:
        ending.append(number)
        raise SystemExit(128 + number)

    def dropped(lost: Any) -> None:
        if isinstance(lost.exc_value, KeyboardInterrupt | SystemExit):
            number = ending[-1] if ending and isinstance(lost.exc_value, SystemExit) else signal.SIGINT
            again = threading.Timer(0.01, os.kill, (os.getpid(), number))
            again.daemon = True
            again.start()
        elif not ending:  # what is half made when the process ends may complain that it is
            sys.__unraisablehook__(lost)

    handlers = {number: signal.signal(number, terminate) for number in ENDING}
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        yield ending
    finally:
        if not ending:  # what is half made may complain until the process has ended
            sys.unraisablehook = hook
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="keras-attn",
        description="Export Keras models to ONNX bundles that are proven to give the same numbers.",
        epilog="Exit codes: 0 done and matched; 1 a mismatch, or something that could not be done; 2 wrong usage.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
