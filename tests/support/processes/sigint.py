"""Handling of Ctrl-C in processes that tests start."""

import contextlib
import signal


@contextlib.contextmanager
def enable_interrupts():
    """Make processes that start in the context react to SIGINT, even if the tests run in the background (`&`)."""
    # A shell's `&` sets SIGINT to be ignored, which child processes inherit. They do not inherit a handler.
    previous_handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, previous_handler)
