"""Find the first tensor in which the ONNX graph differs from the SavedModel.

The SavedModel's graph is Keras's own. tf2onnx keeps the names of its tensors, so that many tensors of the ONNX graph,
weights included, can be compared one by one. Needs TensorFlow and onnx, but neither Keras nor the model's code.
"""

from __future__ import annotations

import itertools
import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._array_comparison import alike
from .._dependencies import needing
from .._errors import BundleError
from .._format.compare import compare
from .._format.interruptible_session import run_session
from .._format.names import MODEL, Case
from .._format.parity_report import ROUGH, finite
from .._format.printing import printable
from .._progress import Progress
from .bundle import Bundle
from .bundle_files import SAVED_MODEL
from .onnx_tensors import OnnxGraph
from .untrusted_input import golden_cases

if TYPE_CHECKING:
    from .saved_model_tensors import SavedGraph

PERMUTED_AXES = 5  # the most axes whose order is tried
MOVES = {"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
FILL, HALF_FILL = 1e8, 3e4  # what masks write in place of scores is larger; float16 ends at 65504


@dataclass(frozen=True)
class Difference:
    """How far one tensor of the ONNX graph is from its namesake in the SavedModel, in the worst of the cases."""

    tensor: str
    layer: str
    case: str
    shape: tuple[int, ...]
    dtype: str
    max_abs: float
    max_rel: float
    passed: bool


@dataclass(frozen=True)
class LayerRow:
    """The largest differences among the tensors of one layer."""

    layer: str
    tensors: int
    differing: int
    max_abs: float
    max_rel: float


@dataclass(frozen=True)
class Comparison:
    """What was found.

    Attributes:
        cases: The cases that were run.
        layers: One row a layer, in the order of the graph.
        first: The first tensor beyond tolerance on the way to an output that differs; `None` if no output does.
        finding: One sentence.
        operators: The types of the ONNX operators that lead to `first` from what agrees, its own the last.
    """

    cases: tuple[str, ...]
    layers: tuple[LayerRow, ...]
    first: Difference | None
    finding: str
    operators: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the content in the types of JSON; differences that are not finite stand as strings."""
        content: dict[str, Any] = finite(asdict(self))
        return content


def first_difference(
    bundle: Bundle,
    cases: Iterable[str],
    tolerance: Mapping[str, float],
    *,
    provider: str = "cpu",
    step: Progress = lambda _: None,
    among: Sequence[Case] | None = None,
) -> Comparison:
    """Run both graphs on golden cases, fetching what they have in common, and name the first tensor that differs.

    A tensor that differs counts only if it is on the way to an output that differs through tensors that differ, or
    that have no namesake: tf2onnx now and then gives a name to something else, of which nothing is left further on.

    Args:
        bundle: An opened bundle.
        cases: Names of the cases to run.
        tolerance: As in `compare`, for every tensor.
        provider: Where ONNX runs.
        step: Called with the name of each step.
        among: The cases that have these names; `None` for the golden cases.

    Raises:
        ExportError: TensorFlow or onnx is not installed, or a graph does not run.
        BundleError: The SavedModel is missing or cannot be loaded.
    """
    names = set(cases)
    among = golden_cases(bundle.path, bundle.entries) if among is None else among
    golden = [case for case in among if case.name in names]
    step("Loading TensorFlow and the SavedModel")
    saved, ours = _saved_graph(bundle), OnnxGraph(bundle.path / MODEL)
    shared = [name for name in ours.tensors if name in saved.tensors]
    versions = {name: ours.versions(name) for name in shared}
    weights = ours.weights(shared)
    worst: dict[str, dict[str, Any]] = {}  # rows by tensor
    replayed: list[dict[str, Any]] = []  # the SavedModel against the golden outputs
    with tempfile.TemporaryDirectory() as scratch:
        step(f"Comparing {len(shared)} tensors in {len(golden)} cases")
        session = ours.session(itertools.chain.from_iterable(versions.values()), provider, Path(scratch))
        for case in golden:
            reference = saved.run(case.inputs, {*shared, *case.outputs})
            replayed += compare(case, {name: reference[name] for name in case.outputs}, tolerance)
            arrays = weights | run_session(session, case.inputs)
            found = {name: [arrays[each] for each in versions[name] if each in arrays] for name in shared}
            padding = _padding(reference, found, tolerance)
            for name in shared:
                hidden = {} if name in case.outputs else padding  # in an output nothing is hidden later
                row = _closest(case.name, name, *_without(hidden, reference[name], found[name]), tolerance)
                if row is not None and (name not in worst or _badness(row) > _badness(worst[name])):
                    worst[name] = row
    path = _differing_path(ours, worst, [spec.name for spec in bundle.entries.outputs])
    told = [
        _difference(row, saved)
        for name in shared
        if (row := worst.get(name)) and (row["passed"] or name in path.tensors)
    ]
    first = next((each for each in told if each.tensor in path.beginnings), None)
    ran = tuple(case.name for case in golden)
    rows = tuple(_by_layer(told, saved.tensors))
    if first is None:
        return Comparison(ran, rows, None, _no_difference(replayed))
    ops, layers = _between(ours, first.tensor, worst, saved)
    of_it = (*ops, *(ours.ops[each] for each in versions[first.tensor] if each in ours.ops))
    return Comparison(ran, rows, first, _found(first, ops, layers), of_it)


def format_layers(layers: Iterable[LayerRow], first: Difference | None) -> list[str]:
    """Return the lines of a table in plain text."""
    table = [("layer", "tensors", "max abs", "max rel", "")]
    for row in layers:
        verdict = f"{row.differing} of them differ" if row.differing else "ok"
        if first is not None and row.layer == first.layer:
            verdict += ", the first is here"
        table.append((printable(row.layer), str(row.tensors), f"{row.max_abs:.1e}", f"{row.max_rel:.1e}", verdict))
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    lines = ["  ".join([*(cell.ljust(w) for cell, w in zip(line, widths, strict=False)), line[4]]) for line in table]
    return [line.rstrip() for line in lines]


def _saved_graph(bundle: Bundle) -> SavedGraph:
    if not (folder := bundle.path / SAVED_MODEL).is_dir():
        raise BundleError(f"{bundle.path} has no {SAVED_MODEL}, whose tensors are compared. Export the model with it.")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with needing("export", "Finding the first difference"):
        from .saved_model_tensors import SavedGraph
    layers = [part for each in bundle.entries.layers for part in each["name"].split("/")]
    return SavedGraph(folder, bundle.entries.model, layers)


def _padding(
    theirs: Mapping[str, np.ndarray], ours: Mapping[str, list[np.ndarray]], tolerance: Mapping[str, float]
) -> dict[int, np.ndarray]:
    """Return which rows are padding that only the SavedModel replaces by zeros, by how many rows there are.

    The ONNX file leaves there what was given, where masks hide it later; what is made of them alone differs too.
    """
    padding: dict[int, np.ndarray] = {}
    rough = _at_least_rough(tolerance)
    limits = {"rtol": rough["relative"], "atol": rough["absolute"]}
    for name, found in ours.items():
        rows = _rows(theirs[name])
        for array in found:
            own = _rows(array)
            if rows is None or own is None or array.shape != theirs[name].shape or array.dtype != rows.dtype:
                continue
            only_ours = ~rows.any(-1) & own.any(-1)
            if only_ours.any() and alike(own[~only_ours], rows[~only_ours], **limits):
                padding[len(rows)] = padding.get(len(rows), np.zeros(len(rows), bool)) | only_ours
    return padding


def _without(
    padding: Mapping[int, np.ndarray], theirs: np.ndarray, ours: list[np.ndarray]
) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the arrays with zeros for padding."""

    def zeroed(array: np.ndarray) -> np.ndarray:
        rows = _rows(array)
        if rows is None or array.shape != theirs.shape or len(rows) not in padding:
            return array
        return np.where(padding[len(rows)][:, None], 0, rows).astype(array.dtype).reshape(array.shape)

    return zeroed(theirs), [zeroed(array) for array in ours]


def _rows(array: np.ndarray) -> np.ndarray | None:
    """Return an array of floats with all axes but the last made one, or None where there is no such axis."""
    if array.dtype.kind != "f" or array.ndim < 2 or not array.size:
        return None
    return array.reshape(-1, array.shape[-1])


def _closest(
    case: str, name: str, theirs: np.ndarray, found: list[np.ndarray], tolerance: Mapping[str, float]
) -> dict[str, Any] | None:
    """Return the row of `compare` that differs least, of all it may be; `None` if there is none."""
    if theirs.dtype.kind not in "biuf":
        return None
    tolerance = _at_least_rough(tolerance)
    wanted = Case(case, {}, {name: _filled_with_infinity(theirs)}, {})
    rows = [
        compare(wanted, {name: _filled_with_infinity(laid).astype(theirs.dtype)}, tolerance)[0]
        for array in found
        if array.dtype.kind in "biuf"
        for laid in _layouts(array, theirs.shape)
    ]
    return min(rows, key=_badness, default=None)


def _at_least_rough(tolerance: Mapping[str, float]) -> dict[str, float]:
    return {key: max(value, ROUGH[key]) for key, value in tolerance.items()}


def _filled_with_infinity(array: np.ndarray) -> np.ndarray:
    """Return floats with infinity for what masks fill in; beside -1e9 a difference of scores would be small."""
    if array.dtype.kind != "f":
        return array
    fill = np.abs(array) >= (HALF_FILL if array.dtype == np.float16 else FILL)
    return np.where(fill, np.copysign(array.dtype.type(np.inf), array), array)


def _layouts(array: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield the array with its axes in each order that gives `shape`: tf2onnx moves transposes through the graph."""
    orders = itertools.permutations(range(array.ndim)) if array.ndim <= PERMUTED_AXES else [tuple(range(array.ndim))]
    for order in orders:
        if tuple(array.shape[axis] for axis in order) == shape:
            yield array.transpose(order)


def _badness(row: Mapping[str, Any]) -> tuple[bool, float]:
    return not row["passed"], row["max_rel"]


@dataclass(frozen=True)
class _Path:
    """The tensors that differ on the way to an output that differs, and where they begin to."""

    tensors: set[str]
    beginnings: set[str]


def _differing_path(graph: OnnxGraph, worst: Mapping[str, Mapping[str, Any]], outputs: list[str]) -> _Path:
    path = _Path(set(), set())
    waiting = [name for name in outputs if name in worst and not worst[name]["passed"]]
    while waiting:
        name = waiting.pop()
        if name in path.tensors:
            continue
        path.tensors.add(name)
        above = [source for source in _nearest_above(graph, name, worst) if not worst[source]["passed"]]
        waiting += above
        if not above:
            path.beginnings.add(name)
    # what is only laid out anew is hardly wrong by itself: more likely its name is that of something else
    moved = {name for name in path.beginnings if _is_only_moved(graph, name, worst)}
    return path if moved == path.beginnings else _Path(path.tensors - moved, path.beginnings - moved)


def _nearest_above(graph: OnnxGraph, name: str, known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the known tensors that a tensor is made from, directly or through unknown ones."""
    return (source for source in _above(graph, name, known) if source in known)


def _above(graph: OnnxGraph, name: str, known: Mapping[str, Any]) -> Iterator[str]:
    """Yield what a tensor is made from, up to the nearest known tensors."""
    reached: set[str] = set()
    waiting = list(graph.sources.get(name, ()))
    while waiting:
        source = waiting.pop()
        if source not in reached:
            reached.add(source)
            yield source
            waiting += () if source in known else graph.sources.get(source, ())


def _difference(row: Mapping[str, Any], saved: SavedGraph) -> Difference:
    kept = {key: row[key] for key in ("case", "dtype", "max_abs", "max_rel", "passed")}
    return Difference(row["name"], saved.layer(row["name"]), shape=tuple(row["shape"]), **kept)


def _by_layer(differences: list[Difference], order: Iterable[str]) -> Iterator[LayerRow]:
    """Yield a row a layer, in the order in which Keras is done with them; tf2onnx moves what it can."""
    by_tensor = {each.tensor: each for each in differences}
    layers: dict[str, list[Difference]] = {}
    for name in reversed(list(order)):
        if name in by_tensor:
            layers.setdefault(by_tensor[name].layer, []).append(by_tensor[name])
    for layer, found in reversed(layers.items()):
        largest = {"max_abs": max(each.max_abs for each in found), "max_rel": max(each.max_rel for each in found)}
        yield LayerRow(layer, len(found), sum(not each.passed for each in found), **largest)


def _between(
    graph: OnnxGraph, name: str, known: Mapping[str, Any], saved: SavedGraph
) -> tuple[list[str], dict[str, None]]:
    """Return the ops without a namesake that lead to a tensor, and the layers that these start from."""
    above = list(_above(graph, name, known))
    ops = [graph.ops[source] for source in reversed(above) if source not in known and source in graph.ops]
    computed = (source for source in above if source in known and source in graph.ops)
    return ops, dict.fromkeys(f"`{saved.layer(source)}`" for source in computed)


def _is_only_moved(graph: OnnxGraph, name: str, known: Mapping[str, Any]) -> bool:
    """Tell whether a tensor is made of known ones by nothing but moving their numbers."""
    way = [name, *(source for source in _above(graph, name, known) if source not in known)]
    ops = {graph.ops[each] for each in way if each in graph.ops}
    return bool(ops) and ops <= MOVES


def _found(first: Difference, ops: list[str], layers: Iterable[str]) -> str:
    size = f"max abs {first.max_abs:.1e}, max rel {first.max_rel:.1e}"
    said = (
        f"The first tensor that differs is in layer `{first.layer}`: `{first.tensor}` "
        f"({first.dtype}, shape {first.shape}, {size}, case `{first.case}`)."
    )
    if ops:
        begin = ", ".join(layers) or "the inputs"
        said += f" It is made from tensors that agree, of {begin}, through {', '.join(ops)}, which had none to compare."
    return said


def _no_difference(replayed: list[dict[str, Any]]) -> str:
    if not all(row["passed"] for row in replayed):
        return (
            "No output of the ONNX file differs from the SavedModel's. The golden outputs do: "
            "they are not what the SavedModel gives, so parity/cases.npz or saved_model/ is not of this export."
        )
    return (
        "Nothing differs when every tensor is kept. onnxruntime then cannot merge nodes, so the difference comes "
        "from how it optimizes the graph."
    )
