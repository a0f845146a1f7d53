"""Infer symbolic shapes: propagate named input dims through a graph.

onnx infers what an operator makes of the axes of its inputs, names among them. What it does not see is what small
vectors of whole numbers hold: sizes that were asked for, cut out, joined and cast, and what is then shaped by them.
"""

from __future__ import annotations

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, helper, numpy_helper

from .traversal import graphs_in

Axis = int | str | None  # a size, the name of one, or neither
Axes = tuple[Axis, ...]
WHOLE = (TensorProto.INT64, TensorProto.INT32)
COUNTING = (*WHOLE, TensorProto.FLOAT, TensorProto.DOUBLE)  # what holds a size as it is
ALL = 10**9  # tf2onnx's end of a slice that has none
REFUSED = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError, KeyError)
MOST = 16  # numbers in what may be sizes


class Spread(NamedTuple):
    """Of a call of attention: which input has the axes of the output but for the last, and which the last, so often."""

    queries: int
    values: int
    times: int = 1


@dataclass
class Known:
    """What is known of tensors, by name.

    Attributes:
        kinds: Their element types.
        axes: Their axes.
        numbers: What is in those of one axis or none, and few numbers: sizes among them have their names.
        constants: Those of them that are constant whole numbers.
    """

    kinds: dict[str, int] = field(default_factory=dict)
    axes: dict[str, Axes] = field(default_factory=dict)
    numbers: dict[str, tuple[Axis, ...]] = field(default_factory=dict)
    constants: dict[str, TensorProto] = field(default_factory=dict)

    def axes_as_unknown(self, name: str) -> Axes | None:
        """Return as many numbers that are not known as a vector has, or None where it is no vector of known length."""
        axes = self.axes.get(name)
        return (None,) * axes[0] if axes is not None and len(axes) == 1 and isinstance(axes[0], int) else None


def known_of(model: onnx.ModelProto, inputs: Mapping[str, Axes], spread: Mapping[str, Spread] | None = None) -> Known:
    """Return what is known of the tensors of the outermost graph, from its first node to its last.

    Args:
        model: The model.
        inputs: The axes of its inputs, by name: those of one name have one size.
        spread: What is known of nodes that are calls of attention, by op.
    """
    known, graph = Known(), model.graph
    static = {value.name: value.type.tensor_type for value in (*graph.value_info, *graph.input)}
    for value in graph.input:
        known.kinds[value.name] = value.type.tensor_type.elem_type
        if (axes := inputs.get(value.name) or _axes(value.type.tensor_type, named=False)) is not None:
            known.axes[value.name] = axes
    for tensor in graph.initializer:
        known.kinds[tensor.name], known.axes[tensor.name] = tensor.data_type, tuple(tensor.dims)
        if (
            tensor.data_type in (*WHOLE, TensorProto.FLOAT)
            and len(tensor.dims) < 2
            and max(tensor.dims, default=1) <= MOST
        ):
            known.numbers[tensor.name] = tuple(numpy_helper.to_array(tensor).reshape(-1).tolist())
            if tensor.data_type in WHOLE:
                known.constants[tensor.name] = tensor
    for node in graph.node:
        if spread and node.op_type in spread:
            found = [_attended(node, known, spread[node.op_type])]
        else:
            found = [*_inferred(node, known, model.opset_import)]
        for name, (kind, axes) in zip(node.output, found, strict=False):
            traced = static.get(name)
            known.kinds[name] = kind or (traced.elem_type if traced else 0)
            merged = _merged(axes, traced and _axes(traced, named=False))
            if merged is not None:
                known.axes[name] = merged
        output = node.output[0] if node.output else ""
        if node.op_type in AXES and (own := AXES[node.op_type](node, known)):
            known.axes[output] = own
        if node.op_type in NUMBERS and (own := NUMBERS[node.op_type](node, known)):
            known.numbers[output] = own
    return known


