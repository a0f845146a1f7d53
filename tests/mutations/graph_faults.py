"""Faults that an exporter may make, put into an ONNX graph one at a time."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

FAMILIES = (  # of operators with the same inputs: each may be taken for the two that follow it
    "Add Sub Mul Div",
    "Max Min",
    "And Or Xor",
    "Tanh Sigmoid Erf",
    "Relu Abs Softplus LeakyRelu Elu Selu",
    "Exp Softplus Abs",
    "Sqrt Neg Abs",
    "ReduceSum ReduceMean ReduceMax ReduceMin",
    "ArgMax ArgMin",
    "GlobalAveragePool GlobalMaxPool",
    "AveragePool MaxPool",
    "Softmax LogSoftmax Hardmax",
    "Floor Ceil Round",
    "Equal Less",
)
EXCHANGED: dict[str, list[str]] = {}
for family in map(str.split, FAMILIES):
    for index, operator in enumerate(family):
        others = [*family[index + 1 :], *family[:index]][:2]
        EXCHANGED[operator] = list(dict.fromkeys([*EXCHANGED.get(operator, []), *others]))
STRICT = {"Less": "LessOrEqual", "LessOrEqual": "Less", "Greater": "GreaterOrEqual", "GreaterOrEqual": "Greater"}
TURNED = {"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
ORDERED = ("Sub", "Div", "Pow", "MatMul", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Mod")
KEEPS_SHAPE = (*EXCHANGED, "Cast", "Not", "Reciprocal", "Log", "Pow", "Clip", "Where", "Transpose", "Identity", "Round")
WITH_BIAS = {"Conv": 2, "Gemm": 2, "ConvTranspose": 2, "GRU": 3, "LSTM": 3, "LayerNormalization": 2}
WITH_AXIS = ("Softmax", "LogSoftmax", "Concat", "Gather", "ArgMax", "Split", "CumSum", "LayerNormalization")

Change = Callable[[onnx.ModelProto], None]


class GraphFault(NamedTuple):
    """One fault: what it is, and what makes it of a copy of the model."""

    kind: str
    what: str
    change: Change


def graph_faults(model: onnx.ModelProto, rng: np.random.Generator) -> list[GraphFault]:
    """Every fault that fits a model, those of its subgraphs and functions included, in no order."""
    found = [
        fault
        for place, nodes in enumerate(_node_lists(model))
        for index, node in enumerate(nodes)
        for fault in _of_node(place, index, node)
    ]
    found += [fault for place, tensor in enumerate(_tensors(model)) for fault in _of_tensor(place, tensor, rng)]
    return [found[index] for index in rng.permutation(len(found))]


def mutated(model: onnx.ModelProto, fault: GraphFault) -> onnx.ModelProto:
    """A copy of the model with the fault."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fault.change(copy)
    return copy


def _of_node(place: int, index: int, node: onnx.NodeProto) -> Iterator[GraphFault]:
    def fault(kind: str, what: str, change: Callable[[onnx.NodeProto], None]) -> GraphFault:
        return GraphFault(
            kind, f"{what} at {node.name or node.output[0]}", lambda m: change(_node_lists(m)[place][index])
        )

    operator, given = node.op_type, [name for name in node.input if name]
    if node.domain not in ("", "ai.onnx"):
        return
    for other in EXCHANGED.get(operator, ()):
        yield fault("exchanged", f"{operator} to {other}", lambda n, other=other: _become(n, other))
    if operator in KEEPS_SHAPE and given:
        kept = 1 if operator == "Where" else 0
        yield fault("dropped", operator, lambda n: _become(n, "Identity", [n.input[kept]]))
    if operator in ORDERED and len(given) == 2:
        yield fault("swapped", f"inputs of {operator}", lambda n: _set_inputs(n, [n.input[1], n.input[0]]))
    if operator in STRICT:
        yield fault("comparison", f"{operator} to {STRICT[operator]}", lambda n: _become(n, STRICT[operator]))
        yield fault("comparison", f"{operator} to {TURNED[operator]}", lambda n: _become(n, TURNED[operator]))
    if operator == "Where":
        yield fault("mask", "inverted", lambda n: _set_inputs(n, [n.input[0], n.input[2], n.input[1]]))
    if operator == "Not":
        yield fault("mask", "not inverted", lambda n: _become(n, "Identity"))
    if operator in WITH_BIAS and len(node.input) > WITH_BIAS[operator] and node.input[WITH_BIAS[operator]]:
        at = WITH_BIAS[operator]
        yield fault(
            "bias", f"of {operator}", lambda n: _set_inputs(n, ["" if i == at else x for i, x in enumerate(n.input)])
        )
    if operator == "Transpose":
        yield fault("axes", "in another order", _turn_permutation)
    if operator in WITH_AXIS:
        yield fault("axes", f"axis of {operator}", _move_axis)
    for attribute in node.attribute:
        is_factor = attribute.name in ("alpha", "beta", "epsilon", "scale") and attribute.f
        is_size = attribute.name in ("strides", "dilations", "pads", "kernel_shape") and len(attribute.ints) > 1
        if is_factor or is_size:
            yield fault("constant", f"{attribute.name} of {operator}", lambda n, name=attribute.name: _raise(n, name))


