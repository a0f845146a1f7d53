"""The `keras-attn` command: runs a subcommand, and turns what goes wrong into one line and an exit code."""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import NoReturn, TextIO

from .._errors import ExportError
from .._standalone import verify as standalone
from .._standalone.verify import in_one_line, printable, say
from . import bench, doctor, export, inspect, predict, report, run, verify

# One module each: its parser and its main.
COMMANDS = (export, verify, run, predict, inspect, report, bench, doctor)
REPLACEMENTS = {  # of removed commands and options
    "convert": 'Keras\'s own `model.export("model.tflite", format="litert")`',
    "layout": "the example service, or the Triton and TensorFlow Serving folders, of docs/serving.md",
    "sign": "`model_signing sign key` on the folder (docs/security.md)",
    "verify --public-key": "`model_signing verify key` on the folder (docs/security.md)",
    "verify --signature": "`model_signing verify key` on the folder (docs/security.md)",
}


def main(argv: Sequence[str] | None = None, *, is_process: bool = False) -> int:
    """Run the command line.

    Args:
        argv: The arguments; `None` for those of this process.
        is_process: Whether this process does nothing else.

    Returns:
        The exit code: 0 done and matched, 1 a mismatch or something that could not be done. Wrong usage exits with 2,
        a signal with 128 and its number, Ctrl-C with 130.
    """
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # a shell asks how a line may go on
        with contextlib.suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    argv = sys.argv[1:] if argv is None else argv
    used = [argv[0], *(f"{argv[0]} {word.partition('=')[0]}" for word in argv[1:])] if argv else []
    for name in used:
        if name in REPLACEMENTS:
            parser.error(f"`{name}` was removed: use {REPLACEMENTS[name]}")
    arguments = parser.parse_args(argv)
    if is_process:
        # Signals end the process until here. Below they raise, and an exception inside the initialization of a nanobind
        # module, of which onnx has one, crashes Python.
        with contextlib.suppress(ImportError):  # the command that needs onnx says how to install it
            import onnx  # noqa: F401
    code = 1
    with (
        _plain_warnings(),
        contextlib.suppress(KeyboardInterrupt, SystemExit),
        standalone.stopping_at_signals() as signals,
        _temporary_files() if is_process else contextlib.nullcontext(),
    ):
        code = _carried_out(arguments, signals)
    return 128 + signals[0] if signals else code


@contextlib.contextmanager
def _temporary_files() -> Iterator[None]:
    """Let all temporary files be in one folder, so that none stays: libraries leave theirs to the end of Python."""
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # there is no place for any: what needs one will say so
            tempfile.tempdir = str(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        try:
            yield
        finally:
            tempfile.tempdir = None


def _carried_out(arguments: argparse.Namespace, signals: Sequence[int]) -> int:
    """Carry out a subcommand and return its exit code; after a signal, the caller knows a better one."""
    try:
        arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        say(str(stop) or "interrupted: nothing was written", file=sys.stderr)
        return 128 + signal.SIGINT
    except SystemExit as end:
        if signals:
            return 1
        # a layer, say, that calls `sys.exit(0)`, which would pass for success
        say(f"error: code that was run called `sys.exit({end.code!r})`; nothing came of it", file=sys.stderr)
        return 1
    except Exception as error:  # noqa: BLE001 - whatever the code of a model raises
        if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
            return 141  # as SIGPIPE ends other programs whose output nobody reads any more
        if not signals:
            _print_error(error, debug=arguments.debug)
        return 1
    return 0


def _has_no_reader(stream: TextIO) -> bool:
    poll = select.poll()
    poll.register(stream, 0)  # errors alone
    return bool(poll.poll(0))


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


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="keras-attn",
        description="Export Keras models to ONNX bundles, and check them against Keras.",
        epilog="Exit codes: 0 done and matched; 1 a mismatch, or something that could not be done; 2 wrong usage.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
