"""Progress display on terminals and in notebooks."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._format.console import print_escaped
from ._format.printing import escape_unprintable

ProgressCallback = Callable[[str], None]
RowProgressCallback = Callable[[int, int], None]  # rows done, all rows


def progress_display(
    progress: bool | ProgressCallback | None, *, verb: str | None = None
) -> contextlib.AbstractContextManager[ProgressCallback]:
    """Yield a callback that receives the name of each step.

    Args:
        progress: A callback of the caller; `None` or `True` to show the current step and its time if standard error is
            a terminal; `False` to show nothing.
        verb: A verb for a summary at the end with the duration of each step, such as "Exported"; `None` for no
            summary. Notebooks show the summary too.
    """
    return _select_display(progress, lambda: _track_steps(verb), in_notebooks=verb is not None)


def row_progress_display(
    progress: bool | RowProgressCallback | None,
) -> contextlib.AbstractContextManager[RowProgressCallback]:
    """Yield a callback that receives the numbers of finished and of all rows; a bar, else as `progress_display`."""
    return _select_display(progress, _show_bar)


@contextlib.contextmanager
def _select_display(progress: Any, display: Callable[[], Any], *, in_notebooks: bool = False) -> Iterator[Any]:
    if callable(progress):
        yield progress
    elif progress is not False and (sys.stderr.isatty() or (in_notebooks and _is_notebook())):
        with display() as show:
            yield show
    else:
        yield lambda *_: None


def _is_notebook() -> bool:
    return type(sys.stderr).__module__.startswith("ipykernel.")


@contextlib.contextmanager
def _track_steps(verb: str | None) -> Iterator[ProgressCallback]:
    """Show the current step on a terminal, and write the duration of each step at the end if there is a verb."""
    starts: list[tuple[str, float]] = []
    has_succeeded = False
    try:
        with _show_spinner() if sys.stderr.isatty() else contextlib.nullcontext(lambda _: None) as show:

            def on_step(name: str) -> None:
                starts.append((name, time.perf_counter()))
                show(name)

            yield on_step
        has_succeeded = True
    finally:
        end = time.perf_counter()
        elapsed = end - starts[0][1] if starts else 0.0
        title = f"{verb} in {elapsed:.1f} s"
        if not has_succeeded:
            title = f"Stopped after {elapsed:.1f} s, at the last of these steps"
        # An export that is refused at once shows only the error.
        if verb and (has_succeeded or elapsed >= 1):
            print_escaped(f"{title}:", *_format_durations(starts, end), file=sys.stderr)


def _format_durations(starts: Sequence[tuple[str, float]], end: float) -> list[str]:
    """Return a line with the duration of each step; a step ends when the next one starts."""
    stops = [*(start for _, start in starts[1:]), end]
    return [f"{stop - start:7.1f} s  {name}" for (name, start), stop in zip(starts, stops, strict=True)]


@contextlib.contextmanager
def _show_spinner() -> Iterator[ProgressCallback]:
    """Show the current step with its elapsed time, and clear the line at the end."""
    from rich.console import Console
    from rich.progress import Progress as Display
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    # `markup=False`: a step may contain the name of a file, and rich would interpret brackets in the name.
    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)
        # A single line, because output of other libraries breaks a display of several lines.
        yield lambda name: display.reset(task, description=escape_unprintable(name))


@contextlib.contextmanager
def _show_bar() -> Iterator[RowProgressCallback]:
    """Show a bar with the speed and the remaining time."""
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
        # Rows of an earlier, interrupted run are subtracted: they would inflate the speed of this run.
        first_done: list[int] = []

        def update(done: int, rows: int) -> None:
            first_done[:] = first_done or [done]
            display.update(task, completed=done - first_done[0], total=rows - first_done[0])

        yield update
