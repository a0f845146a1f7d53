"""Lazy ONNX values: Python expressions that record the nodes to write.

`op.MatMul(queries, keys)` is a value, and so are `queries + 1.0` and `op.Softmax(scores, axis=-1)`: what is given by
keyword is an attribute, and numbers become constants. A branch is the values it gives, the body of a loop a function of
values. Nothing is written before `attention_function.py` does it, and then only what is read, where it is read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, numpy_helper

from .traced_model import CONTRIB

LOWEST = -3.4028234e38  # float32 has no lower number

OF_SIZES = {"Add", "Cast", "Concat", "Div", "Max", "Min", "Mul", "Squeeze", "Sub", "Unsqueeze"}

_CREATED = itertools.count()


class Value:
    """A tensor.

    Attributes:
        node: What computes it; none for an input of a function, or what a step of a loop gets.
    """

    def __init__(self, node: Node | None = None) -> None:
        self.node = node

    @property
    def is_size(self) -> bool:
        """Whether it is the size of an axis, or numbers that follow from such sizes alone."""
        return self.node is not None and self.node.of_sizes

    def __add__(self, other: Operand) -> Value:
        return op.Add(self, other)

    def __sub__(self, other: Operand) -> Value:
        return op.Sub(self, other)

    def __mul__(self, other: Operand) -> Value:
        return op.Mul(self, other)

    def __truediv__(self, other: Operand) -> Value:
        return op.Div(self, other)

    def __floordiv__(self, other: Operand) -> Value:
        """Return the quotient of integers, neither of which is below 0."""
        return op.Div(self, other)

    def __and__(self, other: Value) -> Value:
        return op.And(self, other)

    def __or__(self, other: Value) -> Value:
        return op.Or(self, other)

    def __xor__(self, other: Operand) -> Value:
        return op.BitwiseXor(self, other)

    def __lt__(self, other: Operand) -> Value:
        return op.Less(self, other)

    def __le__(self, other: Operand) -> Value:
        return op.LessOrEqual(self, other)

    def __gt__(self, other: Operand) -> Value:
        return op.Greater(self, other)

    def __ge__(self, other: Operand) -> Value:
        return op.GreaterOrEqual(self, other)


Operand = Value | int | float | Sequence[int] | np.ndarray
Outputs = tuple[Value, ...]


class Graph(NamedTuple):
    """A branch, or the body of a loop.

    Attributes:
        results: What it gives.
        parameters: What a step of the loop gets.
        axes: How many axes each of the results of a loop has in a step; none for whether there is another step.
        kind: The element type of the results.
    """

    results: Outputs
    parameters: Outputs = ()
    axes: Sequence[int | None] = ()
    kind: int = TensorProto.FLOAT


class Node:
    """An operator with its inputs.

    Attributes:
        created: Nodes are created after those whose results they read; constants count as the first.
        outputs: Its results; `None` for one that is left out.
        steps: The parameters of loops around it that it depends on, by itself or by the graphs in it.
        of_sizes: Whether its results are sizes of axes, or numbers that follow from such sizes alone.
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
        self.op_type, self.inputs, self.domain = op_type, tuple(inputs), domain
        self.attributes, self.graphs = attributes or {}, graphs or {}
        self.outputs = [Value(self) if is_there else None for is_there in outputs]
        self.created = -1 if op_type == "Constant" else next(_CREATED)
        steps = {step for value in inputs for step in _steps(value)}
        for graph in self.graphs.values():
            steps |= {step for value in graph.results for step in _steps(value)} - {*graph.parameters}
        self.steps = frozenset(steps)
        made = [value.node for value in self.inputs if value is not None and value.node is not None]
        read = [node for node in made if node.op_type != "Constant"]
        all_are_sizes = len(made) == len(self.inputs) and bool(read) and all(node.of_sizes for node in read)
        self.of_sizes: bool = op_type == "Shape" or (op_type in OF_SIZES and all_are_sizes)

    @property
    def results(self) -> Outputs:
        """The outputs that are there."""
        return tuple(value for value in self.outputs if value is not None)


def _steps(value: Value | None) -> frozenset[Value]:
    if value is None:
        return frozenset()
    return value.node.steps if value.node is not None else frozenset({value} if isinstance(value, _Step) else ())


class _Step(Value):
    """What a step of a loop gets.

    Attributes:
        scalar: The element type of a scalar; None for what has the type of an element of an input.
    """

    def __init__(self, scalar: int | None = None) -> None:
        super().__init__()
        self.scalar = scalar


class _Operators:
    """The operators of a domain, by their names."""

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        def applied(*inputs: Operand | None, **attributes: Any) -> Value:
            return Node(op_type, _values(inputs), attributes, domain=self._domain).results[0]

        return applied


