"""Infer symbolic shapes: propagate named dims of the inputs through a graph.

onnx infers named dims for each operator, but not the contents of shape vectors: dims that `Shape` returns and `Slice`,
`Concat` and `Cast` process before a `Reshape` uses them. The tables in this file have one rule for each operator that
onnx lacks: `_SHAPE_RULES` for the shape of a result, `_VALUE_RULES` for the contents of a shape vector.
"""

import contextlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import onnx
from onnx import TensorProto, helper, numpy_helper

from .traversal import iter_subgraphs

Dim = int | str | None  # a size, a name (equal names are equal sizes), or unknown
SymbolicShape = tuple[Dim, ...]
INTEGER_TYPES = (TensorProto.INT64, TensorProto.INT32)
# Types that represent sizes exactly: float16 has no integers above 2,048
SHAPE_VALUE_TYPES = (*INTEGER_TYPES, TensorProto.FLOAT, TensorProto.DOUBLE)
SLICE_END = 10**9  # tf2onnx's end of a slice up to the end of the axis
_INFER_ERRORS = (onnx.shape_inference.InferenceError, onnx.checker.ValidationError, RuntimeError, ValueError, KeyError)
MAX_SHAPE_VALUES = 16  # elements; longer constants are no shapes


class AttentionShapeRule(NamedTuple):
    """Shape rule of an attention call: (*queries.shape[:-1], value_repeats * values.shape[-1]), by input indices."""

    queries: int
    values: int
    value_repeats: int = 1


@dataclass
class TensorFacts:
    """Inferred types and shapes of tensors, and contents of scalars and short vectors, by name of the tensor."""

    elem_types: dict[str, int] = field(default_factory=dict)
    shapes: dict[str, SymbolicShape] = field(default_factory=dict)
    shape_values: dict[str, tuple[Dim, ...]] = field(default_factory=dict)  # contents, dims by name
    constants: dict[str, TensorProto] = field(default_factory=dict)  # of integers

    def get_unknown_values(self, name: str) -> SymbolicShape | None:
        """Return n unknown elements for a vector of static length n, else None."""
        axes = self.shapes.get(name)
        return (None,) * axes[0] if axes is not None and len(axes) == 1 and isinstance(axes[0], int) else None

    def read_initializer(self, tensor: TensorProto) -> None:
        """Record the shape of an initializer, and its contents if they may be a shape."""
        self.elem_types[tensor.name] = tensor.data_type
        self.shapes[tensor.name] = tuple(tensor.dims)
        is_short = len(tensor.dims) < 2 and max(tensor.dims, default=1) <= MAX_SHAPE_VALUES
        if is_short and tensor.data_type in (*INTEGER_TYPES, TensorProto.FLOAT):
            self.shape_values[tensor.name] = tuple(numpy_helper.to_array(tensor).reshape(-1).tolist())
            if tensor.data_type in INTEGER_TYPES:
                self.constants[tensor.name] = tensor


def infer_facts(
    model: onnx.ModelProto,
    inputs: Mapping[str, SymbolicShape],
    call_rules: Mapping[str, AttentionShapeRule] | None = None,
) -> TensorFacts:
    """Return the inferred types and shapes of the tensors of the outermost graph.

    Dims of the inputs with the same name have the same size; `call_rules` has the shape rules of attention calls.
    """
    facts = TensorFacts()
    types = {value.name: value.type.tensor_type for value in (*model.graph.value_info, *model.graph.input)}
    for value in model.graph.input:
        facts.elem_types[value.name] = types[value.name].elem_type
        if (axes := inputs.get(value.name) or _read_shape(types[value.name], named=False)) is not None:
            facts.shapes[value.name] = axes
    for tensor in model.graph.initializer:
        facts.read_initializer(tensor)
    for node in model.graph.node:
        call = (call_rules or {}).get(node.op_type)
        outputs = [_infer_call(node, facts, call)] if call else [*_infer_node(node, facts, model.opset_import)]
        for name, (elem_type, shape) in zip(node.output, outputs, strict=False):
            facts.elem_types[name] = elem_type or (types[name].elem_type if name in types else 0)
            merged = _merge_shapes(shape, _read_shape(types[name], named=False) if name in types else None)
            if merged is not None:
                facts.shapes[name] = merged
        for rules, results in ((_SHAPE_RULES, facts.shapes), (_VALUE_RULES, facts.shape_values)):
            if node.op_type in rules and (values := rules[node.op_type](node, facts)):
                results[node.output[0]] = values
    return facts


