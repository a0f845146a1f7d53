"""Embedding tables in int8: rows of integers with a scale each, which become floats after the lookup."""

from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .._errors import ExportError
from .._onnx.graph_edits import keep, refill
from .._onnx.graph_index import attribute
from .._onnx.traced_model import Traced, Weights
from .._onnx.traversal import all_graphs, all_nodes, names_used

MIN_SAVED_BYTES = 8192  # several times the 1 kB that the three nodes of a lookup add with their names
INTEGER_SUFFIX, SCALE_SUFFIX = "row_int8", "row_scale"  # suffixes of the names of constants


def collect_constants(traced: Traced) -> Weights:
    """Return the constants of a model by name: its initializers, and its weights beside the graph."""
    return {
        **traced.weights,
        **{tensor.name: numpy_helper.to_array(tensor) for tensor in traced.model.graph.initializer},
    }


def is_lookup(node: onnx.NodeProto, constants: Weights) -> bool:
    """Return True if a node reads rows of a finite float32 table of which int8 saves `MIN_SAVED_BYTES`."""
    if node.op_type not in ("Gather", "Slice") or (table := constants.get(node.input[0])) is None:
        return False
    reads_rows = attribute(node, "axis", 0) == 0
    if node.op_type == "Slice":  # of positions; the column of scales can only be sliced from 0
        start, axes = (constants.get(name) for name in (node.input[1], [*node.input, ""][3]))
        slices_only_rows = start is not None and not start[1:].any() and len(node.input) == 3
        reads_rows = slices_only_rows or (axes is not None and axes.tolist() == [0])
    if not reads_rows or table.dtype != np.float32 or table.ndim != 2:
        return False
    return len(table) * (3 * table.shape[1] - 4) >= MIN_SAVED_BYTES and bool(
        np.isfinite(_compute_row_scales(table)).all()
    )


def quantize_tables(traced: Traced, names: Collection[str] | None = None) -> Traced:
    """Return a model, changed in place, with int8 tables where only lookups read the float32 table.

    Args:
        traced: The model.
        names: Names of the lookups that may read integers, if not all may, and of products that will.
    """
    graph, weights, constants = traced.model.graph, dict(traced.weights), collect_constants(traced)
    graphs, tables = [*all_graphs(graph)], set[str]()
    float_reads = {value.name for subgraph in graphs for value in subgraph.output}
    for node in all_nodes(graph):
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
    for subgraph in reversed(graphs):  # bodies are copied with the graph around them
        if any(node.input and node.input[0] in tables for node in subgraph.node):
            refill(subgraph.node, (new for node in subgraph.node for new in _dequantize_lookup(node, tables)))
    unread = tables - {*names_used(graph)}
    keep(graph.initializer, lambda tensor: tensor.name not in unread)
    return replace(traced, weights=weights)


def check_tables(source: Traced, converted: Traced) -> None:
    """Raise ExportError if an int8 table differs from the float32 table of its source by more than half a step."""
    tables, constants = collect_constants(source), collect_constants(converted)
    for name in (name for name in tables if f"{name}/{INTEGER_SUFFIX}" in constants):
        table, restored = tables[name], constants[f"{name}/{INTEGER_SUFFIX}"] * constants[f"{name}/{SCALE_SUFFIX}"]
        if damaged_count := np.count_nonzero(
            np.abs(restored - table) > 0.5001 * _compute_row_scales(table)
        ):  # float32 rounds too
            damage = f"{damaged_count:,} of its {table.size:,} values are wrong"
            raise ExportError(
                f"The conversion to int8 damaged table `{name}`: {damage}. Please report it with the model."
            )


def _dequantize_lookup(node: onnx.NodeProto, tables: Collection[str]) -> list[onnx.NodeProto]:
    """Return the nodes of a lookup in an int8 table; the node itself if it reads no such table."""
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
    """Return max |x| / 127 of each row as a column, at least the smallest normal number; NaN for a row with NaN."""
    largest = np.maximum(table.max(1, keepdims=True), -table.min(1, keepdims=True))
    scales: np.ndarray = np.maximum(largest / np.float32(127), np.finfo(np.float32).tiny)
    return scales
