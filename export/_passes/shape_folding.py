"""Replace shape computations by constants, or by one `Shape` of a model input."""

# TensorFlow computes targets of reshapes, positions and masks from sizes that each layer reads from its own tensors.
# `symbolic_shapes.py` infers which sizes are static or a dim of an input. This pass replaces:
# - integers that are all static: by a constant;
# - one dim from a select operator: by `Shape` of one input. Positions and masks that depend on it are then equal nodes
#   in all layers, which onnxruntime merges;
# - `Shape` of a tensor that no node reads by value, such as an initial state: by a `Concat` of such sizes;
# - `Expand` and `Slice` that change nothing: by their input;
# - `Reshape` whose sizes are static or equal to the same dim of its input (0 in the target): by a constant target.

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .._onnx.graph_edits import remove_dead_nodes, rename_inputs, replace_items
from .._onnx.symbolic_shapes import (
    INTEGER_TYPES,
    AttentionShapeRule,
    Dim,
    SymbolicShape,
    TensorFacts,
    has_step_one,
    infer_facts,
)
from .._onnx.traced_model import TracedModel
from .._onnx.traversal import find_names_read_by_value, iter_graphs

_SELECT_OPS = {"Gather", "Slice", "Squeeze"}
_SHAPE_OPS = {"Cast", "Concat", "Reshape", "Shape", "Unsqueeze"} | _SELECT_OPS


@dataclass(frozen=True)
class _Context:
    """Facts about a graph that decide the replacement of a node."""

    facts: TensorFacts
    input_axes: Mapping[Dim, tuple[str, int]]  # an input and its axis, by size
    outputs: set[str]  # of all graphs: these names must not change
    names_read_by_value: set[str]  # elements are read, not only the shape


def fold_shapes(
    traced: TracedModel, inputs: Mapping[str, SymbolicShape], call_rules: Mapping[str, AttentionShapeRule]
) -> bool:
    """Replace nodes that compute known sizes, and remove nodes that return their input.

    Dims of `inputs` with the same name have the same size; `call_rules` are the shape rules of attention calls.
    """
    graph, nodes = traced.model.graph, [*traced.model.graph.node]
    context = _collect_facts(traced.model, inputs, call_rules)
    constants: dict[str, np.ndarray] = {}
    size_nodes: dict[str, onnx.NodeProto] = {}
    new_names: dict[str, str] = {}
    remaining: list[onnx.NodeProto] = []
    for node in nodes:
        output = node.output[0] if node.output else ""
        sizes = _find_computed_sizes(node, context)
        if sizes and all(isinstance(size, int) for size in sizes):
            dtype = helper.tensor_dtype_to_np_dtype(context.facts.elem_types[output])
            constants[output] = np.array(sizes, dtype).reshape(() if context.facts.shapes.get(output) == () else -1)
        elif node.op_type in _SELECT_OPS and len(sizes) == 1 and sizes[0] in context.input_axes:
            computed = _make_size_nodes(sizes[0], output, context)
            size_nodes |= {size_node.name: size_node for size_node in computed}
            new_names[output] = computed[-1].name
        elif _is_shape_of_inputs(node, sizes, context):
            constants |= {f"size/{size}": np.array([size]) for size in sizes if isinstance(size, int)}
            size_nodes |= {f"size/{size}": _make_size_node(size, context) for size in sizes if isinstance(size, str)}
            parts = [f"size/{size}" for size in sizes]
            remaining.append(helper.make_node("Concat", parts, [output], name=node.name, axis=0))
        elif output not in context.outputs and _is_identity(node, context.facts):
            new_names[output] = new_names.get(node.input[0], node.input[0])
        elif target := _find_constant_target(node, context.facts):
            constants[f"{output}/target"] = np.array(target, np.int64)
            remaining.append(helper.make_node("Reshape", [node.input[0], f"{output}/target"], [output], node.name))
        else:
            remaining.append(node)
    is_changed = [*size_nodes.values(), *remaining] != nodes
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    replace_items(graph.node, [*size_nodes.values(), *remaining])
    rename_inputs(graph, new_names)
    return remove_dead_nodes(graph) or is_changed