def _attended(node: onnx.NodeProto, known: Known, spread: Spread) -> tuple[int, Axes | None]:
    """Return the type and the axes of the output of a call of attention."""
    queries, values = node.input[spread.queries], node.input[spread.values]
    first, (*_, last) = known.axes.get(queries), known.axes.get(values) or (None,)
    size = last * spread.times if isinstance(last, int) else last if spread.times == 1 else None
    return known.kinds.get(queries, 0), None if first is None else (*first[:-1], size)


def _inferred(node: onnx.NodeProto, known: Known, opsets: Any) -> Iterator[tuple[int, Axes | None]]:
    """Yield the type and the axes of each output, as onnx infers them from those of the inputs."""
    version = next((each.version for each in opsets if each.domain == node.domain), None)
    found: Mapping[str, onnx.TypeProto] = {}
    is_known = version is not None and onnx.defs.has(node.op_type, version, node.domain) and not [*graphs_in(node)]
    if is_known and all(known.kinds.get(name) for name in node.input if name):
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        types = {
            name: helper.make_tensor_type_proto(known.kinds[name], known.axes.get(name)) for name in node.input if name
        }
        data = {name: known.constants[name] for name in node.input if name in known.constants}
        with contextlib.suppress(*REFUSED):
            found = onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, list(opsets))
    for name in node.output:
        kind = found[name].tensor_type if name in found else None
        yield (0, None) if kind is None else (kind.elem_type, _axes(kind, named=True))


def _axes(kind: Any, *, named: bool) -> Axes | None:
    """Return axes; names are those of the inputs of the model, where they are not made up by tf2onnx."""
    if not kind.HasField("shape"):
        return None
    return tuple(
        axis.dim_value if axis.HasField("dim_value") else (axis.dim_param if named else "") or None
        for axis in kind.shape.dim
    )


def _merged(one: Axes | None, other: Axes | None) -> Axes | None:
    """Return what either knows; a number before a name."""
    if one is None or other is None or len(one) != len(other):
        return other if one is None else one
    return tuple(b if isinstance(b, int) or a is None else a for a, b in zip(one, other, strict=True))


# --------------------------------------------------------------------------- what onnx does not infer


def _reshaped(node: onnx.NodeProto, known: Known) -> Axes | None:
    target, before = known.numbers.get(node.input[1]), known.axes.get(node.input[0]) or ()
    if target is None or node.attribute:
        return None
    sizes = tuple(before[axis] if size == 0 and axis < len(before) else size for axis, size in enumerate(target))
    if -1 not in sizes:
        return sizes
    rest = _quotient(before, [size for size in sizes if size != -1])
    return tuple(rest if size == -1 else size for size in sizes)


def _quotient(sizes: Axes, others: Sequence[Axis]) -> Axis:
    """Return what the product of sizes is, divided by that of others, if that is one size."""
    left, number = Counter(sizes), 1.0
    left.subtract(others)
    for size, times in [*left.items()]:
        if isinstance(size, int):
            number *= float(size) ** times if size else math.inf
            del left[size]
    kept = [size for size, times in left.items() if times]
    if None in sizes or None in others or any(left[size] != 1 for size in kept):
        return None
    if not kept:
        return int(number) if number.is_integer() and number > 0 else None
    return kept[0] if len(kept) == 1 and number == 1 else None


def steps_by_one(node: onnx.NodeProto, known: Known) -> bool:
    """Tell whether a slice takes one after the other, in their order."""
    return len(node.input) < 5 or {*known.numbers.get(node.input[4], ())} == {1}


def _taken(node: onnx.NodeProto, known: Known) -> Axes | None:
    """Return the axes of a slice that is whole along some of them."""
    before, after = (known.axes.get(name) for name in (node.input[0], node.output[0]))
    starts, ends, axes = (known.numbers.get(name, ()) for name in (*node.input[1:4], "")[:3])
    if before is None or after is None or not steps_by_one(node, known) or not len(starts) == len(ends) == len(axes):
        return None
    sizes = [size if axis in axes else before[axis] for axis, size in enumerate(after)]
    for start, end, axis in zip(starts, ends, axes, strict=True):
        if not isinstance(axis, int):
            return None
        size = before[axis]
        if start == 0 and size is not None and ((isinstance(end, int) and end >= ALL) or end == size):
            sizes[axis] = size
    return tuple(sizes)


