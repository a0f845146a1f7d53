"""Fold what a graph does to a weight alone: tf2onnx lays constants out as an operator wants them, but not inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np
import onnx
from onnx import helper, numpy_helper

from .edits import drop_unread, keep, refill
from .traced import Weights
from .walk import graphs_in, names_used


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
        elif first in arrays and node.op_type in _FOLDS and constants.keys() >= {*rest} and made not in outputs:
            arrays[made] = _FOLDS[node.op_type](arrays[first], node, *(constants[name] for name in rest))
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
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
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
        if node.op_type in _FOLDS and constants.keys() >= {*node.input} and node.output[0] not in outputs:
            first, *rest = (numpy_helper.to_array(constants[name]) for name in node.input)
            made = numpy_helper.from_array(_FOLDS[node.op_type](first, node, *rest), node.output[0])
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


def _transposed(array: np.ndarray, node: onnx.NodeProto) -> np.ndarray:
    return array.transpose(next((list(each.ints) for each in node.attribute if each.name == "perm"), None))


def _reshaped(array: np.ndarray, node: onnx.NodeProto, shape: np.ndarray) -> np.ndarray:
    return array.reshape([size or array.shape[axis] for axis, size in enumerate(shape.tolist())])  # 0: as it is


def _squeezed(array: np.ndarray, node: onnx.NodeProto, axes: np.ndarray | None = None) -> np.ndarray:
    return array.squeeze(None if axes is None else tuple(axes.tolist()))


def _unsqueezed(array: np.ndarray, node: onnx.NodeProto, axes: np.ndarray) -> np.ndarray:
    return np.expand_dims(array, tuple(axes.tolist()))


_FOLDS: dict[str, Callable[..., np.ndarray]] = {
    "Reshape": _reshaped,
    "Squeeze": _squeezed,
    "Transpose": _transposed,
    "Unsqueeze": _unsqueezed,
}
