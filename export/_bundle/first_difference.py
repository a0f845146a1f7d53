"""First difference: the first tensor in which the ONNX graph differs from the SavedModel.

The graph of the SavedModel is the graph of Keras, and tf2onnx keeps the names of its tensors. Therefore many tensors,
weights included, have the same name in both graphs, and are compared in each case:

1. An ONNX tensor may have its axes in another order, because tf2onnx moves transposes through the graph, and its name
   may belong to a later node. All orders and all such names are compared; the smallest difference counts.
2. Values that a mask fills in (-1e9 and the like) become infinity, because in relation to them every difference of
   scores would be small. Padding that only the SavedModel sets to zero becomes zero in both.
3. The search starts at the outputs that differ and follows differing inputs upwards. An origin is a differing tensor
   whose nearest compared ancestors agree; the first origin in topological order is reported. So a difference without
   effect on an output is ignored: usually tf2onnx gave the name of one tensor to another.
4. An origin that layout operators alone compute from compared tensors is ignored if other origins exist: a transpose
   does not change values, so its name probably belongs to another tensor.

Needs TensorFlow and onnx, but neither Keras nor the code of the model.
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

from .._array_comparison import arrays_match
from .._dependencies import require_extra
from .._errors import BundleError
from .._format.compare import compare
from .._format.interruptible_session import run_session
from .._format.names import MODEL, Case
from .._format.parity_report import ROUGH_TOLERANCE, encode_nonfinite
from .._format.printing import escape_unprintable
from .._progress import ProgressCallback
from .bundle import Bundle
from .bundle_files import SAVED_MODEL_FOLDER
from .onnx_tensors import OnnxGraph
from .untrusted_input import read_golden_cases

if TYPE_CHECKING:
    from .saved_model_tensors import SavedGraph

MAX_PERMUTED_AXES = 5  # 5 axes have 120 orders, 6 axes 720
ComparisonRow = dict[str, Any]  # as returned by `compare`
LAYOUT_OPS = {"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"}
# Magnitudes from which a float counts as the fill value of a mask: Keras fills with -1e9, and with -3e4 in float16.
MIN_FILL, MIN_FLOAT16_FILL = 1e8, 3e4


@dataclass(frozen=True)
class TensorDifference:
    """Difference of a tensor between the ONNX graph and the SavedModel, in the case with the largest difference."""

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
    """Largest differences among the tensors of a layer."""

    layer: str
    tensors: int
    differing: int
    max_abs: float
    max_rel: float


@dataclass(frozen=True)
class DivergenceReport:
    """First difference between two graphs, and the largest differences of each layer.

    Attributes:
        cases: Names of the compared cases.
        layers: One summary for each layer, in the order of the graph.
        first: The first origin of a differing output; `None` if no output differs.
        finding: The result in a sentence.
        operators: Types of the ONNX operators from the nearest tensors that agree to `first`, inclusive.
    """

    cases: tuple[str, ...]
    layers: tuple[LayerSummary, ...]
    first: TensorDifference | None
    finding: str
    operators: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the content in the types of JSON, with strings for infinite differences and NaN."""
        content: dict[str, Any] = encode_nonfinite(asdict(self))
        return content


