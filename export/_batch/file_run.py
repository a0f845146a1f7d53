"""Run of one source file: read in chunks, computed, and written as one output file."""

from collections.abc import Callable, Iterator, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from .._bundle.atomic_writes import atomic_file
from .._format.manifest import Manifest, Spec
from .._tables.arrow_columns import to_lists
from .._tables.parquet_files import UnreadableFileError, iterate_batches, open_parquet
from .._tables.rows import find_column_error
from .output_folder import OutputFolder, build_error_table
from .row_runner import Chunk, Job, RowRunner, split_into_chunks


def run_file(name: str, file: Path, runner: RowRunner, folder: OutputFolder, report: Callable[[int], object]) -> int:
    """Write outputs and errors of a source file and return the number of rows written; `report` receives progress."""
    # Errors are Arrow tables: a dict for each of a million failed rows would take a gigabyte.
    count, errors = 0, list[Any]()
    try:
        with open_parquet(file) as parquet_file:
            if reason := find_table_error(parquet_file.schema_arrow, runner.manifest, runner.job):
                raise UnreadableFileError(reason)
            target = folder.folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            with atomic_file(target) as partial:
                for chunk in _write_chunks(partial, parquet_file, runner):
                    if chunk.errors:
                        errors.append(build_error_table(name, _list_errors(chunk, count, runner.job.key)))
                    count += chunk.batch.num_rows
                    report(count)
                # The errors precede the output, whose existence marks the file as finished.
                folder.write_errors(name, errors)
            return count - sum(map(len, errors))
    except UnreadableFileError as error:
        folder.write_errors(name, [build_error_table(name, [{"reason": str(error)}])])
        return 0


def _list_errors(chunk: Chunk, first_row: int, key: str | None) -> list[dict[str, Any]]:
    """Return the errors of a chunk as rows of the error table; its first row has index `first_row` in the file."""
    return [
        {"row": first_row + row, "key": _format_key(chunk.batch, row, key), "reason": reason}
        for row, reason in sorted(chunk.errors.items())
    ]


def find_table_error(schema: Any, manifest: Manifest, job: Job) -> str | None:
    """Return the reason if a table with a `pyarrow.Schema` cannot run, otherwise None."""
    names = schema.names
    if job.key is not None and job.key not in names:
        return f"has no column `{job.key}`, the key; it has {names}"
    if clash := [name for name in list_copied_columns(schema, manifest, job) if name in job.outputs]:
        return f"has a column `{clash[0]}`, which is also the name of an output: rename the column"
    return find_column_error(schema, manifest)


def list_copied_columns(schema: Any, manifest: Manifest, job: Job) -> list[str]:
    """Return the names of the copied columns: the key, and all columns except inputs."""
    inputs = {spec.name for spec in manifest.inputs}
    return [name for name in schema.names if name not in inputs or name == job.key]


def _write_chunks(partial: Path, parquet_file: Any, runner: RowRunner) -> Iterator[Chunk]:
    """Write and yield chunks. A chunk is read while the previous one runs, and written while the next one runs."""
    import pyarrow as pa
    from pyarrow import parquet

    copied_names = list_copied_columns(parquet_file.schema_arrow, runner.manifest, runner.job)
    fields = [parquet_file.schema_arrow.field(name) for name in copied_names]
    fields += [pa.field(spec.name, to_lists([], spec).type) for spec in runner.outputs]
    schema, string_columns = pa.schema(fields), [field.name for field in fields if "string" in str(field.type)]
    batches = (split_into_chunks(batch, runner.manifest, runner.outputs) for batch in iterate_batches(parquet_file))
    previous = None
    # Dictionary encoding of numbers, which rarely repeat, would double the time of writing.
    with parquet.ParquetWriter(partial, schema, use_dictionary=string_columns, write_page_checksum=True) as writer:
        for chunk in chain(chain.from_iterable(batches), [None]):
            if previous is not None:
                runner.finish(previous)
            if chunk is not None:
                runner.start(chunk)
            if previous is not None:
                writer.write_table(_build_output_table(previous, copied_names, runner.outputs, schema))
                yield previous
            previous = chunk


def _build_output_table(chunk: Chunk, copied_names: list[str], outputs: Sequence[Spec], schema: Any) -> Any:
    """Build the output table of a chunk: copied columns and outputs of the rows without an error."""
    import pyarrow as pa

    batch, bounds = chunk.batch.select(copied_names), pairwise([-1, *sorted(chunk.errors), chunk.batch.num_rows])
    # Slices between the failed rows are joined, because pyarrow cannot filter columns of some types.
    valid_rows = pa.Table.from_batches([batch.slice(start + 1, stop - start - 1) for start, stop in bounds])
    rows = [chunk.outputs[row] for row in sorted(chunk.outputs)]
    lists = [to_lists([row[index] for row in rows], spec) for index, spec in enumerate(outputs)]
    return pa.Table.from_arrays([*valid_rows.columns, *lists], schema=schema)


def _format_key(batch: Any, row: int, key: str | None) -> str | None:
    """Return the key of a row as text; the column may have any type, and strings that are not UTF-8."""
    if key is None or not (value := batch.column(key)[row]).is_valid:
        return None
    try:
        return str(value.cast("string").as_buffer().to_pybytes().decode("utf-8", "backslashreplace"))
    except (ValueError, NotImplementedError):  # a nested type
        return str(value)
