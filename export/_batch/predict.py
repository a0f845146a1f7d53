"""Prediction of a bundle on every row of a table in Parquet, of any number of rows."""

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .._bundle.bundle import Bundle, load_bundle
from .._bundle.output_paths import is_within
from .._errors import BundleError, InputError
from .._format.interruptible_session import check_provider
from .._format.manifest import Manifest
from .._format.providers import short_name
from .._machine import usable_cpus
from .._progress import RowProgress, shown_rows
from .._tables.parquet_files import UnreadableFileError, find_files, open_parquet
from .file_run import run_file, table_error
from .memory_limit import memory_limit
from .output_folder import OutputFolder
from .padding_check import try_batching
from .ray_engine import check_ray, run_on_ray
from .row_runner import Job, Runner, results_of

ENGINES = ("local", "ray")
BATCH_ROWS = 64  # larger batches are not faster on a core, see `scripts/bench batch`


@dataclass(frozen=True)
class Predictions:
    """The result of `predict`.

    Attributes:
        destination: The folder of the outputs.
        errors_file: The table of errors, or `None` if there are none.
        rows: The number of rows that this run has written.
        errors: The number of rows in the table of errors; an unreadable file is one of them.
        parts: The number of files of the source.
        resumed: The number of files that an earlier run had finished.
        seconds: The duration of the run.
        exact_axes: Axes along which only rows of equal length share a batch, because padding changes outputs.
        one_by_one: Whether each row ran alone, because other rows in the batch change outputs.
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
    along a dynamic axis. Missing lengths are computed. Other columns are copied. Outputs are nested lists
    without padding. Each file becomes one file, with rows in the same order. An interrupted run skips finished files.

    Args:
        bundle: A bundle, or its folder.
        source: A Parquet file, a folder of them, or a pattern such as `"data/*.parquet"`.
        destination: A folder: new, empty, or of an earlier run to be continued.
        engine: `"local"`, or `"ray"` for one task per file, on this machine or the cluster of `RAY_ADDRESS`.
        batch_size: The largest number of rows in one run of the model; `None` for 64.
        workers: The number of concurrent runs; `None` for one per core.
        key: The column that identifies rows in the table of errors; it is copied to the output even if it is an input.
        provider: Where to run, as in `export_model`.
        outputs: The outputs to compute; `None` for all.
        limit_memory: Bytes for the model's tensors in a process, or a string such as `"2G"`; `None` for half of the
            available memory. Larger batches are split.
        resume: Whether to continue a run that the destination holds, instead of refusing it.
        progress: A function that receives the numbers of finished rows and of all rows; `False` for no progress bar.

    Returns:
        Counts of rows. Rows that fail raise no error: `errors_file` lists them with the reason.

    Raises:
        InputError: If an argument or the source does not fit the model, or the destination holds other files.
        BundleError: As for `load_bundle`; or if the batch axis of the model is static.
        ProviderError: If the provider is missing or fails.
        ExportError: If pyarrow or Ray is missing, the destination cannot be written, or another run writes to it.
    """
    start = time.monotonic()
    _check_arguments(engine, {"batch_size": batch_size, "workers": workers})
    check_provider(provider)
    opened = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    names = _checked_outputs(opened.entries, outputs)
    short = short_name(provider)
    cores = workers or (usable_cpus() if short == "cpu" else 2)
    processes = min(cores, usable_cpus()) if engine == "ray" and limit_memory is None else 1  # that share the memory
    limit = memory_limit(limit_memory) // processes
    path = os.path.abspath(opened.path)
    job = Job(path, opened.entries.manifest_sha256, short, names, key, batch_size or BATCH_ROWS, limit, cores)
    files = _find_source(source, destination)
    row_counts = _count_rows(files, opened.entries, job)
    folder = OutputFolder(destination)
    with folder.locked(resume=resume), Runner(job, opened) as runner:
        exact_axes, one_by_one = _choose_padding(runner, folder, files, row_counts)
        left = {name: file for name, file in files.items() if not folder.is_finished(name)}
        with shown_rows(progress) as show:
            count = _Progress(show, row_counts, files.keys() - left)
            if engine == "ray":
                results = run_on_ray(left, runner.job, folder, workers)
            else:
                results = ((name, run_file(name, file, runner, folder, count.show)) for name, file in left.items())
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
        resumed=len(files) - len(left),
        seconds=time.monotonic() - start,
        exact_axes=exact_axes,
        one_by_one=one_by_one,
    )


