"""Tables whose rows are of any length, and who runs a bundle on them; each in a process of its own, see `_worker.py`.

Imports neither Keras nor TensorFlow, as those who run bundles do not.
"""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _runner import Arrays, Build, Runner

from keras_attn_export import load_bundle, predict
from keras_attn_export._batch import columns, results, windows
from keras_attn_export._standalone.verify import Spec

LONGEST = 400
LOOP_ROWS = 32  # of a batch
VOCABULARY = 1000
KEY_SIZE, VALUE_SIZE = 20, 4


def write_pairs(folder: Path, rows: int, files: int) -> None:
    """Write queries, one a row, with keys and values of log-normal lengths."""
    for file, rng, lengths, names in _files(folder, rows, files):
        one = np.ones_like(lengths)
        table = {
            "queries": _vectors(rng, one, KEY_SIZE),
            "keys": _vectors(rng, lengths, KEY_SIZE),
            "values": _vectors(rng, lengths, VALUE_SIZE),
        }
        pq.write_table(pa.table({**names, **table}), file)


def write_words(folder: Path, rows: int, files: int) -> None:
    """Write sequences of words, as numbers, of log-normal lengths."""
    for file, rng, lengths, names in _files(folder, rows, files):
        words = pa.array(rng.integers(1, VOCABULARY, lengths.sum(), "int32"))
        pq.write_table(pa.table({**names, "words": pa.ListArray.from_arrays(_offsets(lengths), words)}), file)


def _files(folder: Path, rows: int, files: int) -> Iterator[tuple[Path, Any, np.ndarray, dict[str, Any]]]:
    """Yield where each file goes, the lengths of its rows, and columns that are no inputs."""
    folder.mkdir(parents=True)
    for number, ids in enumerate(np.array_split(np.arange(rows), files)):
        rng = np.random.default_rng(number)
        lengths = np.clip(rng.lognormal(3.5, 1, len(ids)).astype(int), 1, LONGEST)
        yield folder / f"{number:04d}.parquet", rng, lengths, {"id": ids, "name": [f"row {row}" for row in ids]}


def _vectors(rng: Any, lengths: np.ndarray, width: int) -> Any:
    numbers = pa.array(rng.standard_normal(lengths.sum() * width, "float32"))
    vectors = pa.ListArray.from_arrays(np.arange(0, len(numbers) + 1, width, dtype=np.int32), numbers)
    return pa.ListArray.from_arrays(_offsets(lengths), vectors)


def _offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


# ------------------------------------------------------------------- contestants


def loop(spec: dict[str, Any]) -> Build:
    """What one writes first: batches in the order of the source, padded to their longest row."""

    def run(source: Path, destination: Path) -> None:
        bundle = load_bundle(spec["options"]["bundle"])
        session = bundle.session(spec["provider"], threads=spec["threads"])
        names = [output["name"] for output in bundle.manifest["outputs"]]
        for file in sorted(source.glob("*.parquet")):
            done = []
            for batch in pq.ParquetFile(file).iter_batches(LOOP_ROWS):
                rows = batch.to_pylist()
                lengths = [max(len(row[name]) for name in row if isinstance(row[name], list)) for row in rows]
                outputs = session.run(names, _padded(rows, lengths, bundle.manifest))
                for index, row in enumerate(rows):
                    found = {"id": row["id"], "name": row["name"]}
                    for output, array in zip(bundle.manifest["outputs"], outputs, strict=True):
                        cut = tuple(
                            slice(size if isinstance(size, int) else lengths[index]) for size in output["shape"][1:]
                        )
                        found[output["name"]] = array[index][cut].tolist()
                    done.append(found)
            pq.write_table(pa.Table.from_pylist(done), destination / file.name)

    return _build(spec, run)


