"""How far a run over many rows is: rows a second, and the time that is left."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator

Progress = Callable[[int, int], None]  # rows done, all rows


@contextlib.contextmanager
def shown_rows(progress: bool | Progress | None) -> Iterator[Progress]:
    """Yield the function to call with the rows that are done and all rows.

    Args:
        progress: A function of the caller's; `None` or `True` for a bar on standard error where that is a terminal;
            `False` for nothing.
    """
    if callable(progress):
        yield progress
    elif progress is not False and sys.stderr.isatty():
        with _bar() as show:
            yield show
    else:
        yield lambda done, rows: None


@contextlib.contextmanager
def _bar() -> Iterator[Progress]:
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
