"""One source file: read in chunks, run, and written as one output file."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from .._bundle.atomic_writes import atomic_file
from .._format.manifest import Manifest, Spec
from .._tables.arrow_columns import to_lists
from .._tables.parquet_files import UnreadableFileError, open_parquet, record_batches
from .._tables.rows import schema_error
from .output_folder import OutputFolder, error_table
from .row_runner import Chunk, Job, Runner, split_batch


def run_file(name: str, file: Path, runner: Runner, folder: OutputFolder, report: Callable[[int], object]) -> int:
    """Write outputs and errors of a source file, and return the number of rows written; `report` receives rows done."""
    count, errors = 0, list[Any]()  # tables, since a dict for each of a million failing rows takes a gigabyte
    try:
        with open_parquet(file) as opened:
            if reason := table_error(opened.schema_arrow, runner.manifest, runner.job):
                raise UnreadableFileError(reason)
            target = folder.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(target) as partial:
                for chunk in _write_chunks(partial, opened, runner):
                    if chunk.errors:
                        errors.append(error_table(name, _chunk_errors(chunk, count, runner.job.key)))
                    count += chunk.batch.num_rows
                    report(count)
                folder.write_errors(name, errors)  # before the output, which marks the file as finished
            return count - sum(map(len, errors))
    except UnreadableFileError as error:
        folder.write_errors(name, [error_table(name, [{"reason": str(error)}])])
        return 0


def _chunk_errors(chunk: Chunk, first: int, key: str | None) -> list[dict[str, Any]]:
    """Return the errors of the rows of a chunk, whose first row is number `first` of the file."""
    return [
        {"row": first + row, "key": _key_text(chunk.batch, row, key), "reason": reason}
        for row, reason in sorted(chunk.errors.items())
    ]


def table_error(schema: Any, manifest: Manifest, job: Job) -> str | None:
    """Return the reason if a table with these columns cannot run."""
    names = schema.names
    if job.key is not None and job.key not in names:
        return f"has no column `{job.key}`, the key; it has {names}"
    if clash := [name for name in copied_columns(schema, manifest, job) if name in job.outputs]:
        return f"has a column `{clash[0]}`, which is also the name of an output: rename the column"
    return schema_error(schema, manifest)


def copied_columns(schema: Any, manifest: Manifest, job: Job) -> list[str]:
    """Return the columns that are copied: the key, and all that are no inputs."""
    inputs = {spec.name for spec in manifest.inputs}
    return [name for name in schema.names if name not in inputs or name == job.key]


def _write_chunks(partial: Path, opened: Any, runner: Runner) -> Iterator[Chunk]:
    """Write and yield chunks: each is read while the previous one runs, and written while the next one runs."""
    import pyarrow as pa
    from pyarrow import parquet

    copied = copied_columns(opened.schema_arrow, runner.manifest, runner.job)
    fields = [opened.schema_arrow.field(name) for name in copied]
    fields += [pa.field(spec.name, to_lists([], spec).type) for spec in runner.outputs]
    schema, texts = pa.schema(fields), [field.name for field in fields if "string" in str(field.type)]
    batches = (split_batch(batch, runner.manifest, runner.outputs) for batch in record_batches(opened))
    previous = None
    # dictionaries of numbers, which rarely repeat, would double the time of writing
    with parquet.ParquetWriter(partial, schema, use_dictionary=texts, write_page_checksum=True) as writer:
        for chunk in chain(chain.from_iterable(batches), [None]):
            if previous is not None:
                runner.finish(previous)
            if chunk is not None:
                runner.start(chunk)
            if previous is not None:
                writer.write_table(_output_table(previous, copied, runner.outputs, schema))
                yield previous
            previous = chunk


def _output_table(chunk: Chunk, copied: list[str], outputs: Sequence[Spec], schema: Any) -> Any:
    """Return copied columns and outputs of the rows that ran."""
    import pyarrow as pa

    batch, bounds = chunk.batch.select(copied), pairwise([-1, *sorted(chunk.errors), chunk.batch.num_rows])
    # slices, since pyarrow cannot filter columns of every type
    good = pa.Table.from_batches([batch.slice(start + 1, stop - start - 1) for start, stop in bounds])
    rows = [chunk.outputs[row] for row in sorted(chunk.outputs)]
    lists = [to_lists([row[index] for row in rows], spec) for index, spec in enumerate(outputs)]
    return pa.Table.from_arrays([*good.columns, *lists], schema=schema)


def _key_text(batch: Any, row: int, key: str | None) -> str | None:
    """Return the key of a row as text; the column may hold any type, and strings that are not UTF-8."""
    if key is None or not (value := batch.column(key)[row]).is_valid:
        return None
    try:
        return str(value.cast("string").as_buffer().to_pybytes().decode("utf-8", "backslashreplace"))
    except (ValueError, NotImplementedError):  # a nested type
        return str(value)
