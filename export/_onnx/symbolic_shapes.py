"""Infer symbolic shapes: propagate named axes of the inputs through a graph.

onnx infers the axes of outputs from those of inputs, names included, but not the content of small vectors of integers:
sizes that are read from shapes, sliced, joined and cast, and the shapes of tensors that depend on such vectors. The
tables at the end of this file have one rule for each operator that onnx lacks.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, helper, numpy_helper

from .traversal import graphs_in

Axis = int | str | None  # a size, the name of a size, or unknown
Axes = tuple[Axis, ...]
INTEGERS = (TensorProto.INT64, TensorProto.INT32)
EXACT = (*INTEGERS, TensorProto.FLOAT, TensorProto.DOUBLE)  # types that represent sizes exactly
OPEN_END = 10**9  # tf2onnx's end of a slice up to the end of the axis
_ERRORS = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError, KeyError)
MAX_NUMBERS = 16  # longer constants are not shapes


class Spread(NamedTuple):
    """The shape of an attention call's output: (*axes[:-1] of the input `queries`, `times` * last axis of `values`)."""

    queries: int
    values: int
    times: int = 1


@dataclass
class TensorFacts:
    """Known facts about tensors, by name: types, shapes, and the content of scalars and short vectors."""

    kinds: dict[str, int] = field(default_factory=dict)
    axes: dict[str, Axes] = field(default_factory=dict)
    numbers: dict[str, tuple[Axis, ...]] = field(default_factory=dict)  # with the names of sizes among the numbers
    constants: dict[str, TensorProto] = field(default_factory=dict)  # integers

    def unknown_numbers(self, name: str) -> Axes | None:
        """Return one unknown number for each number of a vector, or None unless the length is known."""
        axes = self.axes.get(name)
        return (None,) * axes[0] if axes is not None and len(axes) == 1 and isinstance(axes[0], int) else None

    def read_initializer(self, tensor: TensorProto) -> None:
        """Record the shape of an initializer, and its content if this may be a shape."""
        self.kinds[tensor.name] = tensor.data_type
        self.axes[tensor.name] = tuple(tensor.dims)
        is_short = len(tensor.dims) < 2 and max(tensor.dims, default=1) <= MAX_NUMBERS
        if is_short and tensor.data_type in (*INTEGERS, TensorProto.FLOAT):
            self.numbers[tensor.name] = tuple(numpy_helper.to_array(tensor).reshape(-1).tolist())
            if tensor.data_type in INTEGERS:
                self.constants[tensor.name] = tensor


def infer_facts(
    model: onnx.ModelProto, inputs: Mapping[str, Axes], spread: Mapping[str, Spread] | None = None
) -> TensorFacts:
    """Return the known facts about the tensors of the outermost graph.

    Axes of the inputs with the same name have the same size; `spread` has the shapes of attention calls by operator.
    """
    facts = TensorFacts()
    types = {value.name: value.type.tensor_type for value in (*model.graph.value_info, *model.graph.input)}
    for value in model.graph.input:
        facts.kinds[value.name] = types[value.name].elem_type
        if (axes := inputs.get(value.name) or _axes(types[value.name], named=False)) is not None:
            facts.axes[value.name] = axes
    for tensor in model.graph.initializer:
        facts.read_initializer(tensor)
    for node in model.graph.node:
        call = (spread or {}).get(node.op_type)
        outputs = [_call_output(node, facts, call)] if call else [*_infer(node, facts, model.opset_import)]
        for name, (kind, axes) in zip(node.output, outputs, strict=False):
            facts.kinds[name] = kind or (types[name].elem_type if name in types else 0)
            merged = _merged(axes, _axes(types[name], named=False) if name in types else None)
            if merged is not None:
                facts.axes[name] = merged
        for rules, results in ((_AXES_RULES, facts.axes), (_NUMBERS_RULES, facts.numbers)):
            if node.op_type in rules and (values := rules[node.op_type](node, facts)):
                results[node.output[0]] = values
    return facts


def _call_output(node: onnx.NodeProto, facts: TensorFacts, spread: Spread) -> tuple[int, Axes | None]:
    """Return the type and the axes of the output of an attention call."""
    queries, values = node.input[spread.queries], node.input[spread.values]
    first, (*_, last) = facts.axes.get(queries), facts.axes.get(values) or (None,)
    size = last * spread.times if isinstance(last, int) else last if spread.times == 1 else None
    return facts.kinds.get(queries, 0), None if first is None else (*first[:-1], size)


def _infer(node: onnx.NodeProto, facts: TensorFacts, opsets: Any) -> Iterator[tuple[int, Axes | None]]:
    """Yield the type and the axes of each output, as onnx infers them from the inputs."""
    version = next((opset.version for opset in opsets if opset.domain == node.domain), None)
    outputs: Mapping[str, onnx.TypeProto] = {}
    is_inferable = version is not None and onnx.defs.has(node.op_type, version, node.domain) and not [*graphs_in(node)]
    if is_inferable and all(facts.kinds.get(name) for name in node.input if name):
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        names = [name for name in node.input if name]
        types = {name: helper.make_tensor_type_proto(facts.kinds[name], facts.axes.get(name)) for name in names}
        data = {name: facts.constants[name] for name in names if name in facts.constants}
        with contextlib.suppress(*_ERRORS):
            outputs = onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, list(opsets))
    for name in node.output:
        kind = outputs[name].tensor_type if name in outputs else None
        yield (0, None) if kind is None else (kind.elem_type, _axes(kind, named=True))


def _axes(kind: Any, *, named: bool) -> Axes | None:
    """Return the axes of a type, with names only if they are those of inputs; tf2onnx invents its own."""
    if not kind.HasField("shape"):
        return None
    return tuple(
        axis.dim_value if axis.HasField("dim_value") else (axis.dim_param if named else "") or None
        for axis in kind.shape.dim
    )


