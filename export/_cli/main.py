"""Command-line entry point of `keras-attn`: subcommands, exit codes, error messages and signals."""

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
from .._format.console import join_lines, print_escaped
from .._format.printing import escape_unprintable
from .._format.stop_signals import stop_at_signals

# Modules with a function `add_parser`, which stores the module's `main` as `command_main` in the parsed arguments.
COMMANDS = (export, verify, run, predict, inspect, report, bench, doctor)
# Replacements of removed commands and options.
REPLACEMENTS = {
    "convert": 'Keras\'s own `model.export("model.tflite", format="litert")`',
    "layout": "the example service, or the Triton and TensorFlow Serving folders, of docs/serving.md",
    "sign": "`model_signing sign key` on the folder (docs/security.md)",
    "verify --public-key": "`model_signing verify key` on the folder (docs/security.md)",
    "verify --signature": "`model_signing verify key` on the folder (docs/security.md)",
}


def main(argv: Sequence[str] | None = None, *, owns_process: bool = False) -> int:
    """Run the command line.

    Args:
        argv: Arguments of the command line; by default those of the process.
        owns_process: True if the process does nothing else. Then onnx is imported before signals raise exceptions,
            and all temporary files are written to one folder, which is removed at the end.

    Returns:
        Exit code: 0 for success, 1 for a mismatch or an error, 128 + n after signal n. Wrong usage exits with code 2.
    """
    parser = _build_parser()
    if "_ARGCOMPLETE" in os.environ:  # the shell sets this to complete a command
        with contextlib.suppress(ImportError):
            import argcomplete

            argcomplete.autocomplete(parser)
    argv = sys.argv[1:] if argv is None else argv
    command, *command_arguments = argv or [""]
    for name in (command, *(f"{command} {argument.partition('=')[0]}" for argument in command_arguments)):
        if replacement := REPLACEMENTS.get(name):
            parser.error(f"`{name}` was removed: use {replacement}")
    arguments = parser.parse_args(argv)
    if owns_process:
        # Until here a signal ends the process (`_entry_point.py`). Below, it raises an exception. Import onnx now,
        # because Python crashes if an exception interrupts the initialization of onnx's nanobind module.
        with contextlib.suppress(ImportError):  # commands that need onnx report that it is missing
            import onnx  # noqa: F401
    code = 1
    with (
        _print_plain_warnings(),
        # The exception of a signal may also be raised before or after the try block of `_run_command`.
        contextlib.suppress(KeyboardInterrupt, SystemExit),
        stop_at_signals(owns_process=owns_process) as signals,
        _use_temporary_folder() if owns_process else contextlib.nullcontext(),
        _print_debug_messages() if arguments.debug else contextlib.nullcontext(),
    ):
        code = _run_command(arguments, signals)
    return 128 + signals[0] if signals else code


@contextlib.contextmanager
def _use_temporary_folder() -> Iterator[None]:
    """Put all temporary files into one folder and remove it at the end."""
    # Libraries use `atexit` to remove their temporary files; `os._exit`, called after a signal, skips `atexit`.
    with contextlib.ExitStack() as stack:
        # If no folder is writable, continue: the command may need no temporary file.
        with contextlib.suppress(OSError):
            tempfile.tempdir = str(stack.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        try:
            yield
        finally:
            tempfile.tempdir = None


def _run_command(arguments: argparse.Namespace, signals: Sequence[int]) -> int:
    """Run a subcommand and return its exit code. After a signal, `main` replaces this exit code."""
    try:
        arguments.command_main(arguments)
        sys.stdout.flush()
    except KeyboardInterrupt as stop:
        print_escaped(str(stop) or "interrupted: nothing was written", file=sys.stderr)
        return 128 + signal.SIGINT
    except SystemExit as system_exit:
        if signals:
            return 1
        # Code of a model, such as a layer, may call `sys.exit(0)`. This unfinished command must not end with code 0.
        message = f"error: code called by this command ran `sys.exit({system_exit.code!r})`; the command did not finish"
        print_escaped(message, file=sys.stderr)
        return 1
    except Exception as error:  # noqa: BLE001 - the code of a model may raise any error
        if isinstance(error, BrokenPipeError) and _has_no_reader(sys.stdout):
            return 141  # 128 + SIGPIPE, the exit code of any program that writes to a closed pipe
        if not signals:
            _print_error(error, debug=arguments.debug)
        return 1
    return 0


def _has_no_reader(stream: TextIO) -> bool:
    """Return True if the reader of a pipe has closed it, and False if it has not or if this is unknown."""
    with contextlib.suppress(AttributeError, OSError, ValueError):  # Windows has no `poll`, a StringIO has no file
        poll = select.poll()
        poll.register(stream, 0)  # 0 asks for no events: `poll` always reports errors, such as a closed pipe
        return bool(poll.poll(0))
    return False


def _print_error(error: Exception, *, debug: bool) -> None:
    if debug:
        for part in traceback.format_exception(error):
            first_text, *lines = part.strip("\n").split("\n")
            print_escaped(first_text, *(f"  {line}" for line in lines), file=sys.stderr)
        return
    message = join_lines(error)
    if not isinstance(error, ExportError | OSError):
        message = f"unexpected {type(error).__name__}: {message} (run again with --debug to see where)"
    print_escaped(f"error: {message}", file=sys.stderr)


@contextlib.contextmanager
def _print_plain_warnings() -> Iterator[None]:
    """Print Python warnings in one line each, with escaped control characters."""
    previous_format = warnings.formatwarning

    def format_warning(
        message: Warning | str, category: type[Warning], filename: str, lineno: int, line: str | None = None
    ) -> str:
        return escape_unprintable(f"{filename}:{lineno}: {category.__name__}: {join_lines(message)}") + "\n"

    warnings.formatwarning = format_warning
    try:
        yield
    finally:
        warnings.formatwarning = previous_format


class _StandardErrorHandler(logging.Handler):
    """Log handler that prints a record in one line on standard error, with escaped control characters."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            print_escaped(join_lines(f"{record.levelname.lower()}: {record.getMessage()}"), file=sys.stderr)
        except Exception:  # noqa: BLE001 - standard error may be closed; handlers of `logging` do the same
            self.handleError(record)


@contextlib.contextmanager
def _print_debug_messages() -> Iterator[None]:
    logger = logging.getLogger("keras_attn_export")
    previous = logger.level, logger.propagate
    handler = _StandardErrorHandler()
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    # Libraries add handlers to the root logger, which would print each record again.
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(previous[0])
        logger.propagate = previous[1]
        logger.removeHandler(handler)


class _Parser(argparse.ArgumentParser):
    """Argument parser with escaped control characters in error messages."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        print_escaped(f"{self.prog}: error: {message}", file=sys.stderr)
        self.exit(2)


def _build_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="keras-attn",
        description="Export Keras models to ONNX bundles, and check them against Keras.",
        epilog="Exit codes: 0 done and matched; 1 a mismatch, or something that could not be done; 2 wrong usage.",
    )
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in COMMANDS:
        command.add_parser(commands)
    return parser
