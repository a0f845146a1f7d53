"""Replace shape computations by constants, or by one `Shape` of a model input.

TensorFlow puts the target of each reshape, the positions of each layer and its masks together from sizes that it asks
for in each layer anew. Where such a size is known it becomes a constant; where it is that of an input it is asked of
the input, so that what is made of it is the same in all layers, and onnxruntime makes it once.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from .._onnx.graph_edits import drop_unread, refill, rename_reads
from .._onnx.symbolic_shapes import WHOLE, Axes, Axis, Known, Spread, known_of, steps_by_one
from .._onnx.traversal import all_graphs, names_read_by_value

ASKING = {"Cast", "Concat", "Gather", "Reshape", "Shape", "Slice", "Squeeze", "Unsqueeze"}


def with_known_sizes(
    model: onnx.ModelProto, inputs: Mapping[str, Axes], spread: Mapping[str, Spread]
) -> onnx.ModelProto:
    """Return a model in which sizes that are known are not computed.

    Args:
        model: The model; it stays as it is.
        inputs: The axes of its inputs, by name: those of one name have one size.
        spread: What is known of nodes that are calls of attention, by op.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    graph = changed.graph
    known = known_of(model, inputs, spread)
    given = {value.name for each in all_graphs(graph) for value in each.output}  # whose names stay
    read = {*inputs, *names_read_by_value(graph)}
    # the first wins, masks last: one that a session takes with a single column then says nothing of the others
    first = sorted(inputs.items(), key=lambda each: "mask" in each[0])
    places = {size: (name, axis) for name, axes in reversed(first) for axis, size in enumerate(axes)}
    asked: dict[str, onnx.NodeProto] = {}
    renamed: dict[str, str] = {}
    constants: dict[str, np.ndarray] = {}
    rows = []
    for node in graph.node:
        output = node.output[0] if node.output else ""
        numbers, axes = known.numbers.get(output) or (None,), known.axes.get(output)
        is_asked = node.op_type in ASKING and output not in given and known.kinds.get(output) in WHOLE
        if is_asked and None not in numbers:
            if all(isinstance(number, int) for number in numbers):
                dtype = helper.tensor_dtype_to_np_dtype(known.kinds[output])
                shape = [] if axes == () else [len(numbers)]
                graph.initializer.append(numpy_helper.from_array(np.array(numbers, dtype).reshape(shape), output))
                continue
            if len(numbers) == 1 and node.op_type in ("Gather", "Slice", "Squeeze") and numbers[0] in places:
                made = _asked(numbers[0], places[numbers[0]], known.kinds[output], is_scalar=axes == ())
                asked |= {each.output[0]: each for each in made}
                renamed[output] = made[-1].output[0]
                continue
            # Keras runs a recurrent cell once more, of which only the shapes of its states are read
            is_shape = node.op_type == "Shape" and node.input[0] not in read
            if is_shape and all(isinstance(size, int) or size in places for size in numbers):
                for size in numbers:
                    if isinstance(size, int):
                        constants[f"size/{size}"] = np.array([size])
                    else:
                        asked[f"size/{size}"] = _asked(size, places[size], TensorProto.INT64, is_scalar=False)[-1]
                sizes = [f"size/{size}" for size in numbers]
                rows.append(helper.make_node("Concat", sizes, [output], name=node.name, axis=0))
                continue
        if output not in given and _changes_nothing(node, known):
            renamed[output] = renamed.get(node.input[0], node.input[0])
            continue
        rows.append(_with_known_target(node, known, graph))
    graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in constants.items())
    refill(graph.node, [*asked.values(), *rows])
    rename_reads(graph, renamed)
    drop_unread(graph)
    return changed


def _changes_nothing(node: onnx.NodeProto, known: Known) -> bool:
    """Tell whether a node repeats along no axis, or takes all there is along each, in its order."""
    if node.op_type not in ("Expand", "Slice"):
        return False
    before, after = (known.axes.get(name) for name in (node.input[0], node.output[0]))
    if before is None or before != after or None in before:
        return False
    return node.op_type == "Expand" or steps_by_one(node, known)


def _asked(size: Axis, place: tuple[str, int], kind: int, *, is_scalar: bool) -> list[onnx.NodeProto]:
    """Return the nodes that ask for a size of an input, at a place; the last gives it."""
    name, axis = place
    made = [helper.make_node("Shape", [name], [f"size/{size}"], start=axis, end=axis + 1)]
    if kind != TensorProto.INT64:
        made.append(helper.make_node("Cast", [made[-1].output[0]], [f"size/{size}/as_{kind}"], to=kind))
    if is_scalar:
        made.append(helper.make_node("Squeeze", [made[-1].output[0]], [f"{made[-1].output[0]}/alone"]))
    for node in made:
        node.name = node.output[0]
    return made


def _with_known_target(node: onnx.NodeProto, known: Known, graph: onnx.GraphProto) -> onnx.NodeProto:
    """Return a reshape with a constant target where each size is known or that of its input on the axis."""
    if node.op_type != "Reshape" or node.attribute or node.input[1] in known.constants:
        return node
    before, after = (known.axes.get(name) for name in (node.input[0], node.output[0]))
    if before is None or not after:
        return node
    copied = [size if size == of_input else None for size, of_input in zip(after, before, strict=False)]
    target = [
        0 if size in copied[axis : axis + 1] and isinstance(size, str) else size for axis, size in enumerate(after)
    ]
    if any(not isinstance(size, int) for size in target) or 0 in after:
        return node
    name = f"{node.output[0]}/target"
    graph.initializer.append(numpy_helper.from_array(np.array(target, np.int64), name))
    changed = onnx.NodeProto()
    changed.CopyFrom(node)
    changed.input[1] = name
    return changed