def find_first_difference(
    bundle: Bundle,
    cases: Iterable[str],
    tolerance: Mapping[str, float],
    *,
    provider: str = "cpu",
    on_step: ProgressCallback = lambda _: None,
    stored_cases: Sequence[Case] | None = None,
) -> DivergenceReport:
    """Run both graphs on golden cases, compare tensors of the same name, and report the first difference.

    Args:
        bundle: An opened bundle.
        cases: Names of the cases to run.
        tolerance: {"relative", "absolute"} as in `compare`, for every tensor.
        provider: The provider that runs the ONNX graph.
        on_step: Progress callback that receives the name of each step.
        stored_cases: The cases to select from; `None` for the golden cases of the bundle.

    Raises:
        ExportError: If TensorFlow or onnx is not installed, or a graph does not run.
        BundleError: If the SavedModel is missing or cannot be loaded.
    """
    names = set(cases)
    stored_cases = read_golden_cases(bundle.path, bundle.entries) if stored_cases is None else stored_cases
    selected_cases = [case for case in stored_cases if case.name in names]
    on_step("Loading TensorFlow and the SavedModel")
    saved = _load_saved_graph(bundle)
    graph = OnnxGraph(bundle.path / MODEL)
    versions = {name: graph.find_versions(name) for name in graph.tensors if name in saved.tensors}
    weights = graph.read_weights(versions)
    worst_rows: dict[str, ComparisonRow] = {}  # by tensor
    output_rows: list[ComparisonRow] = []  # SavedModel against golden outputs
    with tempfile.TemporaryDirectory() as scratch:
        on_step(f"Comparing {len(versions)} tensors in {len(selected_cases)} cases")
        session = graph.session(itertools.chain.from_iterable(versions.values()), provider, Path(scratch))
        for case in selected_cases:
            reference = saved.run(case.inputs, {*versions, *case.outputs})
            arrays = weights | run_session(session, case.inputs)
            candidates = {
                name: [arrays[version] for version in versions[name] if version in arrays] for name in versions
            }
            output_rows += compare(case, {name: reference[name] for name in case.outputs}, tolerance)
            for row in _compare_case(case, reference, candidates, tolerance):
                worst_rows[row["name"]] = max(worst_rows.get(row["name"], row), row, key=_get_severity)
    tensors, origins = _trace_divergence(graph, worst_rows, [spec.name for spec in bundle.entries.outputs])
    differences = [
        _build_difference(worst_rows[name], saved)
        for name in versions
        if name in worst_rows and (worst_rows[name]["passed"] or name in tensors)
    ]
    case_names = tuple(case.name for case in selected_cases)
    layers = tuple(_summarize_layers(differences, saved.tensors))
    origin = next((difference for difference in differences if difference.tensor in origins), None)
    if origin is None:
        return DivergenceReport(case_names, layers, None, _describe_agreement(output_rows))
    ops, sources = _find_unmatched_ops(graph, origin.tensor, worst_rows, saved)
    own_ops = (graph.ops[name] for name in versions[origin.tensor] if name in graph.ops)
    return DivergenceReport(case_names, layers, origin, _describe_difference(origin, ops, sources), (*ops, *own_ops))


def format_layers(layers: Iterable[LayerSummary], origin: TensorDifference | None) -> list[str]:
    """Return the lines of a table of layers in plain text."""
    table = [("layer", "tensors", "max abs", "max rel", "")]
    for row in layers:
        verdict = f"{row.differing} of them differ" if row.differing else "ok"
        if origin is not None and row.layer == origin.layer:
            verdict += ", the first is here"
        table.append(
            (escape_unprintable(row.layer), str(row.tensors), f"{row.max_abs:.1e}", f"{row.max_rel:.1e}", verdict)
        )
    widths = [max(len(line[column]) for line in table) for column in range(4)]
    lines = [[*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[4]] for row in table]
    return ["  ".join(line).rstrip() for line in lines]


def _load_saved_graph(bundle: Bundle) -> SavedGraph:
    if not (folder := bundle.path / SAVED_MODEL_FOLDER).is_dir():
        raise BundleError(
            f"{bundle.path} has no {SAVED_MODEL_FOLDER}, whose tensors are compared. Export the model with it."
        )
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    with require_extra("export", "Finding the first difference"):
        from .saved_model_tensors import SavedGraph
    layers = [part for layer in bundle.entries.layers for part in layer["name"].split("/")]
    return SavedGraph(folder, bundle.entries.model, layers)


def _compare_case(
    case: Case,
    reference: Mapping[str, np.ndarray],
    candidates: Mapping[str, list[np.ndarray]],
    tolerance: Mapping[str, float],
) -> Iterator[ComparisonRow]:
    """Yield the comparison of each tensor of the SavedModel with its best match among the tensors of the ONNX graph."""
    tolerance = {name: max(value, ROUGH_TOLERANCE[name]) for name, value in tolerance.items()}
    padding = _find_padding(reference, candidates, tolerance)
    for name, arrays in candidates.items():
        expected = reference[name]
        if name not in case.outputs:  # no later mask excludes padding of an output
            arrays = [_zero_padding(array, expected.shape, padding) for array in arrays]
            expected = _zero_padding(expected, expected.shape, padding)
        row = _find_best_match(case.name, name, expected, arrays, tolerance)
        if row is not None:
            yield row


