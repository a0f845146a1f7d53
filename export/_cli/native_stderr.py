"""Keep standard error to what Python code of this project writes there."""

import contextlib
import functools
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import TextIO

STDERR = 2


@contextlib.contextmanager
def hidden_native_messages() -> Iterator[None]:
    """Hide what TensorFlow's C++ code says, and Python warnings; `sys.stderr` still reaches the terminal.

    TensorFlow writes some start-up notices straight to file descriptor 2, whatever `TF_CPP_MIN_LOG_LEVEL` says. While
    the block runs, that descriptor is a temporary file and `sys.stderr` a stream to where it led before.
    """
    try:
        saved = os.dup(STDERR)
    except OSError:  # standard error is closed: there is nowhere to hide anything from
        yield
        return
    python_stream, logging_off = sys.stderr, logging.root.manager.disable
    try:
        with tempfile.TemporaryFile() as hidden, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            if _writes_to_stderr(python_stream):
                python_stream.flush()
                sys.stderr = _stream_beside()
                os.dup2(saved, sys.stderr.fileno(), inheritable=False)
            os.dup2(hidden.fileno(), STDERR)
            try:
                yield
            finally:
                os.dup2(saved, STDERR)
                sys.stderr = python_stream
    finally:
        logging.disable(logging_off)
        os.close(saved)


def _writes_to_stderr(stream: TextIO | None) -> bool:
    """Tell whether a stream writes to descriptor 2; one that a test or a notebook has put there does not."""
    try:
        return stream is not None and stream.fileno() == STDERR
    except (OSError, ValueError, AttributeError):
        return False


@functools.cache
def _stream_beside() -> TextIO:
    """Return a text stream on a descriptor of its own.

    It is never closed: log handlers that libraries make while it is `sys.stderr` go on writing to it.
    """
    return os.fdopen(os.dup(STDERR), "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace")
