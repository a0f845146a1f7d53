"""Embedding tables in int8: a scale for each row, and dequantization after the lookup.

For a row w: scale = max |w| / 127, integers = round(w / scale). The quantization is symmetric, so it needs no zero
point, and each element is off by at most half a step. A lookup gathers integers and scales, casts, and multiplies. With
one scale for the table, as in onnxruntime's quantizer, the probabilities of a classifier of 20,000 words changed by up
to 0.02; with a scale for each row, by up to 0.007 (docs/export.md).
"""

from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .._errors import ExportError
from .._onnx.graph_edits import filter_in_place, replace_items
from .._onnx.graph_index import get_int_attribute
from .._onnx.traced_model import TracedModel, Weights
from .._onnx.traversal import iter_graphs, iter_nodes, iter_used_names

MIN_SAVED_BYTES = 8192  # several times the 1 kB for the three additional nodes of a lookup, with their names
INTEGER_SUFFIX, SCALE_SUFFIX = "row_int8", "row_scale"  # of the names of constants


def collect_constants(traced: TracedModel) -> Weights:
    """Return the initializers and the external weights of a model, by name."""
    return {
        **traced.weights,
        **{tensor.name: numpy_helper.to_array(tensor) for tensor in traced.model.graph.initializer},
    }


def is_lookup(node: onnx.NodeProto, constants: Weights) -> bool:
    """Return True if a node reads rows of a finite float32 table, and int8 saves at least `MIN_SAVED_BYTES`."""
    if node.op_type not in ("Gather", "Slice") or (table := constants.get(node.input[0])) is None:
        return False
    reads_rows = get_int_attribute(node, "axis", 0) == 0
    if node.op_type == "Slice":  # of position embeddings
        # The slice is applied to the scales too, whose only column has index 0.
        start, axes = (constants.get(name) for name in (node.input[1], [*node.input, ""][3]))
        slices_only_rows = start is not None and not start[1:].any() and len(node.input) == 3
        reads_rows = slices_only_rows or (axes is not None and axes.tolist() == [0])
    if not reads_rows or table.dtype != np.float32 or table.ndim != 2:
        return False
    saved_bytes = len(table) * (3 * table.shape[1] - 4)  # 4 bytes become 1, and a row needs 4 for its scale
    return saved_bytes >= MIN_SAVED_BYTES and bool(np.isfinite(_compute_row_scales(table)).all())


def quantize_tables(traced: TracedModel, names: Collection[str] | None = None) -> TracedModel:
    """Replace, in place, float32 tables that only lookups read by int8 tables; return the model.

    `names` has the lookups that may read int8 tables, and the products that will be quantized; `None` for all lookups.
    """
    graph, weights, constants = traced.model.graph, dict(traced.weights), collect_constants(traced)
    graphs, tables = [*iter_graphs(graph)], set[str]()
    float_reads = {value.name for subgraph in graphs for value in subgraph.output}
    for node in iter_nodes(graph):
        may_be_int8 = names is None or node.name in names
        if may_be_int8 and is_lookup(node, constants):
            tables.add(node.input[0])
            float_reads.update(node.input[1:])
        elif names is None or not may_be_int8:
            float_reads.update(node.input)
    tables -= float_reads
    for name in sorted(tables):
        scales = _compute_row_scales(constants[name])
        integers = np.rint(constants[name] / scales).astype(np.int8)
        arrays = {f"{name}/{INTEGER_SUFFIX}": integers, f"{name}/{SCALE_SUFFIX}": scales}
        if weights.pop(name, None) is not None:
            weights |= arrays
        else:
            graph.initializer.extend(numpy_helper.from_array(array, key) for key, array in arrays.items())
    for subgraph in reversed(graphs):  # inner graphs first, because `replace_items` copies nodes with their subgraphs
        if any(node.input and node.input[0] in tables for node in subgraph.node):
            replace_items(subgraph.node, (new for node in subgraph.node for new in _dequantize_lookup(node, tables)))
    unread = tables - {*iter_used_names(graph)}
    filter_in_place(graph.initializer, lambda tensor: tensor.name not in unread)
    return replace(traced, weights=weights)


def check_tables(source: TracedModel, converted: TracedModel) -> None:
    """Raise `ExportError` if an int8 table differs from its float32 table by more than half a quantization step."""
    tables, constants = collect_constants(source), collect_constants(converted)
    for name in (name for name in tables if f"{name}/{INTEGER_SUFFIX}" in constants):
        table, restored = tables[name], constants[f"{name}/{INTEGER_SUFFIX}"] * constants[f"{name}/{SCALE_SUFFIX}"]
        # Slightly more than half a step, because dividing and multiplying by the scale round in float32.
        if damaged_count := np.count_nonzero(np.abs(restored - table) > 0.5001 * _compute_row_scales(table)):
            damage = f"{damaged_count:,} of its {table.size:,} values are wrong"
            raise ExportError(
                f"The conversion to int8 damaged table `{name}`: {damage}. Please report it with the model."
            )


def _dequantize_lookup(node: onnx.NodeProto, tables: Collection[str]) -> list[onnx.NodeProto]:
    """Return the nodes of a lookup in an int8 table; any other node unchanged."""
    if not node.input or node.input[0] not in tables:
        return [node]
    lookups = [deepcopy(node), deepcopy(node)]
    for lookup, suffix in zip(lookups, (INTEGER_SUFFIX, SCALE_SUFFIX), strict=True):
        lookup.input[0] = f"{node.input[0]}/{suffix}"
        lookup.output[0] = lookup.name = f"{node.output[0]}/{suffix}/{node.op_type}"
    floats = f"{lookups[0].name}/Cast"
    cast = helper.make_node("Cast", lookups[0].output, [floats], name=floats, to=TensorProto.FLOAT)
    product = helper.make_node("Mul", [floats, *lookups[1].output], node.output, name=node.name)
    return [*lookups, cast, product]


def _compute_row_scales(table: np.ndarray) -> np.ndarray:
    """Return max |x| / 127 of each row of a table (n, d), with shape (n, 1); NaN for a row with NaN."""
    max_abs = np.maximum(table.max(1, keepdims=True), -table.min(1, keepdims=True))
    # A row of zeros gets the smallest normal number: its elements are divided by the scale.
    scales: np.ndarray = np.maximum(max_abs / np.float32(127), np.finfo(np.float32).tiny)
    return scales
