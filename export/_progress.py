"""Say what a long export is doing now, on a terminal only."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Progress = Callable[[str], None]


@contextlib.contextmanager
def shown_progress(progress: bool | Progress | None) -> Iterator[Progress]:
    """Yield the function to call with each step's name.

    Args:
        progress: A function of the caller's; `None` or `True` for a spinner on standard error where that is a
            terminal; `False` for nothing.
    """
    if callable(progress):
        yield progress
    elif progress is not False and sys.stderr.isatty():
        from rich.console import Console

        with Console(stderr=True).status("Starting") as status:
            yield lambda step: status.update(step)
    else:
        yield lambda step: None