def _collect_facts(
    model: onnx.ModelProto, inputs: Mapping[str, SymbolicShape], call_rules: Mapping[str, AttentionShapeRule]
) -> _Context:
    # A size is read from the first input with this dim, from masks last: a session accepts a mask of size 1.
    by_priority = sorted(inputs.items(), key=lambda item: "mask" in item[0])
    return _Context(
        facts=infer_facts(model, inputs, call_rules),
        input_axes={size: (name, axis) for name, axes in reversed(by_priority) for axis, size in enumerate(axes)},
        outputs={value.name for graph in iter_graphs(model.graph) for value in graph.output},
        names_read_by_value={*inputs, *find_names_read_by_value(model.graph)},
    )


def _find_computed_sizes(node: onnx.NodeProto, context: _Context) -> tuple[Dim, ...]:
    """Return the sizes that a node computes, as integers and dim names; empty if any size is unknown."""
    output = node.output[0] if node.output else ""
    sizes = context.facts.shape_values.get(output, ())
    is_replaceable = node.op_type in _SHAPE_OPS and output not in context.outputs
    return (
        sizes if is_replaceable and context.facts.elem_types.get(output) in INTEGER_TYPES and None not in sizes else ()
    )


def _is_shape_of_inputs(node: onnx.NodeProto, sizes: tuple[Dim, ...], context: _Context) -> bool:
    """Return True if a node computes the known shape of a tensor that no node reads by value."""
    if node.op_type != "Shape" or not sizes or node.input[0] in context.names_read_by_value:
        return False
    return all(isinstance(size, int) or size in context.input_axes for size in sizes)


def _is_identity(node: onnx.NodeProto, facts: TensorFacts) -> bool:
    """Return True if an `Expand` or a `Slice` returns its input: equal shapes, and steps of 1."""
    if node.op_type not in ("Expand", "Slice"):
        return False
    input_shape, output_shape = facts.shapes.get(node.input[0]), facts.shapes.get(node.output[0])
    if input_shape is None or input_shape != output_shape or None in input_shape:
        return False
    return node.op_type == "Expand" or has_step_one(node, facts)


def _make_size_nodes(size: Dim, output: str, context: _Context) -> list[onnx.NodeProto]:
    """Return the nodes that compute a size from an input; the last one has the element type and rank of `output`."""
    nodes = [_make_size_node(size, context)]
    elem_type = context.facts.elem_types[output]
    if elem_type != TensorProto.INT64:
        name = f"size/{size}/as_{elem_type}"
        nodes.append(helper.make_node("Cast", nodes[-1].output, [name], name, to=elem_type))
    if context.facts.shapes.get(output) == ():
        name = f"{nodes[-1].name}/alone"
        nodes.append(helper.make_node("Squeeze", nodes[-1].output, [name], name))
    return nodes


def _make_size_node(size: Dim, context: _Context) -> onnx.NodeProto:
    name, axis = context.input_axes[size]
    return helper.make_node("Shape", [name], [f"size/{size}"], f"size/{size}", start=axis, end=axis + 1)


def _find_constant_target(node: onnx.NodeProto, facts: TensorFacts) -> list[int]:
    """Return a constant target for a `Reshape`: static sizes, and 0 to copy a dim of the input; empty if impossible."""
    if node.op_type != "Reshape" or node.attribute or node.input[1] in facts.constants:
        return []
    input_shape, output_shape = facts.shapes.get(node.input[0]), facts.shapes.get(node.output[0])
    if input_shape is None or not output_shape or 0 in output_shape:
        return []
    pairs = itertools.zip_longest(output_shape, input_shape[: len(output_shape)])
    target = [0 if isinstance(size, str) and size == input_size else size for size, input_size in pairs]
    return [size for size in target if isinstance(size, int)] if all(isinstance(size, int) for size in target) else []
