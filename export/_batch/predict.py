"""Batch inference: `predict` runs a bundle on every row of Parquet tables of any size."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .._bundle.bundle import Bundle, load_bundle
from .._bundle.output_paths import is_inside
from .._errors import BundleError, InputError
from .._format.interruptible_session import check_provider
from .._format.manifest import Manifest
from .._format.providers import short_name
from .._machine import count_usable_cpus
from .._progress import RowProgressCallback, row_progress_display
from .._tables.parquet_files import UnreadableFileError, find_files, open_parquet
from .file_run import find_table_error, run_file
from .memory_limit import parse_memory_limit
from .output_folder import OutputFolder
from .padding_check import find_batching_rules
from .ray_engine import import_ray, run_on_ray
from .row_runner import Job, RowRunner, wait_for_results

ENGINES = ("local", "ray")
# Larger batches are not faster on one core: see `scripts/bench batch`.
BATCH_ROWS = 64


@dataclass(frozen=True)
class Predictions:
    """Result of `predict`.

    Attributes:
        destination: Folder of the outputs.
        errors_file: Table of errors, or `None` if there are no errors.
        rows: Number of rows that this run has written.
        errors: Number of rows in the table of errors. An unreadable file has one row.
        parts: Number of source files.
        resumed: Number of source files that an earlier run had finished.
        seconds: Duration of the run.
        exact_axes: Axes along which only rows of equal length share a batch, because padding changes outputs.
        one_by_one: True if every row ran alone, because other rows in the batch change outputs.
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

    The source has one column per input: lists with one level of nesting per axis after the batch axis, of any length
    along a dynamic axis. Valid lengths without a column are computed. Other columns are copied. Outputs are nested
    lists without padding. Each file becomes one file, with rows in the same order. A resumed run skips finished files.

    Args:
        bundle: A bundle, or its folder.
        source: A Parquet file, a folder of Parquet files, or a pattern such as `"data/*.parquet"`.
        destination: A folder: new, empty, or of an earlier run to be resumed.
        engine: `"local"`, or `"ray"` for one task per file, on this machine or the cluster of `RAY_ADDRESS`.
        batch_size: Largest number of rows in one run of the model; `None` for 64.
        workers: Number of concurrent runs; `None` for one per core.
        key: Column that identifies rows in the table of errors. It is copied to the output even if it is an input.
        provider: Execution provider, as in `export_model`.
        outputs: Names of the outputs to compute; `None` for all.
        limit_memory: Bytes for the model's tensors in a process, or a string such as `"2G"`; `None` for half of the
            available memory. Larger batches are split.
        resume: Whether to resume a run in the destination; if False, such a destination is refused.
        progress: A function that receives the numbers of finished rows and of all rows; `False` for no progress bar.

    Returns:
        Numbers of rows. Rows that fail raise no error: `errors_file` lists them with the reason.

    Raises:
        InputError: If an argument or the source does not fit the model, or the destination contains other files.
        BundleError: As for `load_bundle`; or if the batch axis of the model is static.
        ProviderError: If the provider is missing or fails.
        ExportError: If pyarrow or Ray is missing, the destination cannot be written, or another run writes to it.
    """
    start = time.monotonic()
    _check_arguments(engine, {"batch_size": batch_size, "workers": workers})
    check_provider(provider)
    loaded = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    names = _validate_outputs(loaded.entries, outputs)
    provider_key = short_name(provider)
    # On a GPU, a second run prepares its inputs while the first one computes.
    threads = workers or (count_usable_cpus() if provider_key == "cpu" else 2)
    # Tasks of Ray on this machine share its memory.
    processes = min(threads, count_usable_cpus()) if engine == "ray" and limit_memory is None else 1
    job = Job(
        bundle=os.path.abspath(loaded.path),
        digest=loaded.entries.manifest_sha256,
        provider=provider_key,
        outputs=names,
        key=key,
        batch_size=batch_size or BATCH_ROWS,
        memory_limit=parse_memory_limit(limit_memory) // processes,
        workers=threads,
    )
    files = _find_source(source, destination)
    row_counts = _count_rows(files, loaded.entries, job)
    folder = OutputFolder(destination)
    with folder.lock(resume=resume), RowRunner(job, loaded) as runner:
        exact_axes, one_by_one = _choose_batching(runner, folder, files, row_counts)
        remaining = {name: file for name, file in files.items() if not folder.is_finished(name)}
        with row_progress_display(progress) as show:
            count = _Progress(show, row_counts, files.keys() - remaining)
            if engine == "ray":
                results = run_on_ray(remaining, runner.job, folder, workers)
            else:
                results = ((name, run_file(name, file, runner, folder, count.show)) for name, file in remaining.items())
            written = 0
            for name, rows in results:
                written += rows
                count.finish(name)
        errors = folder.merge_errors([*files])
    return Predictions(
        destination=folder.folder,
        errors_file=folder.errors if errors else None,
        rows=written,
        errors=errors,
        parts=len(files),
        resumed=len(files) - len(remaining),
        seconds=time.monotonic() - start,
        exact_axes=exact_axes,
        one_by_one=one_by_one,
    )


class _Progress:
    """Progress display: number of finished rows of the source."""

    def __init__(self, show: RowProgressCallback, row_counts: Mapping[str, int], finished: Iterable[str]) -> None:
        self._show, self._row_counts = show, row_counts
        self._total = sum(row_counts.values())
        self._done = sum(row_counts[name] for name in finished)
        self.show(0)

    def show(self, file_rows: int) -> None:
        self._show(self._done + file_rows, self._total)

    def finish(self, name: str) -> None:
        self._done += self._row_counts[name]
        self.show(0)


def _check_arguments(engine: str, counts: Mapping[str, int | None]) -> None:
    if engine == "ray":
        import_ray()
    elif engine != "local":
        raise InputError(f"`engine` must be one of {list(ENGINES)}. Received: {engine!r}.")
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"`{name}` must be an integer of 1 or more. Received: {value!r}.")


def _find_source(source: str | Path, destination: str | Path) -> dict[str, Path]:
    """Return the files of a source by name; refuse a destination that contains the source or is inside it."""
    files = find_files(source)
    folder = Path(destination)
    if is_inside(folder, Path(source)) or any(is_inside(file, folder) for file in files.values()):
        raise InputError(f"{destination} and the source {source} overlap. Choose another destination.")
    if not str(destination):
        raise InputError("`destination` must be a path. Received: ''.")
    return files


def _choose_batching(
    runner: RowRunner, folder: OutputFolder, files: Mapping[str, Path], row_counts: Mapping[str, int]
) -> tuple[tuple[str, ...], bool]:
    """Replace the runner's job by one whose batches change no output; return `exact_axes` and `one_by_one`."""
    # The manifest stores both for a resumed run. A source without rows leaves them open.
    job = runner.job
    sizes = dict.fromkeys(size for spec in runner.manifest.inputs for size in spec.shape[1:])
    axes = [size for size in sizes if isinstance(size, str)]
    identity = {"bundle": job.digest, "outputs": list(job.outputs), "key": job.key}
    fingerprints = {name: _compute_fingerprint(file) for name, file in files.items()}
    manifest = folder.read_manifest(identity, fingerprints)
    usable_files = [file for name, file in files.items() if row_counts[name]]
    if "one_by_one" not in manifest and usable_files:
        future = runner.pool.submit(find_batching_rules, runner, usable_files, axes)
        manifest["exact_axes"], manifest["one_by_one"] = wait_for_results([future])[0]
    folder.write_manifest({**manifest, **identity, "files": fingerprints})
    exact_axes = tuple(manifest.get("exact_axes", ()))
    one_by_one = manifest.get("one_by_one", False)
    batch_size = 1 if one_by_one else job.batch_size
    runner.job = replace(job, batch_size=batch_size, paddable=frozenset(axes).difference(exact_axes))
    return exact_axes, one_by_one


