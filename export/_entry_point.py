# PYTHON_ARGCOMPLETE_OK: argcomplete searches the file of a command for this marker
"""Entry point of the `keras-attn` command; handles signals before slow imports."""

# `signal` imports `enum`, which takes longer than all other imports of this module.
import _signal
import os
import sys


def main() -> int:
    """Run the command line and return its exit code."""
    for signal_number in (_signal.SIGINT, _signal.SIGTERM):
        if _signal.getsignal(signal_number) != _signal.SIG_IGN:
            _signal.signal(signal_number, lambda received, _: os._exit(128 + received))
    from ._cli.main import main

    code = main(owns_process=True)
    # After a signal, a thread of onnxruntime may still compute; `sys.exit` would wait for the thread.
    if code > 128:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):  # the stream is closed or `None`
                continue
        os._exit(code)
    return code
