"""Run parts, one after another: while a window is computed, the next one is read and the last one written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from .columns import column_problem
from .destination import Destination
from .job import WINDOW_BYTES, WINDOW_ROWS, Job
from .model import Model
from .parquet import READ_ERRORS, UNREAD, open_parquet, said
from .part_file import PartFile, write_errors
from .results import Results
from .source import Part
from .windows import Window, read_window, spans

Done = Callable[[int, int], None]  # rows that are written, rows that failed


@dataclass(frozen=True)
class _Step:
    """Rows that are being computed; without, the end of a part."""

    file: PartFile
    batch: Any = None
    window: Window | None = None
    results: Results | None = None
    running: tuple[Future[None], ...] = ()


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
    last: _Step | None = None
    with ThreadPoolExecutor(job.workers) as pool:
        try:
            for step in _steps(parts, job, model, destination, pool, done):
                if last is not None:
                    _finish(last, job, done)
                last = step
            if last is not None:
                _finish(last, job, done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            if last is not None:
                last.file.abandon()
            raise


def _steps(
    parts: Iterable[Part], job: Job, model: Model, destination: Destination, pool: ThreadPoolExecutor, done: Done
) -> Iterator[_Step]:
    for part in parts:
        opened = open_part(part, model.manifest, job)
        if isinstance(opened, str):
            write_errors(destination, part, [(None, None, opened)])
            done(0, part.rows)
            continue
        with opened:
            kept = kept_schema(opened.schema_arrow, model.manifest, job)
            file = PartFile(part, destination, kept, model.outputs)
            try:
                for window, batch in _windows(part, opened, file, model, job, done):
                    for start, stop in spans(window, model.manifest, job.outputs):
                        results = Results(model.outputs, window, start, stop)
                        good = np.array([row for row in range(start, stop) if row not in results.problems], np.int64)
                        batches = model.batches.of(window.lengths, good)
                        running = tuple(pool.submit(model.run_rows, window, rows, results) for rows in batches)
                        yield _Step(file, batch.slice(start, stop - start), window, results, running)
                yield _Step(file)
            except BaseException:
                file.abandon()
                raise


def open_part(part: Part, manifest: Mapping[str, Any], job: Job) -> Any:
    """Return the opened file of a part, a context manager, or why it cannot be run, as a string."""
    if part.problem:
        return part.problem
    try:
        opened = open_parquet(part.path)
    except READ_ERRORS as error:
        return f"{UNREAD}: {said(error)}"
    problem = schema_problem(opened.schema_arrow, manifest, job)
    if problem:
        opened.close()
    return problem or opened


def _windows(
    part: Part, opened: Any, file: PartFile, model: Model, job: Job, done: Done
) -> Iterator[tuple[Window, Any]]:
    """Yield windows of a part, and their record batches; rows that cannot be read are errors."""
    first = part.first_row
    for group in range(*part.groups):
        told = opened.metadata.row_group(group)
        rows = max(1, min(WINDOW_ROWS, WINDOW_BYTES * max(1, told.num_rows) // max(1, told.total_byte_size)))
        row, last = first, first + told.num_rows
        try:
            # a pyarrow of one thread: the others have work of their own
            for batch in opened.iter_batches(rows, row_groups=[group], use_threads=False):
                if batch.num_rows:
                    yield read_window(batch, model.manifest, row, job.padded), batch
                row += batch.num_rows
        except READ_ERRORS as error:
            file.fail_rows(range(row, last), f"{UNREAD}: {said(error)}")
            done(0, last - row)
        first = last


def _finish(step: _Step, job: Job, done: Done) -> None:
    """Wait for rows and write them, or the end of their part."""
    if step.window is None or step.results is None:
        step.file.finish()
        return
    for future in step.running:
        future.result()
    start = step.results.start
    problems = {row - start: why for row, why in step.results.problems.items()}
    outputs = step.results.columns()
    kept = step.batch.select(step.file.schema.names[: len(step.file.schema) - len(outputs)])
    names = step.batch.column(job.key) if job.key else None
    step.file.write(kept, outputs, problems, names, step.window.first_row + start)
    done(step.batch.num_rows - len(problems), len(problems))


def kept_schema(schema: Any, manifest: Mapping[str, Any], job: Job) -> Any:
    """Return the columns that are passed on: all but the inputs, and the key in any case."""
    import pyarrow as pa

    inputs = {spec["name"] for spec in manifest["inputs"]}
    return pa.schema([field for field in schema if field.name not in inputs or field.name == job.key])


def schema_problem(schema: Any, manifest: Mapping[str, Any], job: Job) -> str | None:
    """Return why rows of such columns cannot be run, or `None` if they can."""
    names = schema.names
    if len(set(names)) != len(names):
        return f"has a column twice: {sorted(name for name in set(names) if names.count(name) > 1)}"
    if job.key is not None and job.key not in names:
        return f"has no column `{job.key}`, which is to be the key; it has {names}"
    for spec in manifest["inputs"]:
        if spec["name"] in names:
            if problem := column_problem(schema.field(spec["name"]).type, spec):
                return problem
        elif (problem := _absence(spec, manifest, names)) is not None:
            return problem
    inputs = {spec["name"] for spec in manifest["inputs"]} - {job.key}
    if clash := [name for name in job.outputs if name in names and name not in inputs]:
        return f"has a column `{clash[0]}`, and an output is called so: rename the column"
    return None


def _absence(spec: Mapping[str, Any], manifest: Mapping[str, Any], names: list[str]) -> str | None:
    """Return why a column may not be absent: nobody knows what it would say."""
    counted = manifest.get("counts", {}).get(spec["name"])
    others = (other for other in manifest["inputs"] if other["name"] in names)
    if counted is not None and len(spec["shape"]) == 1 and any(counted in other["shape"] for other in others):
        return None
    return f"has no column `{spec['name']}`, an input of the model; it has {names}"