def _padded(rows: list[dict[str, Any]], lengths: list[int], manifest: dict[str, Any]) -> Arrays:
    inputs = {}
    for given in manifest["inputs"]:
        name = given["name"]
        if name not in rows[0]:
            inputs[name] = np.array(lengths, given["dtype"])
            continue
        sizes = [size if isinstance(size, int) else max(lengths) for size in given["shape"][1:]]
        inputs[name] = np.zeros((len(rows), *sizes), given["dtype"])
        for index, row in enumerate(rows):
            inputs[name][index, : len(row[name])] = row[name]
    return inputs


def ours(spec: dict[str, Any]) -> Build:
    """Ours, with what the options say; `without` names what is taken away, which no option of the product does."""
    options = spec["options"]
    if "address" in options:
        os.environ["RAY_ADDRESS"] = options["address"]
    if "without" in options:
        WITHOUT[options["without"]]()

    def run(source: Path, destination: Path) -> None:
        done = predict(
            options["bundle"],
            source,
            destination,
            engine=options.get("engine", "local"),
            batch_size=options.get("batch_size"),
            workers=options.get("workers", spec["threads"]),
            provider=spec["provider"],
            progress=False,
        )
        if done.errors or done.exact_axes or done.one_by_one:
            raise RuntimeError(f"rows failed, or did not run together: {done}")

    return _build(spec, run)


def _build(spec: dict[str, Any], run: Callable[[Path, Path], None]) -> Build:
    """Return what makes a runner; each run writes anew, from opening the bundle to the last file."""
    source, destination = Path(spec["options"]["source"]), Path(spec["answer"]).parent / "written"

    def again() -> None:
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir()
        run(source, destination)

    return lambda inputs: Runner(again, lambda: _written(destination))


def _written(folder: Path) -> list[np.ndarray]:
    """Return the numbers of the outputs, and how many each list has."""
    table = pq.read_table(folder)
    if table["id"].to_pylist() != list(range(len(table))):
        raise RuntimeError("rows are missing, or not in the order of the source")
    found = []
    for name in sorted(set(table.column_names) - {"id", "name"}):
        column = table[name].combine_chunks()
        while pa.types.is_list(column.type):
            found.append(np.asarray(column.value_lengths()))
            column = column.flatten()
        found.append(np.asarray(column, np.float64))
    return found


# --------------------------------------------------------------- ours without ...


def _without_buckets() -> None:
    def in_order(self: windows.Batches, lengths: Any, rows: np.ndarray) -> list[np.ndarray]:
        return [rows[start : start + self.most] for start in range(0, len(rows), self.most)]

    _replace(windows.Batches, "of", in_order)


def _without_buffers() -> None:
    _replace(windows, "read_column", _from_objects)
    _replace(results, "to_lists", _to_objects)


def _from_objects(column: Any, spec: Spec) -> tuple[columns.Ragged, columns.Problems]:
    """Read a column through Python's numbers."""
    arrays = [np.array(row, spec.dtype) for row in column.to_pylist()]
    values = np.concatenate([array.ravel() for array in arrays])
    return columns.Ragged(values, _offsets(np.array([array.size for array in arrays])), _sizes(arrays)), {}


def _sizes(arrays: list[np.ndarray]) -> np.ndarray:
    return np.stack([np.array(array.shape, np.int64) for array in arrays])


def _to_objects(values: np.ndarray, sizes: np.ndarray) -> Any:
    """Make a column of Python's numbers."""
    ends = np.cumsum(np.prod(sizes, axis=1))
    rows = np.split(values, ends[:-1])
    made = pa.from_numpy_dtype(values.dtype)
    for _ in range(sizes.shape[1]):
        made = pa.list_(made)
    return pa.array([row.reshape(size).tolist() for row, size in zip(rows, sizes, strict=True)], made)


def _replace(owner: Any, name: str, by: Any) -> None:
    """Put something else in place of what is there, and fail where it is no longer called so."""
    getattr(owner, name)
    setattr(owner, name, by)


WITHOUT = {"buckets": _without_buckets, "buffers": _without_buffers}
