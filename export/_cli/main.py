"""The `keras-attn` command: runs a subcommand, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import signal
import sys
import traceback
from collections.abc import Sequence

from .._errors import ExportError
from .._standalone import verify as standalone
from . import bench, convert, export, inspect, layout, predict, report, run, sign, verify

# One module each: its parser and its main.
COMMANDS = (export, verify, sign, run, predict, inspect, report, convert, layout, bench)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns:
        The exit code: 0 done and matched, 1 a mismatch or something that could not be done. Wrong usage exits with 2,
        a signal with 128 and its number, Ctrl-C with 130.
    """
    arguments = _parser().parse_args(argv)
    code = 1
    with standalone.heeding_signals() as signals:
        code = _carried_out(arguments, signals)
    return 128 + signals[0] if signals else code


def _carried_out(arguments: argparse.Namespace, signals: Sequence[int]) -> int:
    """Carry out a subcommand and return its exit code; what a signal raised, or a library made of it, goes on."""
    try:
        arguments.run(arguments)
    except KeyboardInterrupt as stop:
        print(str(stop) or "interrupted: nothing was written", file=sys.stderr)
        return 128 + signal.SIGINT
    except SystemExit as end:
        if signals:
            raise
        # a layer, say, that calls `sys.exit(0)`, which would pass for success
        print(f"error: code that was run called `sys.exit({end.code!r})`; nothing came of it", file=sys.stderr)
        return 1
    except Exception as error:
        if signals:
            raise
        _print_error(error, debug=arguments.debug)
        return 1
    return 0


def _print_error(error: Exception, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error)
        return
    message = " ".join(str(error).split())
    if not isinstance(error, ExportError | OSError):
        message = f"unexpected {type(error).__name__}: {message} (run again with --debug to see where)"
    print(f"error: {message}", file=sys.stderr)


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
