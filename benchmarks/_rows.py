"""Tables with rows of variable length, and contestants that run a bundle on such tables.

Imports neither Keras nor TensorFlow, which batch inference does not need.
"""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from _contestant import Arrays, Build, Runner

from keras_attn_export import load_bundle, predict

MAX_LENGTH = 400
LOOP_BATCH_SIZE = 32  # of the plain loop
VOCABULARY_SIZE = 1000
KEY_SIZE, VALUE_SIZE = 20, 4


def write_pairs(folder: Path, rows: int, files: int) -> None:
    """Write rows of one query, with keys and values of log-normal lengths."""
    for file, rng, lengths, names in _plan_files(folder, rows, files):
        ones = np.ones_like(lengths)
        table = {
            "queries": _make_vectors(rng, ones, KEY_SIZE),
            "keys": _make_vectors(rng, lengths, KEY_SIZE),
            "values": _make_vectors(rng, lengths, VALUE_SIZE),
        }
        pq.write_table(pa.table({**names, **table}), file)


def write_words(folder: Path, rows: int, files: int) -> None:
    """Write sequences of word ids of log-normal lengths."""
    for file, rng, lengths, names in _plan_files(folder, rows, files):
        words = pa.array(rng.integers(1, VOCABULARY_SIZE, lengths.sum(), "int32"))
        pq.write_table(pa.table({**names, "words": pa.ListArray.from_arrays(_make_offsets(lengths), words)}), file)


def _plan_files(folder: Path, rows: int, files: int) -> Iterator[tuple[Path, Any, np.ndarray, dict[str, Any]]]:
    """Yield path, random generator, lengths of the rows, and columns that are not inputs, for each file."""
    folder.mkdir(parents=True)
    for index, ids in enumerate(np.array_split(np.arange(rows), files)):
        rng = np.random.default_rng(index)
        lengths = np.clip(rng.lognormal(3.5, 1, len(ids)).astype(int), 1, MAX_LENGTH)
        yield folder / f"{index:04d}.parquet", rng, lengths, {"id": ids, "name": [f"row {row}" for row in ids]}


def _make_vectors(rng: Any, lengths: np.ndarray, width: int) -> Any:
    numbers = pa.array(rng.standard_normal(lengths.sum() * width, "float32"))
    vectors = pa.ListArray.from_arrays(np.arange(0, len(numbers) + 1, width, dtype=np.int32), numbers)
    return pa.ListArray.from_arrays(_make_offsets(lengths), vectors)


def _make_offsets(lengths: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)


# ------------------------------------------------------------------- contestants


def build_loop(spec: dict[str, Any]) -> Build:
    """Build a plain loop: batches in the order of the source, padded to the longest row."""

    def run(source: Path, destination: Path) -> None:
        bundle = load_bundle(spec["options"]["bundle"])
        session = bundle.session(threads=spec["threads"])
        names = [output["name"] for output in bundle.manifest["outputs"]]
        for file in sorted(source.glob("*.parquet")):
            records = []
            for batch in pq.ParquetFile(file).iter_batches(LOOP_BATCH_SIZE):
                rows = batch.to_pylist()
                lengths = [max(len(row[name]) for name in row if isinstance(row[name], list)) for row in rows]
                outputs = session.run(names, _pad_rows(rows, lengths, bundle.manifest))
                for index, row in enumerate(rows):
                    record = {"id": row["id"], "name": row["name"]}
                    for output, array in zip(bundle.manifest["outputs"], outputs, strict=True):
                        slices = tuple(
                            slice(size if isinstance(size, int) else lengths[index]) for size in output["shape"][1:]
                        )
                        record[output["name"]] = array[index][slices].tolist()
                    records.append(record)
            pq.write_table(pa.Table.from_pylist(records), destination / file.name)

    return _build_runner(spec, run)


def _pad_rows(rows: list[dict[str, Any]], lengths: list[int], manifest: dict[str, Any]) -> Arrays:
    inputs = {}
    for spec in manifest["inputs"]:
        name = spec["name"]
        if name not in rows[0]:
            inputs[name] = np.array(lengths, spec["dtype"])
            continue
        sizes = [size if isinstance(size, int) else max(lengths) for size in spec["shape"][1:]]
        inputs[name] = np.zeros((len(rows), *sizes), spec["dtype"])
        for index, row in enumerate(rows):
            inputs[name][index, : len(row[name])] = row[name]
    return inputs


def build_predict(spec: dict[str, Any]) -> Build:
    """Build a run of `predict` with the arguments of the contestant."""
    arguments = {"workers": spec["threads"], **spec["options"].get("arguments", {})}

    def run(source: Path, destination: Path) -> None:
        result = predict(spec["options"]["bundle"], source, destination, progress=False, **arguments)
        if result.errors:
            raise RuntimeError(f"rows failed: {result}")

    return _build_runner(spec, run)


def _build_runner(spec: dict[str, Any], run: Callable[[Path, Path], None]) -> Build:
    """Return a builder of a runner; each run opens the bundle and writes all files again."""
    source, destination = Path(spec["options"]["source"]), Path(spec["answer"]).parent / "written"

    def run_from_scratch() -> None:
        shutil.rmtree(destination, ignore_errors=True)
        destination.mkdir()
        run(source, destination)

    return lambda inputs: Runner(run_from_scratch, lambda: _read_outputs(destination))


def _read_outputs(folder: Path) -> list[np.ndarray]:
    """Return the elements of the outputs, and the lengths of their lists."""
    table = pq.read_table(folder)
    if table["id"].to_pylist() != list(range(len(table))):
        raise RuntimeError("rows are missing, or not in the order of the source")
    arrays = []
    for name in sorted(set(table.column_names) - {"id", "name"}):
        column = table[name].combine_chunks()
        while pa.types.is_list(column.type):
            arrays.append(np.asarray(column.value_lengths()))
            column = column.flatten()
        arrays.append(np.asarray(column, np.float64))
    return arrays
