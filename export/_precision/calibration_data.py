"""Read calibration data: arrays, `.npz` files or Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from .._errors import InputError
from .._format.array_files import read_arrays
from .._format.input_arrays import by_name, checked_inputs
from .._format.manifest import Manifest, Spec
from .._format.names import Arrays
from .._tables.parquet_files import UnreadableFileError, find_files, open_parquet, record_batches
from .._tables.rows import pad_rows, padded_lengths, plan_batches, row_lengths, schema_error

CALLED = "`calibration`"
ROWS = 32  # of a batch
# What readers of rows do not ask of a manifest.
_NO_MODEL: dict[str, Any] = {
    "model": "",
    "outputs": (),
    "opset": 0,
    "layers": [],
    "versions": {},
    "lowest_onnxruntime": "",
    "parity": {},
    "sha256": {},
}
EXACT: frozenset[str] = frozenset()  # no axis of a table's rows is padded: ranges would include the padding


def calibration_batches(
    given: Any, inputs: tuple[Spec, ...], *, counts: Mapping[str, str], multiples: Mapping[str, int]
) -> list[Arrays]:
    """Return what is given as inputs of the model, some rows at once.

    Args:
        given: Arrays by input name, or in the order of the inputs, one alone as it is; or the path of an `.npz` file
            of them, or of Parquet: a file, a folder, or a pattern. Rows of Parquet are not padded.
        inputs: The inputs of the model.
        counts: As in its manifest.
        multiples: As in its manifest.

    Raises:
        InputError: It cannot be read, does not fit the inputs, has no rows, or holds NaN or infinity.
        ExportError: pyarrow is not installed, for Parquet.
    """
    manifest = Manifest(inputs=inputs, counts=counts, multiples=multiples, **_NO_MODEL)
    if isinstance(given, str | Path) and Path(given).suffix != ".npz":
        batches = list(_of_tables(str(given), manifest))
    else:
        arrays = _read(Path(given)) if isinstance(given, str | Path) else given
        batches = _of_arrays(arrays, manifest)
    if not any(rows_of(batch) for batch in batches):
        raise InputError(f"{CALLED} holds no rows. Give some hundreds of what the model will be used on.")
    for batch in batches:
        for name, array in batch.items():
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise InputError(f"{CALLED} holds NaN or infinity in `{name}`, of which no range can be taken.")
    return batches


def rows_of(inputs: Arrays) -> int:
    """Return how many rows a batch has: the size of the first axis of its inputs, 1 where none has an axis."""
    return next((len(array) for array in inputs.values() if array.ndim), 1)


def _read(path: Path) -> Arrays:
    try:
        return read_arrays(path)
    except (OSError, ValueError) as error:
        raise InputError(
            f"{CALLED} cannot be read from {path}: {getattr(error, 'strerror', None) or error}."
        ) from error


def _of_arrays(given: Any, manifest: Manifest) -> list[Arrays]:
    try:
        arrays = checked_inputs(manifest, by_name("It", given, [spec.name for spec in manifest.inputs]))
    except InputError as error:
        raise InputError(f"{CALLED} does not fit the model. {error}") from error
    first = {spec.shape[0] if spec.shape else 0 for spec in manifest.inputs}
    if len(first) > 1 or not isinstance(first.pop(), str):
        return [arrays]
    return [
        {name: array[start : start + ROWS] for name, array in arrays.items()}
        for start in range(0, rows_of(arrays), ROWS)
    ]


def _of_tables(source: str, manifest: Manifest) -> Iterator[Arrays]:
    if not all(spec.shape and isinstance(spec.shape[0], str) for spec in manifest.inputs):
        raise InputError(f"{CALLED} is a table, whose rows are examples, and the model takes no batches of any size.")
    for file in find_files(source).values():
        try:
            yield from _of_file(file, manifest)
        except (InputError, UnreadableFileError) as error:
            raise InputError(f"{CALLED} cannot be read from {file}: {error}.") from error


def _of_file(file: Path, manifest: Manifest) -> Iterator[Arrays]:
    with open_parquet(file) as opened:
        names = opened.schema_arrow.names
        if reason := schema_error(opened.schema_arrow, manifest):
            raise InputError(reason)
        for batch in record_batches(opened, [spec.name for spec in manifest.inputs if spec.name in names]):
            lengths = row_lengths(batch, manifest)
            for rows in plan_batches(lengths, batch.num_rows, EXACT, ROWS):
                own = {axis: values[rows] for axis, values in lengths.items()}
                yield pad_rows(batch.take(rows), manifest, own, padded_lengths(own, manifest, EXACT))


def first_rows(batches: Sequence[Arrays], most: int) -> list[Arrays]:
    """Return batches from all over what there is, with so many rows or a few more."""
    kept = max(1, round(len(batches) * min(1.0, most / max(1, sum(map(rows_of, batches))))))
    return [batches[number * len(batches) // kept] for number in range(kept)]
