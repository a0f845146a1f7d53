"""Progress display on terminals and in notebooks."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ._format.console import say
from ._format.printing import printable

Progress = Callable[[str], None]
RowProgress = Callable[[int, int], None]  # rows done, all rows


def shown_progress(
    progress: bool | Progress | None, *, done: str | None = None
) -> contextlib.AbstractContextManager[Progress]:
    """Yield the function to call with each step's name.

    Args:
        progress: A function of the caller's; `None` or `True` for the step and its time on standard error where that is
            a terminal; `False` for nothing.
        done: What the steps do, such as "Exported". Then it is said at the end how long each took, or at which it
            stopped; in notebooks too.
    """
    return _select_display(progress, lambda: _track_steps(done), in_notebooks=done is not None)


def shown_rows(progress: bool | RowProgress | None) -> contextlib.AbstractContextManager[RowProgress]:
    """Yield the function to call with the rows that are done and all rows; the same choices, with a bar."""
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
def _track_steps(verb: str | None) -> Iterator[Progress]:
    """Show the step on a terminal, and at the end each with its seconds where it is said what they do."""
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
        if verb and (has_succeeded or elapsed >= 1):  # of a refusal at once there is nothing to say but why
            title = (
                f"{verb} in {elapsed:.1f} s"
                if has_succeeded
                else f"Stopped after {elapsed:.1f} s, at the last of these steps"
            )
            say(f"{title}:", *_format_durations(starts, end), file=sys.stderr)


def _format_durations(starts: Sequence[tuple[str, float]], end: float) -> list[str]:
    """Return a line for each step, in their order."""
    ends = [*(start for _, start in starts[1:]), end]
    return [f"{after - start:7.1f} s  {name}" for (name, start), after in zip(starts, ends, strict=True)]


@contextlib.contextmanager
def _show_spinner() -> Iterator[Progress]:
    """Show the step that is at work, with the time it has taken; at the end it goes away."""
    from rich.console import Console
    from rich.progress import Progress as Display
    from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

    # a step may name a file, in which brackets are no markup
    columns = SpinnerColumn(), TimeElapsedColumn(), TextColumn("{task.description}", markup=False)
    with Display(*columns, console=Console(stderr=True), transient=True) as display:
        task = display.add_task("", total=None)
        # one line alone: what a library prints meanwhile breaks a list of several
        yield lambda name: display.reset(task, description=printable(name))


@contextlib.contextmanager
def _show_bar() -> Iterator[RowProgress]:
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
        first_done: list[int] = []

        def update(done: int, rows: int) -> None:
            first_done[:] = first_done or [done]
            display.update(task, completed=done - first_done[0], total=rows - first_done[0])

        yield update
