"""Speed of whole models without our layers, exported by us and by Keras."""

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
QUICK = ("GRU over words", "additive attention of Keras")
MANY = 8  # examples
ROUNDS = 12


def cases(options: Options) -> list[dict[str, Any]]:
    """Race our file of every architecture against Keras's, and against Keras's file after two optimizers."""
    import _architectures

    results = []
    for number, (name, architecture) in enumerate(_architectures.ARCHITECTURES.items()):
        if not find_spec(architecture.package) or (options.quick and name not in QUICK):
            continue
        model, folder = architecture.model(), options.work / f"model{number}"
        folder.mkdir()
        files = list(_files_of(model, architecture, folder))
        print(f"{name}: {', '.join(file.label for file in files if not file.unavailable)}", flush=True)
        for batch, length in _sizes(architecture.lengths, options.quick):
            inputs = _architectures.inputs_of(model, batch, length) | architecture.lost
            case = f"{name}, B{batch}" + (f" T{length}" if length else "")
            results.append(options.race(Case(inputs, files, case, THEIRS), ROUNDS))
    return results


def _sizes(lengths: tuple[int, ...], quick: bool) -> list[tuple[int, int]]:
    """Return many examples of the shortest length, and one of the longest."""
    return [(1, 16)] if quick else [(MANY, lengths[0]), (1, lengths[-1])]


def _files_of(model: Any, architecture: Any, folder: Path) -> Iterator[Contestant]:
    """Write the model in every way; of ours, the first, nothing is excused."""
    yield _files.of_ours(OURS, model, folder / "ours")
    theirs = _files.mended(_files.of_keras(THEIRS, model, folder / "theirs.onnx", optional=True))
    yield theirs
    yield _files.optimized(OPTIMIZED, theirs, model_type=architecture.optimizer)
    yield _files.slimmed(SLIM, theirs)
