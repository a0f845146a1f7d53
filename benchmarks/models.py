"""Speed of complete models without layers of this package, exported by `export_model` and by Keras."""

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import _files
from _contestant import Contestant
from _files import OURS
from _harness import Options
from _race import Case

THEIRS = "Keras's exporter"
OPTIMIZED, SLIM = "Keras's exporter, then onnxruntime's optimizer", "Keras's exporter, then onnxslim"
QUICK_NAMES = ("GRU over words", "additive attention of Keras")
LARGE_BATCH_SIZE = 8
ROUNDS = 12


def run_cases(options: Options) -> list[dict[str, Any]]:
    """Race the files of every architecture: by `export_model`, by Keras, and Keras's file after two optimizers."""
    import _architectures

    results = []
    for index, (name, architecture) in enumerate(_architectures.ARCHITECTURES.items()):
        if not find_spec(architecture.package) or (options.quick and name not in QUICK_NAMES):
            continue
        model, folder = architecture.build_model(), options.folder / f"model{index}"
        folder.mkdir()
        files = list(_write_files(model, architecture, folder))
        print(f"{name}: {', '.join(file.label for file in files if not file.unavailable)}", flush=True)
        for batch, length in _list_sizes(architecture.lengths, options.quick):
            inputs = _architectures.make_inputs(model, batch, length) | architecture.missing_constants
            case = f"{name}, B{batch}" + (f" T{length}" if length else "")
            results.append(options.race(Case(inputs, files, case, THEIRS), ROUNDS))
    return results


def _list_sizes(lengths: tuple[int, ...], quick: bool) -> list[tuple[int, int]]:
    """Return (batch size, length) pairs: a large batch of the shortest length, and one example of the longest."""
    return [(1, 16)] if quick else [(LARGE_BATCH_SIZE, lengths[0]), (1, lengths[-1])]


def _write_files(model: Any, architecture: Any, folder: Path) -> Iterator[Contestant]:
    """Write the files of a model; a failure of `export_model` ends the benchmark."""
    yield _files.write_bundle(OURS, model, folder / "ours")
    theirs = _files.replace_erfc(_files.write_keras_file(THEIRS, model, folder / "theirs.onnx", optional=True))
    yield theirs
    yield _files.optimize_file(OPTIMIZED, theirs, model_type=architecture.optimizer)
    yield _files.slim_file(SLIM, theirs)
