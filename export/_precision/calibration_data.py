"""Calibration data: read arrays, `.npz` files or Parquet, and split them into batches."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from .._format.array_files import read_arrays
from .._format.input_arrays import map_to_names, validate_inputs
from .._format.manifest import Manifest, Spec
from .._format.names import Arrays
from .._tables.parquet_files import UnreadableFileError, find_files, iterate_batches, open_parquet
from .._tables.rows import find_column_error, measure_rows, pad_lengths, pad_rows, plan_batches

BATCH_ROWS = 32  # bounds the memory for the activations of a batch
# Entries of a manifest that the readers of tables do not use.
_UNUSED_ENTRIES: dict[str, Any] = {
    **dict.fromkeys(("model", "lowest_onnxruntime"), ""),
    **{"outputs": (), "opset": 0, "layers": [], "versions": {}, "parity": {}, "sha256": {}},
}
NO_PADDED_AXES: frozenset[str] = frozenset()  # ranges would include values of padding


def read_calibration(
    data: Any, inputs: tuple[Spec, ...], *, counts: Mapping[str, str], multiples: Mapping[str, int]
) -> list[Arrays]:
    """Return calibration data as batches of inputs.

    Args:
        data: Arrays as for `Bundle.run`, the path of an `.npz` file of arrays by input name, or a path or pattern of
            Parquet files.
        inputs: The inputs of the model.
        counts: Inputs of lengths by axis, as in the manifest.
        multiples: Multiples that the size of an axis must be of, as in the manifest.

    Raises:
        InputError: If `data` cannot be read, does not fit the inputs, has no rows, or contains NaN or infinity.
        ExportError: If pyarrow is not installed, for Parquet.
    """
    manifest = Manifest(inputs=inputs, counts=counts, multiples=multiples, **_UNUSED_ENTRIES)
    if isinstance(data, str | Path) and Path(data).suffix != ".npz":
        batches = list(_read_tables(str(data), manifest))
    else:
        batches = _split_arrays(_read_file(Path(data)) if isinstance(data, str | Path) else data, manifest)
    if not any(count_rows(batch) for batch in batches):
        raise InputError("`calibration` has no rows. Pass a few hundred typical inputs.")
    for batch in batches:
        for name, array in batch.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(f"`calibration` has NaN or infinity in `{name}`. Remove these rows.")
    return batches


def count_rows(inputs: Arrays) -> int:
    """Return the size of the first axis of the inputs; 1 if all inputs are scalars."""
    return next((len(array) for array in inputs.values() if array.ndim), 1)


def _read_file(path: Path) -> Arrays:
    try:
        return read_arrays(path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"`calibration` cannot be read from {path}: {reason}.") from error


def _split_arrays(data: Any, manifest: Manifest) -> list[Arrays]:
    try:
        arrays = validate_inputs(manifest, map_to_names("It", data, [spec.name for spec in manifest.inputs]))
    except InputError as error:
        raise InputError(f"`calibration` does not fit the model. {error}") from error
    first_axes = {spec.shape[0] if spec.shape else 0 for spec in manifest.inputs}
    if len(first_axes) > 1 or not isinstance(first_axes.pop(), str):
        return [arrays]
    starts = range(0, count_rows(arrays), BATCH_ROWS)
    return [{name: array[start : start + BATCH_ROWS] for name, array in arrays.items()} for start in starts]


def _read_tables(source: str, manifest: Manifest) -> Iterator[Arrays]:
    if not all(spec.shape and isinstance(spec.shape[0], str) for spec in manifest.inputs):
        raise InputError("`calibration` is a table, but an input of the model has no dynamic batch axis. Pass arrays.")
    for file in find_files(source).values():
        try:
            yield from _read_table(file, manifest)
        except (InputError, UnreadableFileError) as error:
            raise InputError(f"`calibration` cannot be read from {file}: {error}.") from error


def _read_table(file: Path, manifest: Manifest) -> Iterator[Arrays]:
    with open_parquet(file) as parquet:
        names = parquet.schema_arrow.names
        if reason := find_column_error(parquet.schema_arrow, manifest):
            raise InputError(reason)
        for batch in iterate_batches(parquet, [spec.name for spec in manifest.inputs if spec.name in names]):
            lengths = measure_rows(batch, manifest)
            for rows in plan_batches(lengths, batch.num_rows, NO_PADDED_AXES, BATCH_ROWS):
                batch_lengths = {axis: values[rows] for axis, values in lengths.items()}
                sizes = pad_lengths(batch_lengths, manifest, NO_PADDED_AXES)
                yield pad_rows(batch.take(rows), manifest, batch_lengths, sizes)


def select_batches(batches: Sequence[Arrays], row_count: int) -> list[Arrays]:
    """Return evenly spaced batches with about `row_count` rows in total."""
    selected_count = max(1, round(len(batches) * min(1.0, row_count / max(1, sum(map(count_rows, batches))))))
    return [batches[index * len(batches) // selected_count] for index in range(selected_count)]
