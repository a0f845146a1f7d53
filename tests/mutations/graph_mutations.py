"""Mutations of ONNX graphs: faults that an exporter may make, one for each mutant."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from keras_attn_export._onnx.traversal import iter_nodes, iter_subgraphs

# Families of operators with the same inputs. A mutation replaces an operator by one of the next two of its family.
FAMILIES = """
    Add Sub Mul Div, Max Min, And Or Xor, Tanh Sigmoid Erf, Relu Abs Softplus LeakyRelu Elu Selu, Exp Softplus Abs,
    Sqrt Neg Abs, ReduceSum ReduceMean ReduceMax ReduceMin, ArgMax ArgMin, GlobalAveragePool GlobalMaxPool,
    AveragePool MaxPool, Softmax LogSoftmax Hardmax, Floor Ceil Round, Equal Less
"""
REPLACEMENTS: dict[str, list[str]] = {}
for family in map(str.split, FAMILIES.split(",")):
    for index, operator in enumerate(family):
        successors = [*family[index + 1 :], *family[:index]][:2]
        REPLACEMENTS[operator] = list(dict.fromkeys([*REPLACEMENTS.get(operator, []), *successors]))
STRICTNESS = {"Less": "LessOrEqual", "LessOrEqual": "Less", "Greater": "GreaterOrEqual", "GreaterOrEqual": "Greater"}
DIRECTIONS = {"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
NONCOMMUTATIVE = ("Sub", "Div", "Pow", "MatMul", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Mod")
UNARY_OR_SELECTIVE = ("Cast", "Not", "Reciprocal", "Log", "Pow", "Clip", "Where", "Transpose", "Identity", "Round")
DROPPABLE = (*REPLACEMENTS, *UNARY_OR_SELECTIVE)  # the outputs may have the shape of an input
BIAS_INPUTS = {"Conv": 2, "Gemm": 2, "ConvTranspose": 2, "GRU": 3, "LSTM": 3, "LayerNormalization": 2}
AXIS_OPERATORS = ("Softmax", "LogSoftmax", "Concat", "Gather", "ArgMax", "Split", "CumSum", "LayerNormalization")
SIZE_ATTRIBUTES = ("strides", "dilations", "pads", "kernel_shape")
FACTOR_ATTRIBUTES = ("alpha", "beta", "epsilon", "scale")

Change = tuple[str, str, Callable[[Any], None]]  # kind, description, and function that changes a node or tensor


class Mutation(NamedTuple):
    """A change of the node or tensor at `index` of `list_parts(model)`."""

    kind: str
    description: str
    list_parts: Callable[[onnx.ModelProto], list]
    index: int
    change: Callable[[Any], None]


def list_mutations(model: onnx.ModelProto, rng: np.random.Generator) -> list[Mutation]:
    """Return all mutations of a model, its subgraphs and functions, in random order."""
    generators = ((_list_nodes, _mutate_node), (_list_tensors, partial(_mutate_tensor, rng=rng)))
    mutations = [
        Mutation(kind, description, list_parts, index, change)
        for list_parts, generate_changes in generators
        for index, part in enumerate(list_parts(model))
        for kind, description, change in generate_changes(part)
    ]
    return [mutations[index] for index in rng.permutation(len(mutations))]


def apply_mutation(model: onnx.ModelProto, mutation: Mutation) -> onnx.ModelProto:
    """Return a mutated copy of the model."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    mutation.change(mutation.list_parts(copy)[mutation.index])
    return copy


def _mutate_node(node: onnx.NodeProto) -> Iterator[Change]:
    operator, inputs, at = node.op_type, [*node.input], f"at {node.name or node.output[0]}"
    bias_index = BIAS_INPUTS.get(operator, len(inputs))
    if node.domain not in ("", "ai.onnx"):
        return
    for replacement in REPLACEMENTS.get(operator, ()):
        yield "exchanged", f"{operator} to {replacement} {at}", partial(_replace_operator, operator=replacement)
    if operator in DROPPABLE and any(inputs):
        forwarded = inputs[1:2] if operator == "Where" else inputs[:1]
        yield "dropped", f"{operator} {at}", partial(_replace_operator, operator="Identity", inputs=forwarded)
    if operator in NONCOMMUTATIVE:
        yield "swapped", f"inputs of {operator} {at}", partial(_set_inputs, inputs=inputs[::-1])
    for replacement in (table[operator] for table in (STRICTNESS, DIRECTIONS) if operator in table):
        yield "comparison", f"{operator} to {replacement} {at}", partial(_replace_operator, operator=replacement)
    if operator == "Where":
        yield "mask", f"inverted {at}", partial(_set_inputs, inputs=[inputs[0], inputs[2], inputs[1]])
    if operator == "Not":
        yield "mask", f"not inverted {at}", partial(_replace_operator, operator="Identity")
    if any(inputs[bias_index : bias_index + 1]):
        remaining = [*inputs[:bias_index], "", *inputs[bias_index + 1 :]]
        yield "bias", f"of {operator} {at}", partial(_set_inputs, inputs=remaining)
    if operator == "Transpose":
        yield "axes", f"in another order {at}", partial(_change_attribute, name="perm")
    if operator in AXIS_OPERATORS:
        yield "axes", f"axis of {operator} {at}", partial(_change_attribute, name="axis")
    for attribute in node.attribute:
        name, sizes = attribute.name, attribute.ints
        if (name in FACTOR_ATTRIBUTES and attribute.f) or (name in SIZE_ATTRIBUTES and len(sizes) > 1):
            yield "constant", f"{name} of {operator} {at}", partial(_change_attribute, name=name)


