"""Fold reshapes and transposes of weights and constants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .._onnx.graph_edits import drop_unread, keep, refill, rename_reads
from .._onnx.traced_model import Traced, Weights
from .._onnx.traversal import graphs_in, names_used

_LAYOUT_OPS = {"Reshape", "Squeeze", "Transpose", "Unsqueeze"}


class _FoldedWeight(NamedTuple):
    """A weight in one layout; `origin` is the name of the weight."""

    array: np.ndarray
    origin: str


def fold_weights(traced: Traced) -> bool:
    """Fold, as a pass, shapes and layouts of weights, and drop unread weights; a weight in one layout keeps its name.

    The weights are inputs of the graph before and after.
    """
    graph, before = traced.model.graph, traced.weights
    sizes = len(graph.node), len(graph.initializer)
    folded = _fold_layouts(graph, {name: _FoldedWeight(array, name) for name, array in before.items()})
    used = {*names_used(graph)}
    keep(graph.initializer, lambda constant: constant.name in used)
    folded = {name: weight for name, weight in folded.items() if name in used}
    origins = _names_to_restore(graph, folded)
    rename_reads(graph, origins)
    traced.weights = {origins.get(name, name): weight.array for name, weight in folded.items()}
    _declare(graph, before, traced.weights)
    return (len(graph.node), len(graph.initializer)) != sizes or traced.weights.keys() != before.keys()


def fold_bodies(traced: Traced) -> bool:
    """Fold, as a pass, layouts of constants in bodies and branches, where the constants were state to tf2onnx."""
    graph = traced.model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    is_changed = any([_fold_body(inner, constants) for node in graph.node for inner in graphs_in(node)])
    return drop_unread(graph) or is_changed


def _fold_layouts(graph: onnx.GraphProto, folded: dict[str, _FoldedWeight]) -> dict[str, _FoldedWeight]:
    """Remove the nodes that compute shapes and layouts of weights, and return the weights and their layouts by name."""
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    outputs = {value.name for value in graph.output}
    remaining = []
    for node in graph.node:
        weight = folded.get(node.input[0]) if node.input else None
        output = node.output[0]
        if weight and node.op_type == "Shape" and not node.attribute:
            constants[output] = np.array(weight.array.shape, np.int64)
            graph.initializer.append(numpy_helper.from_array(constants[output], output))
        elif weight and _is_foldable(node, {*constants, node.input[0]}, outputs):
            others = [constants[name] for name in node.input[1:]]
            folded[output] = _FoldedWeight(_evaluate(node, weight.array, *others), weight.origin)
        else:
            remaining.append(node)
    refill(graph.node, remaining)
    return folded


def _names_to_restore(graph: onnx.GraphProto, folded: Mapping[str, _FoldedWeight]) -> dict[str, str]:
    """Return the name of the weight by the name of each layout that is the only one, and that no subgraph reads."""
    num_layouts = Counter(weight.origin for weight in folded.values())
    inner_names = {name for node in graph.node for inner in graphs_in(node) for name in names_used(inner)}
    return {
        name: weight.origin
        for name, weight in folded.items()
        if num_layouts[weight.origin] == 1 and name not in inner_names
    }


def _fold_body(body: onnx.GraphProto, outer_constants: Mapping[str, onnx.TensorProto]) -> bool:
    constants = {**outer_constants, **{tensor.name: tensor for tensor in body.initializer}}
    outputs = {value.name for value in body.output}
    is_changed = False
    remaining = []
    for node in body.node:
        if _is_foldable(node, constants, outputs):
            arrays = (numpy_helper.to_array(constants[name]) for name in node.input)
            tensor = numpy_helper.from_array(_evaluate(node, *arrays), node.output[0])
            body.initializer.append(tensor)
            constants[tensor.name] = tensor
            is_changed = True
        else:
            is_changed |= any([_fold_body(inner, constants) for inner in graphs_in(node)])
            remaining.append(node)
    refill(body.node, remaining)
    return is_changed


def _is_foldable(node: onnx.NodeProto, constants: Collection[str], outputs: Collection[str]) -> bool:
    """Return whether a node lays out constants, and its result is no output of the graph."""
    if node.op_type not in _LAYOUT_OPS or node.output[0] in outputs:
        return False
    return all(name in constants for name in node.input)


def _declare(graph: onnx.GraphProto, before: Weights, after: Weights) -> None:
    """Replace the weights among the inputs of a graph."""
    inputs = [value for value in graph.input if value.name not in before]
    for name, array in after.items():
        inputs.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape))
    refill(graph.input, inputs)


def _evaluate(node: onnx.NodeProto, *arrays: np.ndarray) -> np.ndarray:
    """Return the result of a node for constants: a view of the first array, which may be large."""
    outputs: list[np.ndarray] = ReferenceEvaluator(node).run(None, dict(zip(node.input, arrays, strict=True)))
    return outputs[0]
