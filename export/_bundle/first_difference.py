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
Row = dict[str, Any]  # of `compare`
LAYOUT_OPS = {"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
FILL, HALF_FILL = 1e8, 3e4  # what masks write in place of scores is larger; float16 ends at 65504


@dataclass(frozen=True)
class TensorDifference:
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
class LayerSummary:
    """The largest differences among the tensors of one layer."""

    layer: str
    tensors: int
    differing: int
    max_abs: float
    max_rel: float


@dataclass(frozen=True)
class DivergenceReport:
    """The first difference, and the largest ones of each layer.

    Attributes:
        cases: The cases that were run.
        layers: One row a layer, in the order of the graph.
        first: The first tensor beyond tolerance on the way to an output that differs; `None` if no output does.
        finding: One sentence.
        operators: The types of the ONNX operators that lead to `first` from what agrees, its own the last.
    """

    cases: tuple[str, ...]
    layers: tuple[LayerSummary, ...]
    first: TensorDifference | None
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
) -> DivergenceReport:
    """Run both graphs on golden cases, fetch the tensors of both, and name the first one that differs.

    A differing tensor counts only if a path of differing or unmatched tensors leads from it to a differing output.
    Other differences are usually tensors to which tf2onnx gave the name of another tensor.

    Args:
        bundle: An opened bundle.
        cases: Names of the cases to run.
        tolerance: As in `compare`, for every tensor.
        provider: The provider that runs the ONNX graph.
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
    saved = _saved_graph(bundle)
    graph = OnnxGraph(bundle.path / MODEL)
    versions = {name: graph.versions(name) for name in graph.tensors if name in saved.tensors}
    weights = graph.weights(versions)
    worst: dict[str, Row] = {}  # by tensor
    replayed: list[Row] = []  # the SavedModel against the golden outputs
    with tempfile.TemporaryDirectory() as scratch:
        step(f"Comparing {len(versions)} tensors in {len(golden)} cases")
        session = graph.session(itertools.chain.from_iterable(versions.values()), provider, Path(scratch))
        for case in golden:
            reference = saved.run(case.inputs, {*versions, *case.outputs})
            arrays = weights | run_session(session, case.inputs)
            candidates = {
                name: [arrays[version] for version in versions[name] if version in arrays] for name in versions
            }
            replayed += compare(case, {name: reference[name] for name in case.outputs}, tolerance)
            for row in _compare_case(case, reference, candidates, tolerance):
                worst[row["name"]] = max(worst.get(row["name"], row), row, key=_severity)
    tensors, beginnings = _diverging_path(graph, worst, [spec.name for spec in bundle.entries.outputs])
    differences = [
        _difference(worst[name], saved)
        for name in versions
        if name in worst and (worst[name]["passed"] or name in tensors)
    ]
    ran = tuple(case.name for case in golden)
    layers = tuple(_by_layer(differences, saved.tensors))
    first = next((difference for difference in differences if difference.tensor in beginnings), None)
    if first is None:
        return DivergenceReport(ran, layers, None, _no_difference(replayed))
    ops, sources = _unmatched_ops_before(graph, first.tensor, worst, saved)
    own_ops = (graph.ops[name] for name in versions[first.tensor] if name in graph.ops)
    return DivergenceReport(ran, layers, first, _finding(first, ops, sources), (*ops, *own_ops))


def format_layers(layers: Iterable[LayerSummary], first: TensorDifference | None) -> list[str]:
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


def _compare_case(
    case: Case,
    reference: Mapping[str, np.ndarray],
    candidates: Mapping[str, list[np.ndarray]],
    tolerance: Mapping[str, float],
) -> Iterator[Row]:
    """Yield the comparison of each tensor of the SavedModel with its best match among the tensors of the ONNX graph."""
    tolerance = {name: max(value, ROUGH[name]) for name, value in tolerance.items()}
    padding = _padding(reference, candidates, tolerance)
    for name, arrays in candidates.items():
        expected = reference[name]
        if name not in case.outputs:  # no mask hides the padding of an output later
            arrays = [_zero_padding(array, expected.shape, padding) for array in arrays]
            expected = _zero_padding(expected, expected.shape, padding)
        row = _best_match(case.name, name, expected, arrays, tolerance)
        if row is not None:
            yield row


def _padding(
    reference: Mapping[str, np.ndarray], candidates: Mapping[str, list[np.ndarray]], tolerance: Mapping[str, float]
) -> dict[int, np.ndarray]:
    """Return, by number of rows, a mask of the padding rows that only the SavedModel zeroes.

    The ONNX file keeps their values, because a mask hides them later. What is computed from such rows alone differs
    too. A row is padding if some tensor has zeros there in the SavedModel only, and agrees in all other rows.
    """
    padding: dict[int, np.ndarray] = {}
    limits = {"rtol": tolerance["relative"], "atol": tolerance["absolute"]}
    for name, arrays in candidates.items():
        expected = _rows(reference[name])
        for array in arrays:
            rows = _rows(array)
            if (
                expected is None
                or rows is None
                or array.shape != reference[name].shape
                or array.dtype != expected.dtype
            ):
                continue
            only_ours = ~expected.any(-1) & rows.any(-1)
            if only_ours.any() and alike(rows[~only_ours], expected[~only_ours], **limits):
                padding[len(rows)] = padding.get(len(rows), np.zeros(len(rows), bool)) | only_ours
    return padding


def _zero_padding(array: np.ndarray, shape: tuple[int, ...], padding: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return an array of a shape with zeros for padding; other arrays as they are."""
    rows = _rows(array)
    if rows is None or array.shape != shape or len(rows) not in padding:
        return array
    return np.where(padding[len(rows)][:, None], 0, rows).astype(array.dtype).reshape(shape)


