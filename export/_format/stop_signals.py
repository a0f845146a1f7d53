"""Ctrl-C and SIGTERM: end a command within seconds, also while onnxruntime computes."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NoReturn

GRACE_SECONDS = 1.5  # from a signal to `os._exit`, if code catches the exception or a C call delays it
_handles_signals = False  # whether `stopping_at_signals` is active in the main thread


@contextlib.contextmanager
def stopping_at_signals(*, is_process: bool = True) -> Iterator[list[int]]:
    """Raise `KeyboardInterrupt` at Ctrl-C and `SystemExit` at SIGTERM; yield a list that receives the signal.

    If `is_process`, the process ends after `GRACE_SECONDS` in any case.
    """
    global _handles_signals
    signals: list[int] = []
    timer = threading.Timer(GRACE_SECONDS, lambda: is_process and os._exit(128 + signals[0]))
    is_main, before = threading.current_thread() is threading.main_thread(), _handles_signals
    foreign = (signal.SIG_IGN, None)  # handlers to preserve: set by `nohup` and the `&` of a shell, or by a C library
    caught = [sig for sig in (signal.SIGINT, signal.SIGTERM) if is_main and signal.getsignal(sig) not in foreign]

    def stop(number: int, _: object) -> NoReturn:
        signals.append(number)
        for other in caught:  # `timeout` sends a second signal, which would interrupt the cleanup
            signal.signal(other, signal.SIG_IGN)
        timer.start()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    handlers = {number: signal.signal(number, stop) for number in caught}
    _handles_signals = is_main
    try:
        yield signals
    finally:
        timer.cancel()
        _handles_signals = before
        for number, handler in handlers.items():
            signal.signal(number, handler)


def interruptible(compute: Callable[[Any], Any]) -> Any:
    """Call a function with `onnxruntime.RunOptions` that a signal terminates; with None outside of a command."""
    if not _handles_signals or threading.current_thread() is not threading.main_thread():
        return compute(None)
    import onnxruntime as ort

    # Python runs signal handlers in the main thread only, and not while that thread is in onnxruntime.
    options, executor = ort.RunOptions(), ThreadPoolExecutor(1)
    future = executor.submit(compute, options)
    try:
        while not future.done():
            wait([future], timeout=0.1)  # Windows handles no signal during a longer wait
        return future.result()
    finally:
        options.terminate = True
        executor.shutdown(wait=False)
