"""The `keras-attn` command: runs a subcommand, and reports its errors in one line and by its exit code."""

import argparse
import contextlib
import logging
import os
import select
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Iterator, Sequence
from typing import NoReturn, TextIO

from .._cli import bench, doctor, export, inspect, predict, report, run, verify
from .._errors import ExportError
from .._format.console import join_lines, say
from .._format.printing import printable
from .._format.stop_signals import stop_at_signals

# Modules with `add_parser`, which sets the main of the module as `run`.
COMMANDS = (export, verify, run, predict, inspect, report, bench, doctor)
REPLACEMENTS = {  # for removed commands and options
    "convert": 'Keras\'s own `model.export("model.tflite", format="litert")`',
    "layout": "the example service, or the Triton and TensorFlow Serving folders, of docs/serving.md",
    "sign": "`model_signing sign key` on the folder (docs/security.md)",
    "verify --public-key": "`model_signing verify key` on the folder (docs/security.md)",
    "verify --signature": "`model_signing verify key` on the folder (docs/security.md)",
}


def main(argv: Sequence[str] | None = None, *, is_process: bool = False) -> int:
    """Run the command line.

    Args:
        argv: The arguments, by default the arguments of the process.
        is_process: Whether the process runs this command only: onnx is imported early, and temporary files go into one
            folder.

    Returns:
        The exit code: 0 done and matched, 1 a mismatch or something that could not be done. Wrong usage exits with 2,
        a signal with 128 and its number, Ctrl-C with 130.
    """
    parser = _parser()
    if "_ARGCOMPLETE" in os.environ:  # set by the shell for completion
        with contextlib.suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    argv = sys.argv[1:] if argv is None else argv
    command, *rest = argv or [""]
    for name in (command, *(f"{command} {word.partition('=')[0]}" for word in rest)):
        if replacement := REPLACEMENTS.get(name):
            parser.error(f"`{name}` was removed: use {replacement}")
    arguments = parser.parse_args(argv)
    if is_process:
        # Until here a signal ends the process (`_entry_point.py`); below, it raises an exception. Import onnx now:
        # Python crashes if an exception interrupts the initialization of its nanobind module.
        with contextlib.suppress(ImportError):  # commands that need onnx report that it is missing
            import onnx  # noqa: F401
    code = 1
    with (
        _plain_warnings(),
        # a signal may also raise before or after the try block of `_run_command`
        contextlib.suppress(KeyboardInterrupt, SystemExit),
        stop_at_signals(is_process=is_process) as signals,
        _temporary_folder() if is_process else contextlib.nullcontext(),
        _debug_messages() if arguments.debug else contextlib.nullcontext(),
    ):
        code = _run_command(arguments, signals)
    return 128 + signals[0] if signals else code


@contextlib.contextmanager
def _temporary_folder() -> Iterator[None]:
    """Put all temporary files into one folder and remove it at the end.

    Libraries remove their own at exit, which `os._exit` skips.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # no folder is writable: only code that needs a temporary file fails
            tempfile.tempdir = str(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        try:
            yield
        finally:
            tempfile.tempdir = None


def _run_command(arguments: argparse.Namespace, signals: Sequence[int]) -> int:
    """Run a subcommand and return its exit code. After a signal, `main` replaces the code by 128 + number."""
    try:
        arguments.run(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        say(str(stop) or "interrupted: nothing was written", file=sys.stderr)
        return 128 + signal.SIGINT
    except SystemExit as end:
        if signals:
            return 1
        # For example a layer that calls sys.exit(0): the command would end with the code of success.
        message = f"error: code called by this command ran `sys.exit({end.code!r})`; the command did not finish"
        say(message, file=sys.stderr)
        return 1
    except Exception as error:  # noqa: BLE001 - whatever the code of a model raises
        if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
            return 141  # 128 + SIGPIPE: the code of a program whose reader has gone
        if not signals:
            _print_error(error, debug=arguments.debug)
        return 1
    return 0


def _has_no_reader(stream: TextIO) -> bool:
    """Return whether the reader of a pipe has closed it; False if that is unknown."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Windows has no `poll`, a StringIO no file
        poll = select.poll()
        poll.register(stream, 0)  # no events: `poll` always reports errors
        return bool(poll.poll(0))
    return False


def _print_error(error: Exception, *, debug: bool) -> None:
    if debug:
        for part in traceback.format_exception(error):
            first, *more = part.strip("\n").split("\n")
            say(first, *(f"  {line}" for line in more), file=sys.stderr)
        return
    message = join_lines(error)
    if not isinstance(error, ExportError | OSError):
        message = f"unexpected {type(error).__name__}: {message} (run again with --debug to see where)"
    say(f"error: {message}", file=sys.stderr)


@contextlib.contextmanager
def _plain_warnings() -> Iterator[None]:
    """Print each Python warning in one line, with control characters escaped."""
    format_before = warnings.formatwarning

    def format_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return printable(f"{filename}:{lineno}: {category.__name__}: {join_lines(message)}") + "\n"

    warnings.formatwarning = format_warning
    try:
        yield
    finally:
        warnings.formatwarning = format_before


class _StandardError(logging.Handler):
    """Handler that prints each record in one line on standard error, with control characters escaped."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            say(join_lines(f"{record.levelname.lower()}: {record.getMessage()}"), file=sys.stderr)
        except Exception:  # noqa: BLE001 - as handlers of Python: standard error may be closed
            self.handleError(record)


@contextlib.contextmanager
def _debug_messages() -> Iterator[None]:
    """Print all records of this package."""
    logger = logging.getLogger("keras_attn_export")
    before = logger.level, logger.propagate
    handler = _StandardError()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False  # libraries add handlers to the root logger, which would print each record again
    try:
        yield
    finally:
        logger.setLevel(before[0])
        logger.propagate = before[1]
        logger.removeHandler(handler)


class _Parser(argparse.ArgumentParser):
    """Argument parser that escapes control characters in its error messages."""

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
