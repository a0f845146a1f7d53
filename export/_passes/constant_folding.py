"""Fold reshapes and transposes of weights and constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .._onnx.graph_edits import drop_unread, keep, refill, rename_reads
from .._onnx.traced_model import Weights
from .._onnx.traversal import graphs_in, names_used

_LAY_OUT = {"Reshape", "Squeeze", "Transpose", "Unsqueeze"}


def folded(graph: onnx.GraphProto, weights: Weights) -> Weights:
    """Return the weights of a graph as its operators take them; what only lays them out goes, in place.

    Args:
        graph: A graph, among whose inputs are the weights: so it is afterwards.
        weights: The weights by name. One that is laid out in one way keeps its name.
    """
    constants = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    outputs = {value.name for value in graph.output}
    arrays, origins = dict(weights), {name: name for name in weights}
    kept = []
    for node in graph.node:
        first, made, rest = node.input[0] if node.input else "", node.output[0], node.input[1:]
        if first in arrays and node.op_type == "Shape" and not node.attribute:
            constants[made] = np.array(arrays[first].shape, np.int64)
            graph.initializer.append(numpy_helper.from_array(constants[made], made))
        elif first in arrays and node.op_type in _LAY_OUT and constants.keys() >= {*rest} and made not in outputs:
            arrays[made] = _laid_out(node, arrays[first], *(constants[name] for name in rest))
            origins[made] = origins[first]
        else:
            kept.append(node)
    refill(graph.node, kept)
    used = {*names_used(graph)}
    keep(graph.initializer, lambda constant: constant.name in used)
    arrays = {name: array for name, array in arrays.items() if name in used}
    layouts = Counter(origins[name] for name in arrays)
    within = {name for node in graph.node for inner in graphs_in(node) for name in names_used(inner)}
    names = {name: origins[name] for name in arrays if layouts[origins[name]] == 1 and name not in within}
    rename_reads(graph, names)
    arrays = {names.get(name, name): array for name, array in arrays.items()}
    _declare(graph, weights, arrays)
    return arrays


def fold_in_bodies(graph: onnx.GraphProto) -> None:
    """Fold, in place, what loops and branches do to constants alone, which were state to tf2onnx."""
    constants = {each.name: each for each in graph.initializer}
    for node in graph.node:
        for inner in graphs_in(node):
            _fold(inner, constants)
    drop_unread(graph)


def _fold(body: onnx.GraphProto, around: Mapping[str, onnx.TensorProto]) -> None:
    constants = {**around, **{each.name: each for each in body.initializer}}
    outputs, kept = {value.name for value in body.output}, []
    for node in body.node:
        if node.op_type in _LAY_OUT and constants.keys() >= {*node.input} and node.output[0] not in outputs:
            arrays = (numpy_helper.to_array(constants[name]) for name in node.input)
            made = numpy_helper.from_array(_laid_out(node, *arrays), node.output[0])
            body.initializer.append(made)
            constants[made.name] = made
            continue
        for inner in graphs_in(node):
            _fold(inner, constants)
        kept.append(node)
    refill(body.node, kept)


def _declare(graph: onnx.GraphProto, before: Weights, after: Weights) -> None:
    inputs = [value for value in graph.input if value.name not in before]
    for name, array in after.items():
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    refill(graph.input, inputs)


def _laid_out(node: onnx.NodeProto, *arrays: np.ndarray) -> np.ndarray:
    """Return what a node makes of constants: a view of the first, which may be large."""
    found: list[np.ndarray] = ReferenceEvaluator(node).run(None, dict(zip(node.input, arrays, strict=True)))
    return found[0]
