"""Silencing of native (C++) output on standard error."""

import contextlib
import functools
import logging
import os
import sys
import tempfile
import warnings
from collections.abc import Iterator
from typing import TextIO

# TensorFlow's C++ code writes some start-up notices directly to descriptor 2, for every `TF_CPP_MIN_LOG_LEVEL`. While
# they are silenced, descriptor 2 is a temporary file, and `sys.stderr` writes to a copy of the original descriptor.
STDERR = 2


@contextlib.contextmanager
def silence_native_stderr() -> Iterator[None]:
    """Silence native output, Python warnings and warnings of loggers; `sys.stderr` still reaches the terminal."""
    try:
        saved = os.dup(STDERR)
    except OSError:  # standard error is closed, so nothing needs silencing
        yield
        return
    python_stream, logging_off = sys.stderr, logging.root.manager.disable
    try:
        with tempfile.TemporaryFile() as sink, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            logging.disable(logging.WARNING)
            if _writes_to_stderr(python_stream):
                python_stream.flush()
                sys.stderr = _open_stderr_copy()
                os.dup2(saved, sys.stderr.fileno(), inheritable=False)
            os.dup2(sink.fileno(), STDERR)
            try:
                yield
            finally:
                os.dup2(saved, STDERR)
                sys.stderr = python_stream
    finally:
        logging.disable(logging_off)
        os.close(saved)


def _writes_to_stderr(stream: TextIO | None) -> bool:
    """Return True if a stream writes to descriptor 2; a stream of a test or a notebook does not."""
    try:
        return stream is not None and stream.fileno() == STDERR
    except (OSError, ValueError, AttributeError):
        return False


@functools.cache
def _open_stderr_copy() -> TextIO:
    """Open a text stream on a copy of descriptor 2."""
    # The stream is never closed: log handlers that libraries create meanwhile keep it.
    return os.fdopen(os.dup(STDERR), "w", buffering=1, encoding=sys.stderr.encoding, errors="backslashreplace")
