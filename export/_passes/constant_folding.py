"""Fold reshapes and transposes of weights and constants."""

# Large weights are inputs of the traced graph (`weight_inputs.py`), and tf2onnx's optimizers fold constants only. So
# layout operators of weights remain: `Shape`, `Reshape`, `Squeeze`, `Transpose`, `Unsqueeze`. They are folded at any
# size: the results are views, and a weight is stored once for each layout that is read, usually one.

from collections import Counter
from collections.abc import Collection, Mapping
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from .._onnx.graph_edits import filter_in_place, remove_dead_nodes, rename_inputs, replace_items
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import iter_subgraphs, iter_used_names

_LAYOUT_OPS = {"Reshape", "Squeeze", "Transpose", "Unsqueeze"}


class _FoldedWeight(NamedTuple):
    """A weight in one layout; `origin` is the name of the weight before folding."""

    array: np.ndarray
    origin: str


def fold_weights(traced: TracedModel) -> bool:
    """Fold shapes and layouts of weights, which are inputs of the graph, and remove unread weights."""
    graph, weights = traced.model.graph, traced.weights
    counts = len(graph.node), len(graph.initializer)
    folded = _fold_layouts(graph, {name: _FoldedWeight(array, name) for name, array in weights.items()})
    used_names = {*iter_used_names(graph)}
    filter_in_place(graph.initializer, lambda constant: constant.name in used_names)
    folded = {name: weight for name, weight in folded.items() if name in used_names}
    # A weight with one layout keeps its name, unless a subgraph uses it: `rename_inputs` skips outputs of subgraphs.
    num_layouts = Counter(weight.origin for weight in folded.values())
    inner_names = {name for node in graph.node for inner in iter_subgraphs(node) for name in iter_used_names(inner)}
    renamable = {name for name, weight in folded.items() if num_layouts[weight.origin] == 1} - inner_names
    names = {name: folded[name].origin for name in renamable}
    rename_inputs(graph, names)
    traced.weights = {names.get(name, name): weight.array for name, weight in folded.items()}
    filter_in_place(graph.input, lambda value: value.name not in weights)
    for name, array in traced.weights.items():
        elem_type = helper.np_dtype_to_tensor_dtype(array.dtype)
        graph.input.append(helper.make_tensor_value_info(name, elem_type, array.shape))
    return (len(graph.node), len(graph.initializer)) != counts or traced.weights.keys() != weights.keys()


def fold_subgraphs(traced: TracedModel) -> bool:
    """Fold layouts of constants in loop bodies and branches, which were loop state to tf2onnx."""
    graph = traced.model.graph
    constants = {tensor.name: tensor for tensor in graph.initializer}
    is_changed = any([_fold_subgraph(inner, constants) for node in graph.node for inner in iter_subgraphs(node)])
    return remove_dead_nodes(graph) or is_changed


def _fold_layouts(graph: onnx.GraphProto, folded: dict[str, _FoldedWeight]) -> dict[str, _FoldedWeight]:
    """Remove the nodes that compute shapes and layouts of weights; return all layouts, by name of the tensor."""
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
            shape_arguments = [constants[name] for name in node.input[1:]]
            folded[output] = _FoldedWeight(_evaluate(node, weight.array, *shape_arguments), weight.origin)
        else:
            remaining.append(node)
    replace_items(graph.node, remaining)
    return folded


def _fold_subgraph(body: onnx.GraphProto, outer_constants: Mapping[str, onnx.TensorProto]) -> bool:
    constants = {**outer_constants, **{tensor.name: tensor for tensor in body.initializer}}
    outputs = {value.name for value in body.output}
    remaining = []
    for node in body.node:
        if _is_foldable(node, constants, outputs):
            arrays = (numpy_helper.to_array(constants[name]) for name in node.input)
            constants[node.output[0]] = numpy_helper.from_array(_evaluate(node, *arrays), node.output[0])
            body.initializer.append(constants[node.output[0]])
        else:
            remaining.append(node)
    is_changed = len(remaining) < len(body.node)
    is_changed |= any([_fold_subgraph(inner, constants) for node in remaining for inner in iter_subgraphs(node)])
    replace_items(body.node, remaining)
    return is_changed


def _is_foldable(node: onnx.NodeProto, constants: Collection[str], outputs: Collection[str]) -> bool:
    """Return True if a node is a layout operator on constants, and its result is not an output of the graph."""
    if node.op_type not in _LAYOUT_OPS or node.output[0] in outputs:
        return False
    return all(name in constants for name in node.input)


def _evaluate(node: onnx.NodeProto, *arrays: np.ndarray) -> np.ndarray:
    """Return the result of a layout operator, a view of the first array."""
    outputs: list[np.ndarray] = ReferenceEvaluator(node).run(None, dict(zip(node.input, arrays, strict=True)))
    return outputs[0]
