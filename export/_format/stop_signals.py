"""Handling of Ctrl-C and SIGTERM: a command ends within seconds, also while onnxruntime computes."""

import contextlib
import os
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from typing import Any, NoReturn

# A handler raises an exception in the main thread, so that `finally` blocks remove temporary files. Python runs a
# handler only between instructions of the main thread. So onnxruntime computes in a second thread, and its run options
# get `terminate` when the exception arrives. A timer ends the process if the cleanup takes longer.
# Time from a signal to `os._exit`, if code catches the exception or a C call delays it.
GRACE_SECONDS = 1.5
_handles_signals = False  # True while `stop_at_signals` is active in the main thread


@contextlib.contextmanager
def stop_at_signals(*, owns_process: bool = True) -> Iterator[list[int]]:
    """Raise `KeyboardInterrupt` at Ctrl-C and `SystemExit` at SIGTERM; yield a list that receives the signal.

    If `owns_process`, the process ends `GRACE_SECONDS` after a signal even if the exception does not end it.
    """
    global _handles_signals
    signals: list[int] = []
    timer = threading.Timer(GRACE_SECONDS, lambda: owns_process and os._exit(128 + signals[0]))
    is_main, previous = threading.current_thread() is threading.main_thread(), _handles_signals
    # Handlers set by `nohup` and the `&` of a shell, or by a C library, are preserved.
    preserved = (signal.SIG_IGN, None)
    numbers = [sig for sig in (signal.SIGINT, signal.SIGTERM) if is_main and signal.getsignal(sig) not in preserved]

    def stop(number: int, _: object) -> NoReturn:
        signals.append(number)
        # `timeout` sends a second signal, which would interrupt the cleanup.
        for handled in numbers:
            signal.signal(handled, signal.SIG_IGN)
        timer.start()
        raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)

    handlers = {number: signal.signal(number, stop) for number in numbers}
    _handles_signals = is_main
    try:
        yield signals
    finally:
        timer.cancel()
        _handles_signals = previous
        for number, handler in handlers.items():
            signal.signal(number, handler)


def run_interruptibly(compute: Callable[[Any], Any]) -> Any:
    """Call `compute` in a second thread with `RunOptions` that a signal terminates; without handlers, with None."""
    if not _handles_signals or threading.current_thread() is not threading.main_thread():
        return compute(None)
    import onnxruntime as ort

    options, executor = ort.RunOptions(), ThreadPoolExecutor(1)
    future = executor.submit(compute, options)
    try:
        while not future.done():
            wait([future], timeout=0.1)  # Windows handles no signal during a longer wait
        return future.result()
    finally:
        options.terminate = True
        executor.shutdown(wait=False)
