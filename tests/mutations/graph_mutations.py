"""Faults that an exporter may make, put into an ONNX graph one at a time."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import numpy_helper

from keras_attn_export._onnx.traversal import iter_nodes, iter_subgraphs

# Operators with the same inputs, by families: each may be taken for the two that follow it.
FAMILIES = """
    Add Sub Mul Div, Max Min, And Or Xor, Tanh Sigmoid Erf, Relu Abs Softplus LeakyRelu Elu Selu, Exp Softplus Abs,
    Sqrt Neg Abs, ReduceSum ReduceMean ReduceMax ReduceMin, ArgMax ArgMin, GlobalAveragePool GlobalMaxPool,
    AveragePool MaxPool, Softmax LogSoftmax Hardmax, Floor Ceil Round, Equal Less
"""
EXCHANGED: dict[str, list[str]] = {}
for family in map(str.split, FAMILIES.split(",")):
    for index, operator in enumerate(family):
        others = [*family[index + 1 :], *family[:index]][:2]
        EXCHANGED[operator] = list(dict.fromkeys([*EXCHANGED.get(operator, []), *others]))
STRICT = {"Less": "LessOrEqual", "LessOrEqual": "Less", "Greater": "GreaterOrEqual", "GreaterOrEqual": "Greater"}
TURNED = {"Less": "Greater", "LessOrEqual": "GreaterOrEqual", "Greater": "Less", "GreaterOrEqual": "LessOrEqual"}
ORDERED = ("Sub", "Div", "Pow", "MatMul", "Less", "Greater", "LessOrEqual", "GreaterOrEqual", "Mod")
KEEPS_SHAPE = (*EXCHANGED, "Cast", "Not", "Reciprocal", "Log", "Pow", "Clip", "Where", "Transpose", "Identity", "Round")
WITH_BIAS = {"Conv": 2, "Gemm": 2, "ConvTranspose": 2, "GRU": 3, "LSTM": 3, "LayerNormalization": 2}
WITH_AXIS = ("Softmax", "LogSoftmax", "Concat", "Gather", "ArgMax", "Split", "CumSum", "LayerNormalization")

SIZES, FACTORS = ("strides", "dilations", "pads", "kernel_shape"), ("alpha", "beta", "epsilon", "scale")

Change = tuple[str, str, Callable[[Any], None]]  # its kind, what it is, and what makes it of a node or tensor


class GraphFault(NamedTuple):
    """One fault: what it is, which node or tensor has it, and what makes it."""

    kind: str
    what: str
    parts: Callable[[onnx.ModelProto], list]
    index: int
    change: Callable[[Any], None]


def graph_faults(model: onnx.ModelProto, rng: np.random.Generator) -> list[GraphFault]:
    """Every fault that fits a model, those of its subgraphs and functions included, in no order."""
    changes = ((_nodes, _of_node), (_tensors, partial(_of_tensor, rng=rng)))
    found = [
        GraphFault(kind, what, parts, index, change)
        for parts, changes_of in changes
        for index, part in enumerate(parts(model))
        for kind, what, change in changes_of(part)
    ]
    return [found[index] for index in rng.permutation(len(found))]


def mutated(model: onnx.ModelProto, fault: GraphFault) -> onnx.ModelProto:
    """A copy of the model with the fault."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    fault.change(fault.parts(copy)[fault.index])
    return copy


def _of_node(node: onnx.NodeProto) -> Iterator[Change]:
    operator, inputs, at = node.op_type, [*node.input], f"at {node.name or node.output[0]}"
    bias = WITH_BIAS.get(operator, len(inputs))
    if node.domain not in ("", "ai.onnx"):
        return
    for other in EXCHANGED.get(operator, ()):
        yield "exchanged", f"{operator} to {other} {at}", partial(_become, operator=other)
    if operator in KEEPS_SHAPE and any(inputs):
        kept = inputs[1:2] if operator == "Where" else inputs[:1]
        yield "dropped", f"{operator} {at}", partial(_become, operator="Identity", inputs=kept)
    if operator in ORDERED:
        yield "swapped", f"inputs of {operator} {at}", partial(_connect, inputs=inputs[::-1])
    for other in (table[operator] for table in (STRICT, TURNED) if operator in table):
        yield "comparison", f"{operator} to {other} {at}", partial(_become, operator=other)
    if operator == "Where":
        yield "mask", f"inverted {at}", partial(_connect, inputs=[inputs[0], inputs[2], inputs[1]])
    if operator == "Not":
        yield "mask", f"not inverted {at}", partial(_become, operator="Identity")
    if any(inputs[bias : bias + 1]):
        without = [*inputs[:bias], "", *inputs[bias + 1 :]]
        yield "bias", f"of {operator} {at}", partial(_connect, inputs=without)
    if operator == "Transpose":
        yield "axes", f"in another order {at}", partial(_move, name="perm")
    if operator in WITH_AXIS:
        yield "axes", f"axis of {operator} {at}", partial(_move, name="axis")
    for each in node.attribute:
        if (each.name in FACTORS and each.f) or (each.name in SIZES and len(each.ints) > 1):
            yield "constant", f"{each.name} of {operator} {at}", partial(_move, name=each.name)