def _infer_call(node: onnx.NodeProto, facts: TensorFacts, rule: AttentionShapeRule) -> tuple[int, SymbolicShape | None]:
    queries, values = node.input[rule.queries], node.input[rule.values]
    query_shape, (*_, size) = facts.shapes.get(queries), facts.shapes.get(values) or (None,)
    if rule.value_repeats != 1:  # a multiple of a named dim has no name
        size = size * rule.value_repeats if isinstance(size, int) else None
    return facts.elem_types.get(queries, 0), None if query_shape is None else (*query_shape[:-1], size)


def _infer_node(node: onnx.NodeProto, facts: TensorFacts, opsets: Any) -> Iterator[tuple[int, SymbolicShape | None]]:
    """Yield the type and the shape of each output, as onnx infers them from the inputs."""
    version = next((opset.version for opset in opsets if opset.domain == node.domain), None)
    outputs: Mapping[str, onnx.TypeProto] = {}
    is_inferable = (
        version is not None and onnx.defs.has(node.op_type, version, node.domain) and not [*iter_subgraphs(node)]
    )
    if is_inferable and all(facts.elem_types.get(name) for name in node.input if name):
        schema = onnx.defs.get_schema(node.op_type, version, node.domain)
        names = [name for name in node.input if name]
        types = {name: helper.make_tensor_type_proto(facts.elem_types[name], facts.shapes.get(name)) for name in names}
        data = {name: facts.constants[name] for name in names if name in facts.constants}
        with contextlib.suppress(*_INFER_ERRORS):
            outputs = onnx.shape_inference.infer_node_outputs(schema, node, types, data, None, list(opsets))
    for name in node.output:
        tensor_type = outputs[name].tensor_type if name in outputs else None
        yield (0, None) if tensor_type is None else (tensor_type.elem_type, _read_shape(tensor_type, named=True))


def _read_shape(tensor_type: Any, *, named: bool) -> SymbolicShape | None:
    """Return the shape of a tensor type, with dim names if `named`."""
    # The names in a traced graph are invented by tf2onnx: equal names are not equal sizes
    if not tensor_type.HasField("shape"):
        return None
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else (dim.dim_param if named else "") or None
        for dim in tensor_type.shape.dim
    )


def _merge_shapes(inferred: SymbolicShape | None, declared: SymbolicShape | None) -> SymbolicShape | None:
    """Return the shape with the dims of two shapes, integers input_shape names."""
    if inferred is None or declared is None or len(inferred) != len(declared):
        return declared if inferred is None else inferred
    pairs = zip(inferred, declared, strict=True)
    return tuple(static if isinstance(static, int) or dim is None else dim for dim, static in pairs)


# --------------------------------------------------------------------------- rules that onnx lacks