def _expanded(node: onnx.NodeProto, known: Known) -> Axes | None:
    target, before = known.numbers.get(node.input[1]), known.axes.get(node.input[0])
    if target is None or before is None:
        return None
    rank = max(len(target), len(before))
    pairs = zip((*[1] * (rank - len(target)), *target), (*[1] * (rank - len(before)), *before), strict=True)
    return tuple(
        size if of_input == 1 else of_input if size in (1, of_input) or isinstance(of_input, int) else None
        for size, of_input in pairs
    )


def _filled(node: onnx.NodeProto, known: Known) -> Axes | None:
    return known.numbers.get(node.input[0])


def _counted(node: onnx.NodeProto, known: Known) -> Axes | None:
    start, limit, step = (known.numbers.get(name) for name in node.input)
    is_length = limit is not None and (isinstance(limit[0], str) or (isinstance(limit[0], int) and limit[0] >= 0))
    return limit if is_length and (start, step) == ((0,), (1,)) else None


def _tiled(node: onnx.NodeProto, known: Known) -> Axes | None:
    times, before = known.numbers.get(node.input[1]), known.axes.get(node.input[0])
    if times is None or before is None:
        return None
    return tuple(
        size if number == 1 else number * size if isinstance(number, int) and isinstance(size, int) else None
        for number, size in zip(times, before, strict=True)
    )


AXES = {
    "Reshape": _reshaped, "Expand": _expanded, "ConstantOfShape": _filled, "Range": _counted, "Slice": _taken,
    "Tile": _tiled,
}  # fmt: skip


def _shape(node: onnx.NodeProto, known: Known) -> Axes | None:
    axes = known.axes.get(node.input[0])
    ends = {each.name: each.i for each in node.attribute}
    return None if axes is None else axes[ends.get("start") : ends.get("end")]


def _same_numbers(node: onnx.NodeProto, known: Known) -> Axes | None:
    return known.numbers.get(node.input[0]) if known.kinds.get(node.output[0]) in COUNTING else None


def _one_number(node: onnx.NodeProto, known: Known) -> Axes | None:
    numbers, axes = known.numbers.get(node.input[0]), known.axes.get(node.output[0])
    return numbers if numbers and axes is not None and len(axes) < 2 else None


def _joined(node: onnx.NodeProto, known: Known) -> Axes | None:
    parts = [known.numbers.get(name) or known.axes_as_unknown(name) for name in node.input]
    return None if None in parts else tuple(number for part in parts for number in part or ())


def _sliced(node: onnx.NodeProto, known: Known) -> Axes | None:
    numbers = known.numbers.get(node.input[0])
    ends = [known.constants.get(name) for name in node.input[1:]]
    if numbers is None or None in ends or known.axes.get(node.input[0]) == ():
        return None
    start, end, *rest = (numpy_helper.to_array(each).item() for each in ends)
    return numbers[slice(start, end, *rest[1:])]


def _gathered(node: onnx.NodeProto, known: Known) -> Axes | None:
    numbers, places = known.numbers.get(node.input[0]), known.constants.get(node.input[1])
    if numbers is None or places is None:
        return None
    return tuple(numbers[place] for place in numpy_helper.to_array(places).reshape(-1).tolist())


NUMBERS = {
    "Shape": _shape, "Cast": _same_numbers, "Identity": _same_numbers, "Squeeze": _one_number,
    "Unsqueeze": _one_number, "Reshape": _one_number, "Concat": _joined, "Slice": _sliced, "Gather": _gathered,
}  # fmt: skip
