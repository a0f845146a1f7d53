"""The `keras-attn` command: runs a subcommand, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence

from ._commands import COMMANDS
from ._errors import ExportError

# Signals that tell a process to end: by whoever runs it, or because its terminal is closed (not on Windows).
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 done and matched, 1 a mismatch or something that could not be done. Wrong usage exits with 2,
        Ctrl-C with 130.
    """
    arguments = _parser().parse_args(argv)
    before = {number: signal.signal(number, _terminate) for number in ENDING}
    try:
        arguments.run(arguments)
    except KeyboardInterrupt:
        print("interrupted: nothing was written", file=sys.stderr)
        return 130
    except Exception as error:  # noqa: BLE001 - the last stop before the user, who reads one line, or all with --debug
        _print_error(error, debug=arguments.debug)
        return 1
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return 0


def _print_error(error: Exception, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
        return
    message = " ".join(str(error).split())
    if not isinstance(error, ExportError | OSError):
        message = f"unexpected {type(error).__name__}: {message} (run again with --debug to see where)"
    print(f"error: {message}", file=sys.stderr)


def _terminate(number: int, _: object) -> None:
    """Let `finally` clauses run when the process is told to end, so that no partial folder stays behind."""
    sys.unraisablehook = lambda _: None  # what was being made at this moment may complain when it is deleted half made
    raise SystemExit(128 + number)


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
