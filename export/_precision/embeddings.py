"""Embedding tables in int8: rows of integers with a scale each, which become floats after the lookup."""

from __future__ import annotations

from collections.abc import Collection
from copy import deepcopy
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .._graphs.edits import keep, refill
from .._graphs.patterns import attribute
from .._graphs.traced import Traced, Weights
from .._graphs.walk import all_graphs, all_nodes

MIN_SAVED_BYTES = 8192  # several times the 1 kB that the three nodes of a lookup add with their names
INTEGERS, SCALES = "row_int8", "row_scale"  # suffixes of the names of constants
LARGEST = 127  # the range is symmetric, so that no zero point is needed


def constants_of(traced: Traced) -> Weights:
    """Return the constants of a model by name: its initializers, and its weights beside the graph."""
    return {**traced.weights, **{each.name: numpy_helper.to_array(each) for each in traced.model.graph.initializer}}


def is_lookup(node: onnx.NodeProto, constants: Weights) -> bool:
    """Tell whether a node reads rows of a finite float32 table of which int8 saves `MIN_SAVED_BYTES`."""
    if node.op_type not in ("Gather", "Slice") or (table := constants.get(node.input[0])) is None:
        return False
    takes_rows = attribute(node, "axis", 0) == 0
    if node.op_type == "Slice":  # of positions; the column of scales can only be sliced from 0
        start = constants.get(node.input[1])
        takes_rows = start is not None and not start[1:].any() and len(node.input) == 3
    if not takes_rows or table.dtype != np.float32 or table.ndim != 2:
        return False
    return len(table) * (3 * table.shape[1] - 4) >= MIN_SAVED_BYTES and bool(np.isfinite(_scales(table)).all())


def quantize_tables(traced: Traced, names: Collection[str] | None = None) -> Traced:
    """Return a model, changed in place, with int8 tables where only lookups read the float32 table.

    Args:
        traced: The model.
        names: Names of the lookups that may read integers, if not all may.
    """
    graph, weights, constants = traced.model.graph, dict(traced.weights), constants_of(traced)
    graphs, nodes = [*all_graphs(graph)], [*all_nodes(graph)]
    taken = [(names is None or node.name in names) and is_lookup(node, constants) for node in nodes]
    kept = {value.name for each in graphs for value in each.output}
    kept.update(name for node, is_taken in zip(nodes, taken, strict=True) for name in node.input[int(is_taken) :])
    tables = {node.input[0] for node, is_taken in zip(nodes, taken, strict=True) if is_taken} - kept
    for name in sorted(tables):
        scales = _scales(constants[name])
        integers = np.rint(constants[name] / scales).astype(np.int8)
        made = {f"{name}/{INTEGERS}": integers, f"{name}/{SCALES}": scales}
        if weights.pop(name, None) is not None:
            weights |= made
        else:
            graph.initializer.extend(numpy_helper.from_array(array, key) for key, array in made.items())
    keep(graph.initializer, lambda tensor: tensor.name not in tables)
    for each in reversed(graphs):  # bodies are copied with the graph around them
        if any(node.input and node.input[0] in tables for node in each.node):
            refill(each.node, (made for node in each.node for made in _dequantized(node, tables)))
    return replace(traced, weights=weights)


def _dequantized(node: onnx.NodeProto, tables: Collection[str]) -> list[onnx.NodeProto]:
    """Return nodes for: rows of integers, as floats, times their scales; the node itself if it reads no such table."""
    if not node.input or node.input[0] not in tables:
        return [node]
    output, rows = node.output[0], []
    for suffix in (INTEGERS, SCALES):
        rows.append(deepcopy(node))
        rows[-1].input[0] = f"{node.input[0]}/{suffix}"
        rows[-1].output[0] = rows[-1].name = f"{output}/{suffix}/{node.op_type}"
    (integers,), (scales,) = (each.output for each in rows)
    floats = f"{integers}/Cast"
    cast = helper.make_node("Cast", [integers], [floats], name=floats, to=TensorProto.FLOAT)
    return [*rows, cast, helper.make_node("Mul", [floats, scales], [output], name=node.name)]


def _scales(table: np.ndarray) -> np.ndarray:
    """Return max |x| / 127 of each row as a column, at least the smallest normal number; NaN of a row with NaN."""
    largest = np.maximum(table.max(1, keepdims=True), -table.min(1, keepdims=True))
    scales: np.ndarray = np.maximum(largest / np.float32(LARGEST), np.finfo(np.float32).tiny)
    return scales