class _Progress:
    """Display of the number of finished rows of the source."""

    def __init__(self, show: RowProgress, row_counts: Mapping[str, int], finished: Iterable[str]) -> None:
        self._show, self._row_counts = show, row_counts
        self._total = sum(row_counts.values())
        self._done = sum(row_counts[name] for name in finished)
        self.show(0)

    def show(self, more: int) -> None:
        self._show(self._done + more, self._total)

    def finish(self, name: str) -> None:
        self._done += self._row_counts[name]
        self.show(0)


def _check_arguments(engine: str, counts: Mapping[str, int | None]) -> None:
    if engine == "ray":
        check_ray()
    elif engine != "local":
        raise InputError(f"`engine` must be one of {list(ENGINES)}. Received: {engine!r}.")
    for name, value in counts.items():
        if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
            raise InputError(f"`{name}` must be an integer of 1 or more. Received: {value!r}.")


def _find_source(source: str | Path, destination: str | Path) -> dict[str, Path]:
    """Return the files of a source by name; refuse a destination that contains the source, or lies in it."""
    files = find_files(source)
    folder = Path(destination)
    if is_within(folder, Path(source)) or any(is_within(file, folder) for file in files.values()):
        raise InputError(f"{destination} and the source {source} overlap. Choose another destination.")
    if not str(destination):
        raise InputError("`destination` must be a path. Received: ''.")
    return files


def _choose_padding(
    runner: Runner, folder: OutputFolder, files: Mapping[str, Path], row_counts: Mapping[str, int]
) -> tuple[tuple[str, ...], bool]:
    """Give the runner a job whose batches change no output; return `exact_axes` and `one_by_one` of `Predictions`.

    The manifest of the folder stores both for a continued run, unless the source has no rows yet.
    """
    job = runner.job
    sizes = dict.fromkeys(size for spec in runner.manifest.inputs for size in spec.shape[1:])
    axes = [size for size in sizes if isinstance(size, str)]
    identity = {"bundle": job.digest, "outputs": list(job.outputs), "key": job.key}
    fingerprints = {name: _fingerprint(file) for name, file in files.items()}
    manifest = folder.read_manifest(identity, fingerprints)
    usable = [file for name, file in files.items() if row_counts[name]]
    if "one_by_one" not in manifest and usable:
        trial = runner.pool.submit(try_batching, runner, usable, axes)
        manifest["exact_axes"], manifest["one_by_one"] = results_of([trial])[0]
    folder.write_manifest({**manifest, **identity, "files": fingerprints})
    exact_axes = tuple(manifest.get("exact_axes", ()))
    one_by_one = manifest.get("one_by_one", False)
    batch_size = 1 if one_by_one else job.batch_size
    runner.job = replace(job, batch_size=batch_size, paddable=frozenset(axes).difference(exact_axes))
    return exact_axes, one_by_one


def _fingerprint(file: Path) -> str:
    """Return what changes when a file is written again."""
    try:
        return f"{file.stat().st_size}-{file.stat().st_mtime_ns}"
    except OSError:  # such as a link that leads nowhere: an error of the file itself
        return "unreadable"


def _checked_outputs(manifest: Manifest, requested: Sequence[str] | None) -> tuple[str, ...]:
    """Return the names of the outputs to compute, after checking that rows can share a batch."""
    specs = {spec.name: spec for spec in manifest.outputs}
    names = [*specs] if requested is None else requested
    if not isinstance(names, list | tuple | dict) or not names or not all(name in [*specs] for name in names):
        raise InputError(f"`outputs` must be a list of names among {[*specs]}. Received: {names!r}.")
    for spec in (*manifest.inputs, *(specs[name] for name in names)):
        batch, *others = spec.shape or (None,)
        if not isinstance(batch, str) or batch != manifest.inputs[0].shape[0] or batch in others:
            raise BundleError(
                "Rows share a batch along the first axis, which must be the same dynamic axis for every input and "
                f"output. `{spec.name}` has shape {spec.shape}. Export the model with a dynamic batch."
            )
    return tuple(dict.fromkeys(names))


def _count_rows(files: Mapping[str, Path], manifest: Manifest, job: Job) -> dict[str, int]:
    """Return the rows of each file, 0 if it cannot run; refuse a source without a file that fits the model."""
    counts, reasons = dict.fromkeys(files, 0), list[str]()
    for name, file in files.items():
        try:
            with open_parquet(file) as opened:
                if reason := table_error(opened.schema_arrow, manifest, job):
                    raise UnreadableFileError(reason)
                counts[name] = opened.metadata.num_rows
        except UnreadableFileError as error:
            reasons.append(f"{file} {error}")
    if len(reasons) == len(files):
        raise InputError(f"No file of the source fits the model: {reasons[0]}.")
    return counts