op = _Operators("")
contrib = _Operators(CONTRIB)


def outputs_of(op_type: str, outputs: Sequence[bool], *inputs: Operand | None, **attributes: Any) -> Outputs:
    """Return the outputs of an operator that has several: for each whether it is wanted."""
    return Node(op_type, _values(inputs), attributes, outputs=outputs).results


def constant(number: Operand) -> Value:
    """Return a number, or several, as a value; what is a value stays as it is.

    Integers become int64 and floats float32; an array keeps its dtype.
    """
    if isinstance(number, Value):
        return number
    if isinstance(number, np.ndarray):
        return _array(number.dtype.str, number.shape, number.tobytes())
    if isinstance(number, int | float):
        return _constant("value_int" if isinstance(number, int) else "value_float", number)
    return _constant("value_ints", tuple(number))


def _values(inputs: Sequence[Operand | None]) -> list[Value | None]:
    return [None if each is None else constant(each) for each in inputs]


@cache
def _constant(attribute: str, value: int | float | tuple[int, ...]) -> Value:
    return Node("Constant", attributes={attribute: value}).results[0]


@cache
def _array(dtype: str, shape: tuple[int, ...], content: bytes) -> Value:
    tensor = numpy_helper.from_array(np.frombuffer(content, dtype).reshape(shape))
    return Node("Constant", attributes={"value": tensor}).results[0]


def vector(*parts: Value | int) -> Value:
    """Return one vector of numbers and of vectors, such as a shape."""
    joined: list[Value | list[int]] = []
    for part in parts:
        if isinstance(part, int) and joined and isinstance(joined[-1], list):
            joined[-1].append(part)
        else:
            joined.append([part] if isinstance(part, int) else part)
    return op.Concat(*joined, axis=0) if len(joined) > 1 else constant(joined[0])


def reshape(value: Value, *sizes: Value | int, **attributes: int) -> Value:
    """Return a tensor in a shape of numbers and of vectors."""
    return op.Reshape(value, vector(*sizes), **attributes)


def up_to(count: Value) -> Value:
    """Return the numbers from 0 to one less than a vector of one number."""
    return op.Range(0, op.Squeeze(count), 1)


def branch(condition: Value, then: Outputs, otherwise: Outputs, kind: int = TensorProto.FLOAT) -> Outputs:
    """Return some values, of one element type, where a boolean scalar is true, and others elsewhere."""
    graphs = {"then_branch": Graph(then, kind=kind), "else_branch": Graph(otherwise, kind=kind)}
    return Node("If", [condition], graphs=graphs, outputs=[True] * len(then)).results


def scan(axes: Sequence[int], step: Callable[..., Outputs], *inputs: Value) -> Outputs:
    """Return the stacked results of a function of one element after another of each input, along the first axis.

    Args:
        axes: How many axes each of the results has in a step: onnxruntime 1.19 runs no body whose results have none.
        step: Maps an element of each input to the results.
        *inputs: The inputs.
    """
    parameters = tuple(_Step() for _ in inputs)
    body = Graph(step(*parameters), parameters, axes)
    attributes = {"num_scan_inputs": len(inputs)}
    return Node("Scan", inputs, attributes, graphs={"body": body}, outputs=[True] * len(axes)).results


def loop(axes: Sequence[int], step: Callable[..., Outputs], *inputs: Value) -> Outputs:
    """Return the same by a `Loop`: OpenVINO 2026.4 loads no `Scan` that reads what is around it."""
    number, goes_on = _Step(TensorProto.INT64), _Step(TensorProto.BOOL)
    results = step(*(op.Gather(each, number, axis=0) for each in inputs))
    body = Graph((goes_on, *results), (number, goes_on), (None, *axes))
    count = op.Squeeze(op.Shape(inputs[0], end=1))
    return Node("Loop", [count, constant(np.array(True))], graphs={"body": body}, outputs=[True] * len(axes)).results


def repeated(count: Value, axes: int, step: Callable[..., Outputs], *state: Value) -> Outputs:
    """Return what becomes of int64 tensors in so many steps.

    Args:
        count: How many steps: a vector of one number.
        axes: How many axes each of the tensors has, which it keeps.
        step: Maps the number of the step and the tensors to the next ones.
        *state: The tensors.
    """
    number, goes_on = _Step(TensorProto.INT64), _Step(TensorProto.BOOL)
    inner = tuple(_Step() for _ in state)
    results = step(number, *inner)
    body = Graph((goes_on, *results), (number, goes_on, *inner), (None, *[axes] * len(state)), TensorProto.INT64)
    inputs = [op.Squeeze(count), constant(np.array(True)), *state]
    return Node("Loop", inputs, graphs={"body": body}, outputs=[True] * len(state)).results