def _of_tensor(place: int, tensor: onnx.TensorProto, rng: np.random.Generator) -> Iterator[GraphFault]:
    array = numpy_helper.to_array(tensor)
    if array.size == 0 or array.dtype.kind not in "fiub":
        return

    def fault(kind: str, what: str, change: Callable[[np.ndarray], np.ndarray]) -> GraphFault:
        def apply(model: onnx.ModelProto) -> None:
            found = _tensors(model)[place]
            changed = np.ascontiguousarray(change(numpy_helper.to_array(found).copy())).astype(array.dtype)
            name = found.name
            found.CopyFrom(numpy_helper.from_array(changed, name))

        return GraphFault(kind, f"{what} of {tensor.name or 'a constant'} {array.shape}", apply)

    at = tuple(int(rng.integers(size)) for size in array.shape)

    def one(by: Callable[[np.ndarray], object]) -> Callable[[np.ndarray], np.ndarray]:
        def change(values: np.ndarray) -> np.ndarray:
            values[at] = by(values[at])
            return values

        return change

    if array.dtype.kind == "f":
        spread = float(np.std(array.astype(np.float64))) or abs(float(array.reshape(-1)[0])) or 1.0
        yield fault("weight", "2 % more", lambda values: values * 1.02)
        yield fault("weight", "2 % less", lambda values: values * 0.98)
        if array.size > 1:
            yield fault("weight", f"element {at}", one(lambda value: value + spread))
            yield fault("bias" if array.ndim == 1 else "weight", "zeros instead", np.zeros_like)
        if array.ndim > 1 and array.shape[-1] == array.shape[-2]:
            yield fault("axes", "transposed", lambda values: values.swapaxes(-1, -2))
        if array.ndim > 1:
            yield fault("axes", "rows turned by one", lambda values: np.roll(values, 1, 0))
    elif array.dtype.kind in "iu":
        yield fault("off by one", f"element {at}, more", one(lambda value: value + 1))
        yield fault("off by one", f"element {at}, less", one(lambda value: value - 1))
    else:
        yield fault("mask", "inverted", np.logical_not)


def _become(node: onnx.NodeProto, operator: str, inputs: list[str] | None = None) -> None:
    node.op_type = operator
    kept = {"axis", "axes", "keepdims", "select_last_index", "noop_with_empty_axes"} | (
        {"kernel_shape", "strides", "pads", "auto_pad", "ceil_mode"} if operator.endswith("Pool") else set()
    )
    if operator in ("Identity", "Abs", "Tanh"):
        kept = set()
    attributes = [each for each in node.attribute if each.name in kept]
    del node.attribute[:]
    node.attribute.extend(attributes)
    if inputs is not None:
        _set_inputs(node, inputs)


def _set_inputs(node: onnx.NodeProto, inputs: list[str]) -> None:
    del node.input[:]
    node.input.extend(inputs)


def _attribute(node: onnx.NodeProto, name: str) -> onnx.AttributeProto:
    found = next((each for each in node.attribute if each.name == name), None)
    if found is None:
        node.attribute.append(onnx.helper.make_attribute(name, 0))
        return node.attribute[-1]
    return found


def _turn_permutation(node: onnx.NodeProto) -> None:
    order = _attribute(node, "perm").ints
    order[-2:] = [order[-1], order[-2]]


def _move_axis(node: onnx.NodeProto) -> None:
    attribute = _attribute(node, "axis")
    attribute.i = attribute.i - 1 if attribute.i else 1


def _raise(node: onnx.NodeProto, name: str) -> None:
    attribute = _attribute(node, name)
    if attribute.ints:
        attribute.ints[0] += 1
    else:
        attribute.f *= 1.5


def _bodies(model: onnx.ModelProto) -> list:
    """The graph, the functions, and the graphs within their nodes."""
    found = [model.graph, *model.functions]
    for body in found:  # which grows
        attributes = [attribute for node in body.node for attribute in node.attribute]
        found += [graph for each in attributes for graph in ([each.g] if each.HasField("g") else each.graphs)]
    return found


def _node_lists(model: onnx.ModelProto) -> list:
    return [body.node for body in _bodies(model)]


def _tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    bodies = _bodies(model)
    found = [tensor for body in bodies if isinstance(body, onnx.GraphProto) for tensor in body.initializer]
    constants = [node for body in bodies for node in body.node if node.op_type == "Constant"]
    return found + [each.t for node in constants for each in node.attribute if each.name == "value"]