def _reshape_shape(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    target, input_shape = facts.shape_values.get(node.input[1]), facts.shapes.get(node.input[0]) or ()
    if target is None or node.attribute:
        return None
    sizes = tuple(
        input_shape[axis] if size == 0 and axis < len(input_shape) else size for axis, size in enumerate(target)
    )
    if -1 not in sizes:
        return sizes
    inferred_size = _divide_dims(input_shape, [size for size in sizes if size != -1])
    return tuple(inferred_size if size == -1 else size for size in sizes)


def _divide_dims(dims: SymbolicShape, divisors: Sequence[Dim]) -> Dim:
    """Return the product of dims divided by the product of divisors, or None unless the quotient is one dim."""
    # Dims are cancelled by name: of the exponents that remain, only a single 1 is a dim
    exponents, factor = Counter(dims), 1.0
    exponents.subtract(divisors)
    for dim, exponent in [*exponents.items()]:
        if isinstance(dim, int):
            factor *= float(dim) ** exponent if dim else math.inf
            del exponents[dim]
    names = [dim for dim, exponent in exponents.items() if exponent]
    if None in dims or None in divisors or any(exponents[name] != 1 for name in names):
        return None
    if not names:
        return int(factor) if factor.is_integer() and factor > 0 else None
    return names[0] if len(names) == 1 and factor == 1 else None


def has_step_one(node: onnx.NodeProto, facts: TensorFacts) -> bool:
    """Return True if a slice has the step 1 on all axes."""
    return len(node.input) < 5 or {*facts.shape_values.get(node.input[4], ())} == {1}


def _slice_shape(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    """Return the shape of a slice: the dims of its input on axes that it does not slice, or slices in full."""
    input_shape, output_shape = (facts.shapes.get(name) for name in (node.input[0], node.output[0]))
    starts, ends, axes = (facts.shape_values.get(name, ()) for name in (*node.input[1:4], "")[:3])
    if (
        input_shape is None
        or output_shape is None
        or not has_step_one(node, facts)
        or not len(starts) == len(ends) == len(axes)
    ):
        return None
    sizes = [size if axis in axes else input_shape[axis] for axis, size in enumerate(output_shape)]
    for start, end, axis in zip(starts, ends, axes, strict=True):
        if not isinstance(axis, int):
            return None
        size = input_shape[axis]
        # A slice from 0 to the named size, or to tf2onnx's end, reads the full axis
        if start == 0 and size is not None and ((isinstance(end, int) and end >= SLICE_END) or end == size):
            sizes[axis] = size
    return tuple(sizes)


def _expand_shape(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    target, input_shape = facts.shape_values.get(node.input[1]), facts.shapes.get(node.input[0])
    if target is None or input_shape is None:
        return None
    rank = max(len(target), len(input_shape))
    pairs = zip((*[1] * (rank - len(target)), *target), (*[1] * (rank - len(input_shape)), *input_shape), strict=True)
    return tuple(
        size if input_size == 1 else input_size if size in (1, input_size) or isinstance(input_size, int) else None
        for size, input_size in pairs
    )


def _constant_of_shape(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    return facts.shape_values.get(node.input[0])


def _range_shape(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    start, limit, step = (facts.shape_values.get(name) for name in node.input)
    is_length = limit is not None and (isinstance(limit[0], str) or (isinstance(limit[0], int) and limit[0] >= 0))
    return limit if is_length and (start, step) == ((0,), (1,)) else None


def _tile_shape(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    all_repeats, input_shape = facts.shape_values.get(node.input[1]), facts.shapes.get(node.input[0])
    if all_repeats is None or input_shape is None:
        return None
    return tuple(
        size if repeats == 1 else repeats * size if isinstance(repeats, int) and isinstance(size, int) else None
        for repeats, size in zip(all_repeats, input_shape, strict=True)
    )


_SHAPE_RULES = {
    "Reshape": _reshape_shape, "Expand": _expand_shape, "ConstantOfShape": _constant_of_shape, "Range": _range_shape,
    "Slice": _slice_shape, "Tile": _tile_shape,
}  # fmt: skip


def _shape_values(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    axes = facts.shapes.get(node.input[0])
    ends = {attribute.name: attribute.i for attribute in node.attribute}
    return None if axes is None else axes[ends.get("start") : ends.get("end")]


def _cast_values(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    return facts.shape_values.get(node.input[0]) if facts.elem_types.get(node.output[0]) in SHAPE_VALUE_TYPES else None


def _reshape_values(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    values, shape = facts.shape_values.get(node.input[0]), facts.shapes.get(node.output[0])
    return values if values and shape is not None and len(shape) < 2 else None


def _concat_values(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    parts = [facts.shape_values.get(name) or facts.get_unknown_values(name) for name in node.input]
    return None if None in parts else tuple(element for part in parts for element in part or ())


def _slice_values(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    values = facts.shape_values.get(node.input[0])
    limits = [facts.constants.get(name) for name in node.input[1:]]
    if values is None or None in limits or facts.shapes.get(node.input[0]) == ():
        return None
    # The inputs are start, end, and, if present, axes (0 for a vector) and steps
    start, end, *axes_and_step = (numpy_helper.to_array(limit).item() for limit in limits)
    return values[slice(start, end, *axes_and_step[1:])]


def _gather_values(node: onnx.NodeProto, facts: TensorFacts) -> SymbolicShape | None:
    values, indices = facts.shape_values.get(node.input[0]), facts.constants.get(node.input[1])
    if values is None or indices is None:
        return None
    return tuple(values[index] for index in numpy_helper.to_array(indices).reshape(-1).tolist())


_VALUE_RULES = {
    "Shape": _shape_values, "Cast": _cast_values, "Identity": _cast_values, "Squeeze": _reshape_values,
    "Unsqueeze": _reshape_values, "Reshape": _reshape_values, "Concat": _concat_values, "Slice": _slice_values,
    "Gather": _gather_values,
}  # fmt: skip
