# PYTHON_ARGCOMPLETE_OK: shells that look for this line complete the command
"""Entry point of the `keras-attn` command; handles signals before slow imports."""

import _signal  # what `signal` is made of: that takes longer to import than all else here
import os
import sys


def main() -> int:
    """Run the command line, and return its exit code."""
    for number in (_signal.SIGINT, _signal.SIGTERM):
        if _signal.getsignal(number) != _signal.SIG_IGN:
            _signal.signal(number, lambda number, _: os._exit(128 + number))
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