def _mutate_tensor(tensor: onnx.TensorProto, rng: np.random.Generator) -> Iterator[Change]:
    array = numpy_helper.to_array(tensor)
    if array.size == 0 or array.dtype.kind not in "fiub":
        return
    at = tuple(int(rng.integers(size)) for size in array.shape)
    is_element = np.zeros(array.shape, bool)
    is_element[at] = True
    arrays: dict[tuple[str, str], np.ndarray] = {}
    if array.dtype.kind == "f":
        spread = float(np.std(array.astype(np.float64))) or abs(float(array.reshape(-1)[0])) or 1.0
        arrays["weight", "2 % more"] = array * 1.02
        arrays["weight", "2 % less"] = array * 0.98
        if array.size > 1:
            arrays["weight", f"element {at}"] = np.where(is_element, array + spread, array)
            arrays["bias" if array.ndim == 1 else "weight", "zeros instead"] = np.zeros_like(array)
        if array.ndim > 1 and array.shape[-1] == array.shape[-2]:
            arrays["axes", "transposed"] = array.swapaxes(-1, -2)
        if array.ndim > 1:
            arrays["axes", "rows turned by one"] = np.roll(array, 1, 0)
    elif array.dtype.kind in "iu":
        arrays["off by one", f"element {at}, more"] = np.where(is_element, array + 1, array)
        arrays["off by one", f"element {at}, less"] = np.where(is_element, array - 1, array)
    else:
        arrays["mask", "inverted"] = ~array
    for (kind, title), changed in arrays.items():
        changed_tensor = numpy_helper.from_array(np.ascontiguousarray(changed).astype(array.dtype), tensor.name)
        description = f"{title} of {tensor.name or 'a constant'} {array.shape}"
        yield kind, description, lambda tensor, changed_tensor=changed_tensor: tensor.CopyFrom(changed_tensor)


def _replace_operator(node: onnx.NodeProto, operator: str, inputs: list[str] | None = None) -> None:
    node.op_type = operator
    names = {"axis", "axes", "keepdims", "select_last_index", "noop_with_empty_axes"}
    names |= {"kernel_shape", "strides", "pads", "auto_pad", "ceil_mode"} if operator.endswith("Pool") else set()
    for attribute in [*node.attribute]:
        if attribute.name not in names or operator in ("Identity", "Abs", "Tanh"):
            node.attribute.remove(attribute)
    _set_inputs(node, node.input if inputs is None else inputs)


def _set_inputs(node: onnx.NodeProto, inputs: Iterable[str]) -> None:
    node.input[:] = [*inputs]


def _change_attribute(node: onnx.NodeProto, name: str) -> None:
    """Change an attribute: swap the last two axes, select another axis, add 1 to the first size, or multiply by 1.5."""
    if all(attribute.name != name for attribute in node.attribute):
        node.attribute.append(onnx.helper.make_attribute(name, 0))
    attribute = next(attribute for attribute in node.attribute if attribute.name == name)
    if name == "perm":
        attribute.ints[-2:] = [attribute.ints[-1], attribute.ints[-2]]
    elif name == "axis":
        attribute.i = attribute.i - 1 if attribute.i else 1
    elif name in SIZE_ATTRIBUTES:
        attribute.ints[0] += 1
    else:
        attribute.f *= 1.5


def _list_nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for graph in (model.graph, *model.functions) for node in iter_nodes(graph)]


def _list_tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    nodes = _list_nodes(model)
    graphs = (model.graph, *(graph for node in nodes for graph in iter_subgraphs(node)))
    attributes = (attribute for node in nodes if node.op_type == "Constant" for attribute in node.attribute)
    initializers = [tensor for graph in graphs for tensor in graph.initializer]
    return initializers + [attribute.t for attribute in attributes if attribute.name == "value"]