def _rows(array: np.ndarray) -> np.ndarray | None:
    """Return an array of floats as `(rows, last axis)`, or None for other arrays."""
    if array.dtype.kind != "f" or array.ndim < 2 or not array.size:
        return None
    return array.reshape(-1, array.shape[-1])


def _best_match(
    case: str, name: str, expected: np.ndarray, arrays: list[np.ndarray], tolerance: Mapping[str, float]
) -> Row | None:
    """Return the row of `compare` for the array, in the order of axes, that differs least; `None` if none fits."""
    if expected.dtype.kind not in "biuf":
        return None
    reference = Case(case, {}, {name: _filled_with_infinity(expected)}, {})
    rows = [
        compare(reference, {name: _filled_with_infinity(transposed).astype(expected.dtype)}, tolerance)[0]
        for array in arrays
        if array.dtype.kind in "biuf"
        for transposed in _layouts(array, expected.shape)
    ]
    return min(rows, key=_severity, default=None)


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


def _severity(row: Mapping[str, Any]) -> tuple[bool, float]:
    return not row["passed"], row["max_rel"]


def _diverging_path(graph: OnnxGraph, worst: Mapping[str, Row], outputs: list[str]) -> tuple[set[str], set[str]]:
    """Return the differing tensors that lead to a differing output, and those of them that come of equal tensors.

    A tensor that is only laid out anew is hardly wrong by itself: more likely its name is that of another tensor.
    """
    tensors: set[str] = set()
    beginnings: set[str] = set()
    waiting = [name for name in outputs if name in worst and not worst[name]["passed"]]
    while waiting:
        name = waiting.pop()
        if name in tensors:
            continue
        tensors.add(name)
        sources = [source for source in _ancestors(graph, name, worst) if source in worst]
        differing = [source for source in sources if not worst[source]["passed"]]
        waiting += differing
        if not differing:
            beginnings.add(name)
    moved = {name for name in beginnings if _only_layout_ops(graph, name, worst)}
    return (tensors, beginnings) if moved == beginnings else (tensors - moved, beginnings - moved)


def _ancestors(graph: OnnxGraph, name: str, known: Mapping[str, Any]) -> Iterator[str]:
    """Yield the tensors from which a tensor is computed, up to the nearest known ones."""
    reached: set[str] = set()
    waiting = list(graph.sources.get(name, ()))
    while waiting:
        source = waiting.pop()
        if source not in reached:
            reached.add(source)
            yield source
            waiting += () if source in known else graph.sources.get(source, ())


def _difference(row: Mapping[str, Any], saved: SavedGraph) -> TensorDifference:
    kept = {key: row[key] for key in ("case", "dtype", "max_abs", "max_rel", "passed")}
    return TensorDifference(row["name"], saved.layer(row["name"]), shape=tuple(row["shape"]), **kept)


def _by_layer(differences: list[TensorDifference], order: Iterable[str]) -> Iterator[LayerSummary]:
    """Yield a row for each layer, in Keras's order of the last tensor of a layer; tf2onnx moves operators."""
    by_tensor = {difference.tensor: difference for difference in differences}
    layers: dict[str, list[TensorDifference]] = {}
    for name in reversed(list(order)):
        if name in by_tensor:
            layers.setdefault(by_tensor[name].layer, []).append(by_tensor[name])
    for layer, tensors in reversed(layers.items()):
        max_abs = max(tensor.max_abs for tensor in tensors)
        max_rel = max(tensor.max_rel for tensor in tensors)
        num_failed = sum(not tensor.passed for tensor in tensors)
        yield LayerSummary(layer, len(tensors), num_failed, max_abs=max_abs, max_rel=max_rel)


def _unmatched_ops_before(
    graph: OnnxGraph, name: str, known: Mapping[str, Any], saved: SavedGraph
) -> tuple[list[str], dict[str, None]]:
    """Return the ops without a namesake that lead to a tensor, and the layers that these start from."""
    above = list(_ancestors(graph, name, known))
    ops = [graph.ops[source] for source in reversed(above) if source not in known and source in graph.ops]
    computed = (source for source in above if source in known and source in graph.ops)
    return ops, dict.fromkeys(f"`{saved.layer(source)}`" for source in computed)


def _only_layout_ops(graph: OnnxGraph, name: str, known: Mapping[str, Any]) -> bool:
    """Tell whether a tensor is made of known ones by nothing but moving their numbers."""
    way = [name, *(source for source in _ancestors(graph, name, known) if source not in known)]
    ops = {graph.ops[each] for each in way if each in graph.ops}
    return bool(ops) and ops <= LAYOUT_OPS


def _finding(first: TensorDifference, ops: list[str], layers: Iterable[str]) -> str:
    size = f"max abs {first.max_abs:.1e}, max rel {first.max_rel:.1e}"
    finding = (
        f"The first tensor that differs is in layer `{first.layer}`: `{first.tensor}` "
        f"({first.dtype}, shape {first.shape}, {size}, case `{first.case}`)."
    )
    if ops:
        begin = ", ".join(layers) or "the inputs"
        finding += (
            f" It is made from tensors that agree, of {begin}, through {', '.join(ops)}, which had none to compare."
        )
    return finding


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
