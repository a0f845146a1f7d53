"""Lazy ONNX values: Python expressions that record the nodes to write.

`op.MatMul(queries, keys)` is a value, and so are `queries + 1.0` and `op.Softmax(scores, axis=-1)`: keywords are
attributes, and numbers become constants. A branch is the values that it returns, the body of a loop a function of
values. `function_builder.py` writes the nodes that a result depends on, each in the graph that reads it. Helpers have
the same names in `_operators/graph_builder.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, numpy_helper

from .traced_model import CONTRIB

LOWEST = -3.4028234e38  # float32 has no lower number

_SIZE_OPS = {"Add", "Cast", "Concat", "Div", "Max", "Min", "Mul", "Squeeze", "Sub", "Unsqueeze"}

_CREATED = itertools.count()


def _method(op_type: str) -> Callable[[Value, Operand], Value]:
    """Return the method of a Python operator."""
    return lambda value, other: Node(op_type, _values((value, other))).results[0]


class Value:
    """A tensor.

    Attributes:
        node: The node that computes the tensor, None for an input of a function or a loop variable.
    """

    def __init__(self, node: Node | None = None) -> None:
        self.node = node

    @property
    def is_size(self) -> bool:
        """True if the value is the size of an axis, or computed from such sizes alone."""
        return self.node is not None and self.node.of_sizes

    __add__ = _method("Add")
    __sub__ = _method("Sub")
    __mul__ = _method("Mul")
    __truediv__ = _method("Div")
    __floordiv__ = _method("Div")  # of integers that are not negative
    __and__ = _method("And")
    __or__ = _method("Or")
    __xor__ = _method("BitwiseXor")
    __lt__ = _method("Less")
    __le__ = _method("LessOrEqual")
    __gt__ = _method("Greater")
    __ge__ = _method("GreaterOrEqual")


Operand = Value | int | float | Sequence[int] | np.ndarray
Outputs = tuple[Value, ...]


class Graph(NamedTuple):
    """A branch, or the body of a loop.

    Attributes:
        results: The values that it returns.
        parameters: The loop variables of an iteration.
        axes: The number of axes of each result of a loop in an iteration; None for the condition.
        kind: The element type of the results.
    """

    results: Outputs
    parameters: Outputs = ()
    axes: Sequence[int | None] = ()
    kind: int = TensorProto.FLOAT


class Node:
    """An operator with its inputs.

    Attributes:
        created: The number of the node, -1 for constants. A node is created after the nodes whose results it reads, so
            that the order of these numbers is a topological order.
        outputs: Its results; None for one that is left out.
        steps: The loop variables of outer loops that it depends on, by itself or by its subgraphs.
        of_sizes: Whether its results are sizes of axes, or computed from such sizes alone.
    """

    def __init__(
        self,
        op_type: str,
        inputs: Sequence[Value | None] = (),
        attributes: Mapping[str, Any] | None = None,
        *,
        domain: str = "",
        graphs: Mapping[str, Graph] | None = None,
        outputs: Sequence[bool] = (True,),
    ) -> None:
        self.op_type = op_type
        self.inputs = tuple(inputs)
        self.domain = domain
        self.attributes = attributes or {}
        self.graphs = graphs or {}
        self.outputs = [Value(self) if is_used else None for is_used in outputs]
        self.created = -1 if op_type == "Constant" else next(_CREATED)
        self.steps = _loop_variables(self.inputs).union(
            *(_loop_variables(graph.results) - {*graph.parameters} for graph in self.graphs.values())
        )
        self.of_sizes = op_type == "Shape" or (op_type in _SIZE_OPS and _are_sizes(self.inputs))

    @property
    def results(self) -> Outputs:
        """The outputs that are not left out."""
        return tuple(value for value in self.outputs if value is not None)


def _loop_variables(values: Iterable[Value | None]) -> frozenset[Value]:
    """Return the loop variables that values depend on."""
    nodes = {value.node for value in values if value is not None and value.node is not None}
    variables = frozenset(value for value in values if isinstance(value, _LoopVariable))
    return variables.union(*(node.steps for node in nodes))


def _are_sizes(values: Sequence[Value | None]) -> bool:
    """Return whether values are sizes or constants, and not all constants."""
    nodes = [value.node for value in values if value is not None and value.node is not None]
    computed = [node for node in nodes if node.op_type != "Constant"]
    return len(nodes) == len(values) and bool(computed) and all(node.of_sizes for node in computed)


class _LoopVariable(Value):
    """A value that changes in each iteration of a loop.

    Attributes:
        scalar: The element type of a scalar; None for a tensor, which has the type of an element of an input.
    """

    def __init__(self, scalar: int | None = None) -> None:
        super().__init__()
        self.scalar = scalar


class _Operators:
    """The operators of a domain, by their names."""

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        return partial(self, op_type)

    def __call__(self, op_type: str, *inputs: Operand | None, **attributes: Any) -> Value:
        return Node(op_type, _values(inputs), attributes, domain=self._domain).results[0]


op = _Operators("")
contrib = _Operators(CONTRIB)


def outputs_of(op_type: str, outputs: Sequence[bool], *inputs: Operand | None, **attributes: Any) -> Outputs:
    """Return the outputs of an operator that has several; False in `outputs` leaves one out."""
    return Node(op_type, _values(inputs), attributes, outputs=outputs).results


def constant(value: Operand) -> Value:
    """Return a number or several as a tensor; a tensor is returned unchanged.

    Integers become int64 and floats float32; an array keeps its dtype.
    """
    if isinstance(value, Value):
        return value
    if isinstance(value, np.ndarray):
        return _array(value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, int | float):
        return _constant("value_int" if isinstance(value, int) else "value_float", value)
    return _constant("value_ints", tuple(value))


def _values(inputs: Sequence[Operand | None]) -> list[Value | None]:
    return [None if operand is None else constant(operand) for operand in inputs]


@cache
def _constant(attribute: str, value: int | float | tuple[int, ...]) -> Value:
    return Node("Constant", attributes={attribute: value}).results[0]


@cache
def _array(dtype: str, shape: tuple[int, ...], content: bytes) -> Value:
    tensor = numpy_helper.from_array(np.frombuffer(content, dtype).reshape(shape))
    return Node("Constant", attributes={"value": tensor}).results[0]


def vector(*parts: Value | int) -> Value:
    """Return the 1-D tensor that integers and 1-D tensors join to, such as a shape."""
    joined: list[Value | list[int]] = []
    for part in parts:
        if isinstance(part, int) and joined and isinstance(joined[-1], list):
            joined[-1].append(part)
        else:
            joined.append([part] if isinstance(part, int) else part)
    return op.Concat(*joined, axis=0) if len(joined) > 1 else constant(joined[0])


def reshape(tensor: Value, *dims: Value | int, **attributes: int) -> Value:
    """Return a tensor in the shape that integers and 1-D tensors join to."""
    return op.Reshape(tensor, vector(*dims), **attributes)


def up_to(count: Value) -> Value:
    """Return the integers from 0 to one less than a 1-D tensor of one number."""
    return op.Range(0, op.Squeeze(count), 1)


def branch(condition: Value, then: Outputs, otherwise: Outputs, kind: int = TensorProto.FLOAT) -> Outputs:
    """Return `then` if a boolean scalar is true, else `otherwise`, values of one element type."""
    graphs = {"then_branch": Graph(then, kind=kind), "else_branch": Graph(otherwise, kind=kind)}
    return Node("If", [condition], graphs=graphs, outputs=[True] * len(then)).results


def scan(axes: Sequence[int], step: Callable[..., Outputs], *inputs: Value) -> Outputs:
    """Return the stacked results of a function of the elements of the inputs along the first axis, by a `Scan`.

    Args:
        axes: The number of axes of each result of `step`, at least 1: onnxruntime 1.19 runs no body without axes.
        step: Maps an element of each input to the results.
        *inputs: The inputs.
    """
    parameters = tuple(_LoopVariable() for _ in inputs)
    body = Graph(step(*parameters), parameters, axes)
    attributes = {"num_scan_inputs": len(inputs)}
    return Node("Scan", inputs, attributes, graphs={"body": body}, outputs=[True] * len(axes)).results


def loop(axes: Sequence[int], step: Callable[..., Outputs], *inputs: Value) -> Outputs:
    """Return the same as `scan`, by a `Loop`: OpenVINO 2026.4 loads no `Scan` that reads values of the outer graph."""
    index, condition = _LoopVariable(TensorProto.INT64), _LoopVariable(TensorProto.BOOL)
    results = step(*(op.Gather(tensor, index, axis=0) for tensor in inputs))
    body = Graph((condition, *results), (index, condition), (None, *axes))
    count = op.Squeeze(op.Shape(inputs[0], end=1))
    return Node("Loop", [count, constant(np.array(True))], graphs={"body": body}, outputs=[True] * len(axes)).results


def repeated(count: Value, step: Callable[..., Outputs], *state: Value, rank: int) -> Outputs:
    """Return the state after so many iterations of a `Loop`.

    Args:
        count: The number of iterations, a 1-D tensor of one number.
        step: Maps the index of the iteration (a scalar) and the state to the next state.
        *state: Int64 tensors.
        rank: The number of axes of each of them, which does not change.
    """
    index, condition = _LoopVariable(TensorProto.INT64), _LoopVariable(TensorProto.BOOL)
    before = tuple(_LoopVariable() for _ in state)
    results = step(index, *before)
    body = Graph((condition, *results), (index, condition, *before), (None, *[rank] * len(state)), TensorProto.INT64)
    inputs = [op.Squeeze(count), constant(np.array(True)), *state]
    return Node("Loop", inputs, graphs={"body": body}, outputs=[True] * len(state)).results
