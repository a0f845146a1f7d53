"""Processes that heed Ctrl-C, wherever the tests run."""

import contextlib
import signal


@contextlib.contextmanager
def enable_interrupts():
    """Let processes that are started meanwhile heed SIGINT, which those of a shell's `&` ignore, and all below them."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a handler is the default in another program
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
