"""Say on a terminal what takes long: the steps of an export, or how many rows are done."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

from ._standalone.verify import printable

Progress = Callable[[str], None]
RowProgress = Callable[[int, int], None]  # rows done, all rows


def shown_progress(progress: bool | Progress | None) -> contextlib.AbstractContextManager[Progress]:
    """Yield the function to call with each step's name.

    Args:
        progress: A function of the caller's; `None` or `True` for a list of steps on standard error where that is a
            terminal; `False` for nothing.
    """
    return _shown(progress, _listed_steps)


def shown_rows(progress: bool | RowProgress | None) -> contextlib.AbstractContextManager[RowProgress]:
    """Yield the function to call with the rows that are done and all rows; the same choices, with a bar."""
    return _shown(progress, _bar)


@contextlib.contextmanager
def _shown(progress: Any, on_terminal: Callable[[], Any]) -> Iterator[Any]:
    if callable(progress):
        yield progress
    elif progress is not False and sys.stderr.isatty():
        with on_terminal() as show:
            yield show
    else:
        yield lambda *_: None


@contextlib.contextmanager
def _listed_steps() -> Iterator[Progress]:
    """List the steps on the terminal, each with the time it took or has taken; at the end the list goes away."""
    from rich.console import Console
    from rich.progress import Progress as Display
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    # a step may name a file, in which brackets are no markup
    told = TextColumn("{task.description}", markup=False)
    columns = (SpinnerColumn(finished_text="[green]✓[/]"), TimeElapsedColumn(), told)
    with Display(*columns, console=Console(stderr=True), transient=True) as display:

        def step(name: str) -> None:
            for task in display.task_ids:
                display.update(task, total=1, completed=1)
            display.add_task(printable(name), total=None)

        yield step


@contextlib.contextmanager
def _bar() -> Iterator[RowProgress]:
    """Show a bar with the speed and the time that is left."""
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, ProgressColumn, Task, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Display
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.speed:,.0f} rows/s" if task.speed else "")

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("rows"), Speed(), TimeRemainingColumn())
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)
        # the speed is that of this run, so what an earlier one did is no progress
        before: list[int] = []

        def show(done: int, rows: int) -> None:
            before[:] = before or [done]
            display.update(task, completed=done - before[0], total=rows - before[0])

        yield show