def _find_padding(
    reference: Mapping[str, np.ndarray], candidates: Mapping[str, list[np.ndarray]], tolerance: Mapping[str, float]
) -> dict[int, np.ndarray]:
    """Return a mask of the padding rows that only the SavedModel sets to zero, by number of rows n, with shape (n,)."""
    # The ONNX file keeps values in padding that a mask excludes later, and tensors computed from these rows differ too.
    # A row is padding if a tensor is zero in it only in the SavedModel, and agrees in all other rows.
    padding: dict[int, np.ndarray] = {}
    limits = {"rtol": tolerance["relative"], "atol": tolerance["absolute"]}
    for name, arrays in candidates.items():
        expected = _reshape_to_rows(reference[name])
        for array in arrays:
            rows = _reshape_to_rows(array)
            is_comparable = array.shape == reference[name].shape and array.dtype == reference[name].dtype
            if expected is None or rows is None or not is_comparable:
                continue
            zeroed = ~expected.any(-1) & rows.any(-1)
            if zeroed.any() and arrays_match(rows[~zeroed], expected[~zeroed], **limits):
                padding[len(rows)] = padding.get(len(rows), np.zeros(len(rows), bool)) | zeroed
    return padding


def _zero_padding(array: np.ndarray, shape: tuple[int, ...], padding: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return an array of shape `shape` with zeros in padding rows; an array of another shape unchanged."""
    rows = _reshape_to_rows(array)
    if rows is None or array.shape != shape or len(rows) not in padding:
        return array
    return np.where(padding[len(rows)][:, None], 0, rows).astype(array.dtype).reshape(shape)


def _reshape_to_rows(array: np.ndarray) -> np.ndarray | None:
    """Return floats of shape (..., d) as (rows, d); `None` for integers, vectors and empty arrays."""
    if array.dtype.kind != "f" or array.ndim < 2 or not array.size:
        return None
    return array.reshape(-1, array.shape[-1])


def _find_best_match(
    case: str, name: str, expected: np.ndarray, arrays: list[np.ndarray], tolerance: Mapping[str, float]
) -> ComparisonRow | None:
    """Return the row of `compare` for the array and order of axes with the smallest difference, or `None`."""
    if expected.dtype.kind not in "biuf":
        return None
    reference = Case(case, {}, {name: _replace_fill_by_infinity(expected)}, {})
    rows = [
        compare(reference, {name: _replace_fill_by_infinity(transposed).astype(expected.dtype)}, tolerance)[0]
        for array in arrays
        if array.dtype.kind in "biuf"
        for transposed in _permute_axes(array, expected.shape)
    ]
    return min(rows, key=_get_severity, default=None)


def _replace_fill_by_infinity(array: np.ndarray) -> np.ndarray:
    """Replace fill values of masks in floats by infinity of the same sign."""
    if array.dtype.kind != "f":
        return array
    is_fill = np.abs(array) >= (MIN_FLOAT16_FILL if array.dtype == np.float16 else MIN_FILL)
    return np.where(is_fill, np.copysign(array.dtype.type(np.inf), array), array)


def _permute_axes(array: np.ndarray, shape: tuple[int, ...]) -> Iterator[np.ndarray]:
    """Yield the array with its axes in each order that results in `shape`."""
    axes = tuple(range(array.ndim))
    orders = itertools.permutations(axes) if array.ndim <= MAX_PERMUTED_AXES else [axes]
    for order in orders:
        if tuple(array.shape[axis] for axis in order) == shape:
            yield array.transpose(order)


def _get_severity(row: Mapping[str, Any]) -> tuple[bool, float]:
    return not row["passed"], row["max_rel"]


def _trace_divergence(
    graph: OnnxGraph, worst_rows: Mapping[str, ComparisonRow], outputs: list[str]
) -> tuple[set[str], set[str]]:
    """Return the differing tensors with a path of differing tensors to an output, and the origins among them."""
    tensors: set[str] = set()
    origins: set[str] = set()
    pending = [name for name in outputs if name in worst_rows and not worst_rows[name]["passed"]]
    while pending:
        name = pending.pop()
        if name in tensors:
            continue
        tensors.add(name)
        sources = [source for source in _find_ancestors(graph, name, worst_rows) if source in worst_rows]
        differing = [source for source in sources if not worst_rows[source]["passed"]]
        pending += differing
        if not differing:
            origins.add(name)
    layout_only = {name for name in origins if _is_layout_only(graph, name, worst_rows)}
    return (tensors, origins) if layout_only == origins else (tensors - layout_only, origins - layout_only)


def _find_ancestors(graph: OnnxGraph, name: str, compared: Mapping[str, Any]) -> Iterator[str]:
    """Yield the ancestors of a tensor, up to and including the nearest compared tensors."""
    visited: set[str] = set()
    pending = list(graph.sources.get(name, ()))
    while pending:
        source = pending.pop()
        if source not in visited:
            visited.add(source)
            yield source
            pending += () if source in compared else graph.sources.get(source, ())


def _build_difference(row: Mapping[str, Any], saved: SavedGraph) -> TensorDifference:
    measures = {key: row[key] for key in ("case", "dtype", "max_abs", "max_rel", "passed")}
    return TensorDifference(row["name"], saved.find_layer(row["name"]), shape=tuple(row["shape"]), **measures)


def _summarize_layers(differences: list[TensorDifference], order: Iterable[str]) -> Iterator[LayerSummary]:
    """Yield a summary of each layer, sorted by the last tensor of the layer in `order`."""
    # `order` is that of Keras's graph: tf2onnx moves operators.
    differences_by_tensor = {difference.tensor: difference for difference in differences}
    layers: dict[str, list[TensorDifference]] = {}
    for name in reversed(list(order)):
        if name in differences_by_tensor:
            layers.setdefault(differences_by_tensor[name].layer, []).append(differences_by_tensor[name])
    for layer, tensors in reversed(layers.items()):
        max_abs = max(tensor.max_abs for tensor in tensors)
        max_rel = max(tensor.max_rel for tensor in tensors)
        num_failed = sum(not tensor.passed for tensor in tensors)
        yield LayerSummary(layer, len(tensors), num_failed, max_abs=max_abs, max_rel=max_rel)


def _find_unmatched_ops(
    graph: OnnxGraph, name: str, compared: Mapping[str, Any], saved: SavedGraph
) -> tuple[list[str], dict[str, None]]:
    """Return the unmatched operators directly above a tensor, and the layers of the compared tensors above them."""
    ancestors = list(_find_ancestors(graph, name, compared))
    ops = [graph.ops[source] for source in reversed(ancestors) if source not in compared and source in graph.ops]
    computed = (source for source in ancestors if source in compared and source in graph.ops)
    return ops, dict.fromkeys(f"`{saved.find_layer(source)}`" for source in computed)


def _is_layout_only(graph: OnnxGraph, name: str, compared: Mapping[str, Any]) -> bool:
    """Return True if layout operators alone compute a tensor from compared tensors."""
    path = [name, *(source for source in _find_ancestors(graph, name, compared) if source not in compared)]
    ops = {graph.ops[tensor] for tensor in path if tensor in graph.ops}
    return bool(ops) and ops <= LAYOUT_OPS


def _describe_difference(origin: TensorDifference, ops: list[str], layers: Iterable[str]) -> str:
    size = f"max abs {origin.max_abs:.1e}, max rel {origin.max_rel:.1e}"
    finding = (
        f"The first tensor that differs is in layer `{origin.layer}`: `{origin.tensor}` "
        f"({origin.dtype}, shape {origin.shape}, {size}, case `{origin.case}`)."
    )
    if ops:
        sources = ", ".join(layers) or "the inputs"
        finding += f" Its inputs agree (from {sources}); between them are {', '.join(ops)}, which cannot be compared."
    return finding


def _describe_agreement(output_rows: list[dict[str, Any]]) -> str:
    if not all(row["passed"] for row in output_rows):
        return (
            "No output of the ONNX file differs from the SavedModel, but the golden outputs do. So "
            "parity/cases.npz or saved_model/ is from another export. Export the model again."
        )
    return (
        "No tensor differs when onnxruntime returns every tensor, which prevents the fusion of nodes. So the "
        "difference comes from the graph optimizations of onnxruntime."
    )