def _merged(one: Axes | None, other: Axes | None) -> Axes | None:
    """Return the axes that either shape has, numbers before names."""
    if one is None or other is None or len(one) != len(other):
        return other if one is None else one
    return tuple(b if isinstance(b, int) or a is None else a for a, b in zip(one, other, strict=True))


# --------------------------------------------------------------------------- rules that onnx lacks


def _reshape_axes(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    target, before = facts.numbers.get(node.input[1]), facts.axes.get(node.input[0]) or ()
    if target is None or node.attribute:
        return None
    sizes = tuple(before[axis] if size == 0 and axis < len(before) else size for axis, size in enumerate(target))
    if -1 not in sizes:
        return sizes
    rest = _quotient(before, [size for size in sizes if size != -1])
    return tuple(rest if size == -1 else size for size in sizes)


def _quotient(sizes: Axes, others: Sequence[Axis]) -> Axis:
    """Return the product of sizes divided by the product of others, or None unless the quotient is one size."""
    left, number = Counter(sizes), 1.0
    left.subtract(others)
    for size, times in [*left.items()]:
        if isinstance(size, int):
            number *= float(size) ** times if size else math.inf
            del left[size]
    names = [size for size, times in left.items() if times]
    if None in sizes or None in others or any(left[size] != 1 for size in names):
        return None
    if not names:
        return int(number) if number.is_integer() and number > 0 else None
    return names[0] if len(names) == 1 and number == 1 else None


def has_step_one(node: onnx.NodeProto, facts: TensorFacts) -> bool:
    """Return whether a slice takes consecutive elements in their order."""
    return len(node.input) < 5 or {*facts.numbers.get(node.input[4], ())} == {1}


def _slice_axes(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    """Return the axes of a slice: those of its input where it starts at 0 and ends at or behind the size."""
    before, after = (facts.axes.get(name) for name in (node.input[0], node.output[0]))
    starts, ends, axes = (facts.numbers.get(name, ()) for name in (*node.input[1:4], "")[:3])
    if before is None or after is None or not has_step_one(node, facts) or not len(starts) == len(ends) == len(axes):
        return None
    sizes = [size if axis in axes else before[axis] for axis, size in enumerate(after)]
    for start, end, axis in zip(starts, ends, axes, strict=True):
        if not isinstance(axis, int):
            return None
        size = before[axis]
        if start == 0 and size is not None and ((isinstance(end, int) and end >= OPEN_END) or end == size):
            sizes[axis] = size
    return tuple(sizes)


def _expand_axes(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    target, before = facts.numbers.get(node.input[1]), facts.axes.get(node.input[0])
    if target is None or before is None:
        return None
    rank = max(len(target), len(before))
    pairs = zip((*[1] * (rank - len(target)), *target), (*[1] * (rank - len(before)), *before), strict=True)
    return tuple(
        size if of_input == 1 else of_input if size in (1, of_input) or isinstance(of_input, int) else None
        for size, of_input in pairs
    )


def _filled_axes(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    return facts.numbers.get(node.input[0])


def _range_axes(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    start, limit, step = (facts.numbers.get(name) for name in node.input)
    is_length = limit is not None and (isinstance(limit[0], str) or (isinstance(limit[0], int) and limit[0] >= 0))
    return limit if is_length and (start, step) == ((0,), (1,)) else None


def _tile_axes(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    times, before = facts.numbers.get(node.input[1]), facts.axes.get(node.input[0])
    if times is None or before is None:
        return None
    return tuple(
        size if number == 1 else number * size if isinstance(number, int) and isinstance(size, int) else None
        for number, size in zip(times, before, strict=True)
    )


_AXES_RULES = {
    "Reshape": _reshape_axes, "Expand": _expand_axes, "ConstantOfShape": _filled_axes, "Range": _range_axes,
    "Slice": _slice_axes, "Tile": _tile_axes,
}  # fmt: skip


def _shape_numbers(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    axes = facts.axes.get(node.input[0])
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    return None if axes is None else axes[ends.get("start") : ends.get("end")]


def _same_numbers(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    return facts.numbers.get(node.input[0]) if facts.kinds.get(node.output[0]) in EXACT else None


def _one_number(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    numbers, axes = facts.numbers.get(node.input[0]), facts.axes.get(node.output[0])
    return numbers if numbers and axes is not None and len(axes) < 2 else None


def _concat_numbers(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    parts = [facts.numbers.get(name) or facts.unknown_numbers(name) for name in node.input]
    return None if None in parts else tuple(number for part in parts for number in part or ())


def _slice_numbers(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    numbers = facts.numbers.get(node.input[0])
    ends = [facts.constants.get(name) for name in node.input[1:]]
    if numbers is None or None in ends or facts.axes.get(node.input[0]) == ():
        return None
    start, end, *rest = (numpy_helper.to_array(end).item() for end in ends)
    return numbers[slice(start, end, *rest[1:])]


def _gather_numbers(node: onnx.NodeProto, facts: TensorFacts) -> Axes | None:
    numbers, indices = facts.numbers.get(node.input[0]), facts.constants.get(node.input[1])
    if numbers is None or indices is None:
        return None
    return tuple(numbers[index] for index in numpy_helper.to_array(indices).reshape(-1).tolist())


_NUMBERS_RULES = {
    "Shape": _shape_numbers, "Cast": _same_numbers, "Identity": _same_numbers, "Squeeze": _one_number,
    "Unsqueeze": _one_number, "Reshape": _one_number, "Concat": _concat_numbers, "Slice": _slice_numbers,
    "Gather": _gather_numbers,
}  # fmt: skip
