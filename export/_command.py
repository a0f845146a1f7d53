"""Where the `keras-attn` command starts: signals end it from here on, while all that it needs is being imported."""

import os
import signal
import sys


def main() -> int:
    """Run the command line, and return its exit code."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        if hasattr(signal, name) and signal.getsignal(getattr(signal, name)) is not signal.SIG_IGN:
            signal.signal(getattr(signal, name), lambda number, _: os._exit(128 + number))
    from ._cli.main import main

    code = main(is_process=True)
    if code > 128:  # a thread may still compute, which Python would wait for
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):  # closed, or never there
                continue
        os._exit(code)
    return code