def _of_tensor(tensor: onnx.TensorProto, rng: np.random.Generator) -> Iterator[Change]:
    array = numpy_helper.to_array(tensor)
    if array.size == 0 or array.dtype.kind not in "fiub":
        return
    at = tuple(int(rng.integers(size)) for size in array.shape)
    here = np.zeros(array.shape, bool)
    here[at] = True
    changed: dict[tuple[str, str], np.ndarray] = {}
    if array.dtype.kind == "f":
        spread = float(np.std(array.astype(np.float64))) or abs(float(array.reshape(-1)[0])) or 1.0
        changed["weight", "2 % more"] = array * 1.02
        changed["weight", "2 % less"] = array * 0.98
        if array.size > 1:
            changed["weight", f"element {at}"] = np.where(here, array + spread, array)
            changed["bias" if array.ndim == 1 else "weight", "zeros instead"] = np.zeros_like(array)
        if array.ndim > 1 and array.shape[-1] == array.shape[-2]:
            changed["axes", "transposed"] = array.swapaxes(-1, -2)
        if array.ndim > 1:
            changed["axes", "rows turned by one"] = np.roll(array, 1, 0)
    elif array.dtype.kind in "iu":
        changed["off by one", f"element {at}, more"] = np.where(here, array + 1, array)
        changed["off by one", f"element {at}, less"] = np.where(here, array - 1, array)
    else:
        changed["mask", "inverted"] = ~array
    for (kind, of_what), other in changed.items():
        put = numpy_helper.from_array(np.ascontiguousarray(other).astype(array.dtype), tensor.name)
        what = f"{of_what} of {tensor.name or 'a constant'} {array.shape}"
        yield kind, what, lambda tensor, put=put: tensor.CopyFrom(put)


def _become(node: onnx.NodeProto, operator: str, inputs: list[str] | None = None) -> None:
    node.op_type = operator
    kept = {"axis", "axes", "keepdims", "select_last_index", "noop_with_empty_axes"}
    kept |= {"kernel_shape", "strides", "pads", "auto_pad", "ceil_mode"} if operator.endswith("Pool") else set()
    for each in [*node.attribute]:
        if each.name not in kept or operator in ("Identity", "Abs", "Tanh"):
            node.attribute.remove(each)
    _connect(node, node.input if inputs is None else inputs)


def _connect(node: onnx.NodeProto, inputs: Iterable[str]) -> None:
    node.input[:] = [*inputs]


def _move(node: onnx.NodeProto, name: str) -> None:
    """Takes another order of axes, another axis, a larger first size, or a factor of half as much again."""
    if all(each.name != name for each in node.attribute):
        node.attribute.append(onnx.helper.make_attribute(name, 0))
    attribute = next(each for each in node.attribute if each.name == name)
    if name == "perm":
        attribute.ints[-2:] = [attribute.ints[-1], attribute.ints[-2]]
    elif name == "axis":
        attribute.i = attribute.i - 1 if attribute.i else 1
    elif name in SIZES:
        attribute.ints[0] += 1
    else:
        attribute.f *= 1.5


def _nodes(model: onnx.ModelProto) -> list[onnx.NodeProto]:
    return [node for each in (model.graph, *model.functions) for node in iter_nodes(each)]


def _tensors(model: onnx.ModelProto) -> list[onnx.TensorProto]:
    nodes = _nodes(model)
    graphs = (model.graph, *(graph for node in nodes for graph in iter_subgraphs(node)))
    constants = (each for node in nodes if node.op_type == "Constant" for each in node.attribute)
    return [*(tensor for graph in graphs for tensor in graph.initializer)] + [
        each.t for each in constants if each.name == "value"
    ]
