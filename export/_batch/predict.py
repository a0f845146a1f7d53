"""Run a bundle on tables in Parquet, of any number of rows."""

from __future__ import annotations

import numbers
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .._errors import InputError
from .._loaded_bundle import Bundle, load_bundle
from .._machine import usable_cpus
from .._places import is_within
from .._progress import shown_rows
from .._standalone.verify import check_provider, short_name
from .destination import Destination
from .errors import merge_errors
from .job import BATCH_ROWS, Job, checked_outputs, row_axes
from .memory import memory_limit
from .model import Model
from .on_ray import check_ray, run_on_ray
from .parquet import check_pyarrow
from .run_parts import open_part, run_parts
from .source import Part, find_parts
from .trial import tried

ENGINES = ("local", "ray")


@dataclass(frozen=True)
class Predictions:
    """The result of `predict`.

    Attributes:
        destination: The folder that was written.
        errors_file: The table of rows that could not be read or run, or `None` if there are none.
        rows: How many rows this run has written.
        errors: How many lines the table of errors has. A line is for a row, for many unreadable rows, or for a part.
        parts: How many parts the source has.
        resumed: How many of the parts an earlier run had finished.
        seconds: How long the run took.
        exact_axes: Axes along which only rows of equal length ran together, because padding changes the outputs.
        one_by_one: Whether each row ran alone, because other rows in the batch changed the outputs of a test.
    """

    destination: Path
    errors_file: Path | None
    rows: int
    errors: int
    parts: int
    resumed: int
    seconds: float
    exact_axes: tuple[str, ...]
    one_by_one: bool


def predict(
    bundle: str | Path | Bundle,
    source: str | Path,
    destination: str | Path,
    *,
    engine: str = "local",
    batch_size: int | None = None,
    workers: int | None = None,
    key: str | None = None,
    provider: str = "cpu",
    outputs: Sequence[str] | None = None,
    limit_memory: int | str | None = None,
    resume: bool = True,
    progress: bool | Callable[[int, int], None] | None = None,
) -> Predictions:
    """Run a bundle on every row of a table in Parquet, and write its outputs as Parquet.

    The source has a column for each input. It holds lists, with one level of nesting for each axis of the input after
    the batch axis; along a dynamic axis, rows may differ in length. A column of lengths may be missing: the lengths are
    then computed from the lists. All other columns are copied to the output.

    Outputs are nested lists without padding. Each file of the source becomes one file of the destination (several, if
    it is large), with the rows in the same order. A file appears complete or not at all, and an interrupted run
    continues where it stopped.

    Args:
        bundle: A bundle, or its folder.
        source: A Parquet file, a folder of them, or a pattern such as `"data/*.parquet"`.
        destination: A folder: a new one, an empty one, or that of an earlier run to be continued.
        engine: `"local"` for this machine, or `"ray"` for tasks on Ray, on this machine or on the cluster that the
            environment variable `RAY_ADDRESS` names; needs `keras-attn[ray]`.
        batch_size: The largest number of rows in one run of the model; `None` for 64.
        workers: How many runs at once; `None` for one per core.
        key: The column that identifies rows in the table of errors; it is copied to the output even if it is an input.
        provider: Where to run, as in `export_model`.
        outputs: The outputs to compute; `None` for all.
        limit_memory: How much memory the tensors of the model may take in a process, in bytes or as a string such as
            `"2G"`; `None` for half of the free memory. Batches that need more are made smaller.
        resume: Whether to continue a run that the destination holds; if not, such a destination is refused.
        progress: A function that is called with the number of finished rows and of all rows; `None` or `True` for a
            progress bar on standard error if that is a terminal; `False` for nothing.

    Returns:
        What was written, and how many rows failed. Rows that cannot be read or run do not raise an error: they are
        listed in `errors_file` with the reason.

    Raises:
        InputError: An argument does not fit the model, no part of the source does, or the destination holds other
            files, or the outputs of another bundle or source.
        BundleError: As for `load_bundle`; or the batch axis of the model is static.
        ProviderError: The provider is missing, or fails.
        ExportError: pyarrow or Ray is missing, the destination cannot be written, or another run writes to it.
    """
    begun = time.monotonic()
    check_pyarrow()
    _check_arguments(engine, batch_size, workers, key)
    if engine == "ray":
        check_ray()
    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    check_provider(provider)
    provider = short_name(provider)
    chosen = checked_outputs(opened.entries, outputs)
    row_axes(opened.entries, chosen)
    _check_apart(Path(source), Path(destination), opened.path)
    cores = workers or (usable_cpus() if provider == "cpu" else 2)
    beside = cores if engine == "ray" else 1  # processes of one machine, which share what is free
    job = Job(
        bundle=os.path.abspath(opened.path),
        digest=opened.entries.manifest_sha256,
        provider=provider,
        outputs=chosen,
        key=key,
        batch_size=batch_size or BATCH_ROWS,
        limit=memory_limit(limit_memory) // (beside if limit_memory is None else 1),
        padded=frozenset(),
        workers=cores,
    )
    parts = find_parts(source, job.limit)
    _check_schemas(parts, opened, job, source)
    place = Destination(destination)
    run = {"bundle": job.digest, "outputs": list(chosen), "key": key, "source": str(source)}

    def notes() -> dict[str, Any]:
        trial = tried(Model(job, opened), parts)
        return {"padded": sorted(trial.padded), "together": trial.together}

    with place.begun(run, parts, resume=resume, more=notes) as known:
        together = bool(known["together"])
        job = replace(job, padded=frozenset(known["padded"]), batch_size=job.batch_size if together else 1)
        left = [part for part in parts if not place.is_done(part.name)]
        rows, rows_left = (sum(part.rows for part in some) for some in (parts, left))
        written = 0
        with shown_rows(progress) as show:
            show(rows - rows_left, rows)

            def done(good: int, failed: int) -> None:
                nonlocal written, rows_left
                written += good
                rows_left -= good + failed
                show(rows - rows_left, rows)

            if engine == "ray":
                run_on_ray(left, job, place, done, workers=workers)
            elif left:
                run_parts(left, job, Model(job, opened), place, done)
        errors = merge_errors(place, parts)
    exact = tuple(axis for axis in row_axes(opened.entries, chosen) if axis not in job.padded)
    return Predictions(
        place.folder,
        place.errors if errors else None,
        written,
        errors,
        len(parts),
        len(parts) - len(left),
        time.monotonic() - begun,
        exact,
        not together,
    )


