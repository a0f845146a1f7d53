"""Run parts, one after another: while a window is computed, the next one is read and the last one written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from .._standalone.verify import Manifest, Spec
from .columns import column_problem
from .destination import Destination
from .job import WINDOW_BYTES, WINDOW_ROWS, Job
from .model import Model
from .parquet import READ_ERRORS, UNREAD, open_parquet, said
from .part_file import Done, PartFile, fail_part
from .results import Results
from .source import Part
from .windows import Window, output_bytes, read_window, spans

SAMPLE = 16  # rows that tell how large the others are
MOST_BYTES = 2**31 - 2**20  # of lists within each other, which Arrow counts in 32 bits

Finish = Callable[[], None]  # a step: what waits for rows and writes them, or puts a file in its place


def run_parts(parts: Iterable[Part], job: Job, model: Model, destination: Destination, done: Done) -> None:
    """Run parts and write them.

    Args:
        parts: What to run.
        job: How.
        model: The bundle, opened.
        destination: Where to write.
        done: Called with how many rows were written and how many failed.

    Raises:
        ExportError: A part cannot be written.
        ProviderError: The device failed.
    """
    with ThreadPoolExecutor(job.workers) as pool:
        try:
            steps = _steps(parts, job, model, destination, pool, done)
            finish: Finish | None = None
            for following in chain(steps, [None]):  # a step is begun before the last one is finished
                if finish is not None:
                    finish()
                finish = following
        except BaseException:
            model.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _steps(
    parts: Iterable[Part], job: Job, model: Model, destination: Destination, pool: ThreadPoolExecutor, done: Done
) -> Iterator[Finish]:
    """Begin a step, and yield what finishes it."""
    for part in parts:
        opened = open_part(part, model.manifest, job)
        if isinstance(opened, str):
            fail_part(part, destination, opened)
            done(0, part.rows)
            continue
        with opened:
            kept = kept_schema(opened.schema_arrow, model.manifest, job)
            file = PartFile(part, destination, kept, model.outputs, done)
            with file.kept_apart():
                for window, batch in _windows(part, opened, file, model, job):
                    for start, stop in spans(window, model.outputs):
                        results = Results(model.outputs, window, start, stop)
                        good = np.array([row for row in range(start, stop) if row not in results.problems], np.int64)
                        batches = model.batches.of(window.lengths, good)
                        running = [pool.submit(model.run_rows, window, rows, results) for rows in batches]
                        yield partial(_write, file, batch.slice(start, stop - start), window, results, running, model)
            yield file.finish


def open_part(part: Part, manifest: Manifest, job: Job) -> Any:
    """Return the opened file of a part, a context manager, or why it cannot be run, as a string."""
    if part.problem:
        return part.problem
    try:
        opened = open_parquet(part.path)
        return schema_problem(opened.schema_arrow, manifest, job) or opened
    except READ_ERRORS as error:
        return f"{UNREAD}: {said(error)}"


def _windows(part: Part, opened: Any, file: PartFile, model: Model, job: Job) -> Iterator[tuple[Window, Any]]:
    """Yield windows of a part, and their record batches; rows that cannot be read are errors."""
    first = part.first_row
    for groups in small_groups(opened.metadata, *part.groups):
        last = first + sum(opened.metadata.row_group(group).num_rows for group in groups)
        for row, batch in _batches(opened, groups, first, part.row_bytes):
            if file.given_up is not None:
                return
            if isinstance(batch, str):
                file.fail_rows(range(row[0], row[1]), f"{UNREAD}: {batch}")
                continue
            window = read_window(batch, model.manifest, row[0], job.padded)
            refuse_gigantic(window, model.outputs, job.limit)
            yield window, batch
        first = last


def small_groups(metadata: Any, start: int, stop: int) -> Iterator[list[int]]:
    """Yield row groups, small ones together: files of many have a window of several."""
    groups, rows = list[int](), 0
    for group in range(start, stop):
        groups, rows = [*groups, group], rows + metadata.row_group(group).num_rows
        if rows >= WINDOW_ROWS or group == stop - 1:
            yield groups
            groups, rows = [], 0


def _batches(opened: Any, groups: list[int], first: int, row_bytes: float) -> Iterator[tuple[tuple[int, int], Any]]:
    """Yield rows of row groups: from where to where in the file, and a record batch, or why they cannot be read.

    Of several groups, the others are read where one cannot be.
    """
    counts = [opened.metadata.row_group(group).num_rows for group in groups]
    row, last = first, first + sum(counts)
    try:
        # a pyarrow of one thread: the others have work of their own
        for batch in opened.iter_batches(rows_at_once(opened, groups, row_bytes), row_groups=groups, use_threads=False):
            if batch.num_rows:
                yield (row, row + batch.num_rows), batch
            row += batch.num_rows
        if row != last:
            raise ValueError(f"the footer tells of {last - first:,} rows there, and the pages of {row - first:,}")
    except READ_ERRORS as error:
        if len(groups) == 1:
            yield (min(row, last), last), said(error)
            return
        begin, before = first, row - first  # rows that were yielded already
        for group, count in zip(groups, counts, strict=True):
            for (start, stop), batch in _batches(opened, [group], begin, row_bytes):
                if isinstance(batch, str):
                    yield (start, stop), batch
                    continue
                cut = min(before, stop - start)
                before -= cut
                if cut < stop - start:
                    yield (start + cut, stop), batch.slice(cut)
            begin += count


def rows_at_once(opened: Any, groups: list[int], row_bytes: float) -> int:
    """Return how many rows a window may have; a few are read for it, since of texts the footer does not say enough."""
    told = [opened.metadata.row_group(group) for group in groups]
    rows = max(1, sum(group.num_rows for group in told))
    each = max(row_bytes, sum(group.total_byte_size for group in told) / rows)
    head = next(opened.iter_batches(min(SAMPLE, _fitting(each)), row_groups=groups[:1], use_threads=False), None)
    if head is not None and head.num_rows:
        each = max(each, head.nbytes / head.num_rows)
    return _fitting(each)


def _fitting(row_bytes: float) -> int:
    return max(1, min(WINDOW_ROWS, int(WINDOW_BYTES / row_bytes)))


def refuse_gigantic(window: Window, outputs: list[Spec], limit: int) -> None:
    """Refuse rows of which an input or an output is larger than may be, before there is room made for it."""
    each = (np.prod(ragged.sizes, axis=1) * ragged.values.itemsize for ragged in window.inputs.values())
    inputs = np.max([np.zeros(window.rows), *each], axis=0)
    for what, sizes in (("input", inputs), ("output", output_bytes(outputs, window)[0])):
        for row in np.flatnonzero(sizes > min(limit, MOST_BYTES)).tolist():
            why = (
                f"has an {what} of {sizes[row] / 2**20:,.0f} MiB, and {min(limit, MOST_BYTES) >> 20} MiB are the limit"
            )
            window.problems.setdefault(row, why)


def _write(
    file: PartFile, batch: Any, window: Window, results: Results, running: Iterable[Future[None]], model: Model
) -> None:
    """Wait for rows, and write them."""
    if file.given_up is not None:
        return
    with file.kept_apart():
        for future in running:
            future.result()
        job, start, first_row = model.job, results.start, window.first_row + results.start
        # a row a window, or of small windows a row of 64
        row = start + first_row * 2654435761 % 2**32 % max(64, batch.num_rows)
        if job.batch_size > 1 and row < start + batch.num_rows and row not in results.problems:
            model.check_alone(window, row, results)
        problems = {row - start: why for row, why in results.problems.items()}
        outputs = results.columns()
        kept = batch.select(file.schema.names[: len(file.schema) - len(outputs)])
        file.write(kept, outputs, problems, batch.column(job.key) if job.key else None, first_row)


def kept_schema(schema: Any, manifest: Manifest, job: Job) -> Any:
    """Return the columns that are passed on: all but the inputs, and the key in any case."""
    import pyarrow as pa

    inputs = {spec.name for spec in manifest.inputs}
    return pa.schema([field for field in schema if field.name not in inputs or field.name == job.key])


def schema_problem(schema: Any, manifest: Manifest, job: Job) -> str | None:
    """Return why rows of such columns cannot be run, or `None` if they can."""
    names = schema.names
    if len(set(names)) != len(names):
        return f"has a column twice: {sorted(name for name in set(names) if names.count(name) > 1)}"
    if job.key is not None and job.key not in names:
        return f"has no column `{job.key}`, which is to be the key; it has {names}"
    if problem := inputs_problem(schema, manifest):
        return problem
    inputs = {spec.name for spec in manifest.inputs} - {job.key}
    if clash := [name for name in job.outputs if name in names and name not in inputs]:
        return f"has a column `{clash[0]}`, and an output is called so: rename the column"
    return None


def inputs_problem(schema: Any, manifest: Manifest) -> str | None:
    """Return why the inputs of a model cannot be taken from such columns, or `None` if they can."""
    names = schema.names
    for spec in manifest.inputs:
        if spec.name in names:
            if problem := column_problem(schema.field(spec.name).type, spec):
                return problem
        elif (problem := _absence(spec, manifest, names)) is not None:
            return problem
    return None


def _absence(spec: Spec, manifest: Manifest, names: list[str]) -> str | None:
    """Return why a column may not be absent: nobody knows what it would say."""
    counted = manifest.counts.get(spec.name)
    others = (other for other in manifest.inputs if other.name in names)
    if counted is not None and len(spec.shape) == 1 and any(counted in other.shape for other in others):
        return None
    return f"has no column `{spec.name}`, an input of the model; it has {names}"
