"""Tables whose rows are of any length, and contestants that run a bundle on them.

Imports neither Keras nor TensorFlow, as those who run bundles do not.
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
        session = bundle.session(threads=spec["threads"])
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
    """`predict` with the options of the contestant."""
    arguments = {"workers": spec["threads"], **spec["options"].get("asked", {})}

    def run(source: Path, destination: Path) -> None:
        result = predict(spec["options"]["bundle"], source, destination, progress=False, **arguments)
        if result.errors:
            raise RuntimeError(f"rows failed: {result}")

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
