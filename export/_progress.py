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
        progress: A function of the caller's; `None` or `True` for a list of steps on standard error where that is a
            terminal; `False` for nothing.
    """
    if callable(progress):
        yield progress
    elif progress is not False and sys.stderr.isatty():
        with _listed_steps() as step:
            yield step
    else:
        yield lambda step: None


@contextlib.contextmanager
def _listed_steps() -> Iterator[Progress]:
    """List the steps on the terminal, each with the time it took or has taken; at the end the list goes away."""
    from rich.console import Console
    from rich.progress import Progress as Display
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(finished_text="[green]✓[/]"), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Display(*columns, console=Console(stderr=True), transient=True) as display:

        def step(name: str) -> None:
            for task in display.task_ids:
                display.update(task, total=1, completed=1)
            display.add_task(name, total=None)

        yield step