def _compute_fingerprint(file: Path) -> str:
    """Return size and time of a file as text: one of them changes when the file is written again."""
    try:
        return f"{file.stat().st_size}-{file.stat().st_mtime_ns}"
    # A broken link becomes an error of this file when it is opened.
    except OSError:
        return "unreadable"


def _validate_outputs(manifest: Manifest, requested: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the outputs to compute; raise an error if one is unknown, or if rows cannot share a batch."""
    specs = {spec.name: spec for spec in manifest.outputs}
    names = [*specs] if requested is None else requested
    if not isinstance(names, list | tuple | dict) or not names or not all(name in [*specs] for name in names):
        raise InputError(f"`outputs` must be a list of names among {[*specs]}. Received: {names!r}.")
    for spec in (*manifest.inputs, *(specs[name] for name in names)):
        batch, *other_sizes = spec.shape or (None,)
        if not isinstance(batch, str) or batch != manifest.inputs[0].shape[0] or batch in other_sizes:
            raise BundleError(
                "Rows share a batch along the first axis, which must be the same dynamic axis for every input and "
                f"output. `{spec.name}` has shape {spec.shape}. Export the model with a dynamic batch."
            )
    return tuple(dict.fromkeys(names))


def _count_rows(files: Mapping[str, Path], manifest: Manifest, job: Job) -> dict[str, int]:
    """Return the number of rows of each file, 0 if it cannot run; refuse a source in which no file fits the model."""
    counts, reasons = dict.fromkeys(files, 0), list[str]()
    for name, file in files.items():
        try:
            with open_parquet(file) as parquet_file:
                if reason := find_table_error(parquet_file.schema_arrow, manifest, job):
                    raise UnreadableFileError(reason)
                counts[name] = parquet_file.metadata.num_rows
        except UnreadableFileError as error:
            reasons.append(f"{file} {error}")
    if len(reasons) == len(files):
        raise InputError(f"No file of the source fits the model: {reasons[0]}.")
    return counts