def _check_arguments(engine: Any, batch_size: Any, workers: Any, key: Any) -> None:
    if engine not in ENGINES:
        raise InputError(f"`engine` must be one of {list(ENGINES)}. Received: {engine!r}.")
    for name, value in (("batch_size", batch_size), ("workers", workers)):
        if value is not None and (isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1):
            raise InputError(f"`{name}` must be a whole number of 1 or more. Received: {value!r}.")
    if key is not None and not isinstance(key, str):
        raise InputError(f"`key` must be the name of a column. Received: {key!r}.")


def _check_apart(source: Path, destination: Path, bundle: Path) -> None:
    """Refuse outputs among the inputs, which the next run would read, and in the bundle, which would be one no more."""
    if is_within(destination, bundle):
        raise InputError(f"{destination} is in the bundle. Choose another place.")
    if source.is_dir() and (is_within(destination, source) or is_within(source, destination)):
        raise InputError(f"{destination} and the source {source} are one in the other. Choose another place.")
    head = Path(str(source).partition("**")[0] or ".")
    if "**" in str(source) and is_within(destination, head):
        raise InputError(f"{destination} is where {source} looks for files. Choose another place.")
    file = Path(os.path.realpath(source))
    if file.is_file() and file.parent == Path(os.path.realpath(destination)):
        raise InputError(f"{destination} holds the source {source}. Choose another place.")


def _check_schemas(parts: Sequence[Part], bundle: Bundle, job: Job, source: str | Path) -> None:
    """Refuse a source of which no part fits; where some do, the others are errors."""
    first = ""
    for part in parts:
        opened = open_part(part, bundle.entries, job)
        if not isinstance(opened, str):
            opened.close()
            return
        first = first or f"{part.path} {opened}"
    raise InputError(f"No part of {source} can be run: {first}.")
