"""Lazy ONNX values: Python expressions that record the nodes to write.

`op.MatMul(queries, keys)` is a value, and so are `queries + 1.0` and `op.Softmax(scores, axis=-1)`: keywords are
attributes, and numbers become constants. A branch is a tuple of values, the body of a loop a function of values.
`function_builder.py` writes the nodes that a result depends on, each in the graph that reads it. Helpers have the same
names in `_operators/graph_builder.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto, numpy_helper

from .traced_model import CONTRIB

FLOAT32_MIN = -3.4028234e38  # the lowest finite float32

# Operators whose results are shape values if all inputs are: onnxruntime computes them on the host
_SHAPE_VALUE_OPS = {"Add", "Cast", "Concat", "Div", "Max", "Min", "Mul", "Squeeze", "Sub", "Unsqueeze"}

_CREATION_INDICES = itertools.count()


def _make_operator_method(op_type: str) -> Callable[[Value, Operand], Value]:
    """Return the method for a Python operator, such as `__add__`, that records a node."""
    return lambda value, other: Node(op_type, _to_values((value, other))).results[0]


class Value:
    """Tensor, computed by `node`; None for an input of a function or a loop variable."""

    def __init__(self, node: Node | None = None) -> None:
        self.node = node

    @property
    def is_shape_value(self) -> bool:
        """True if the value is computed from shapes and constants only."""
        return self.node is not None and self.node.is_shape_value

    __add__ = _make_operator_method("Add")
    __sub__ = _make_operator_method("Sub")
    __mul__ = _make_operator_method("Mul")
    __truediv__ = _make_operator_method("Div")
    __floordiv__ = _make_operator_method("Div")  # equal to `//` for integers of 0 or more only
    __and__ = _make_operator_method("And")
    __or__ = _make_operator_method("Or")
    __xor__ = _make_operator_method("BitwiseXor")
    __lt__ = _make_operator_method("Less")
    __le__ = _make_operator_method("LessOrEqual")
    __gt__ = _make_operator_method("Greater")
    __ge__ = _make_operator_method("GreaterOrEqual")


Operand = Value | int | float | Sequence[int] | np.ndarray
Outputs = tuple[Value, ...]


class Graph(NamedTuple):
    """Subgraph: a branch, or the body of a loop."""

    results: Outputs
    parameters: Outputs = ()  # loop variables of an iteration
    # Rank of each result of a loop body in an iteration; None for the condition
    ranks: Sequence[int | None] = ()
    elem_type: int = TensorProto.FLOAT  # of the results


class Node:
    """Operator with its inputs.

    Attributes:
        creation_index: Index of the node, -1 for constants.
        outputs: Results of the operator; None for an optional output that is omitted.
        loop_variables: Loop variables of outer loops that the node or its subgraphs depend on.
        is_shape_value: Whether the results are computed from shapes and constants only.
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
        # A node is created after the nodes whose results it reads: the order of creation is a topological order
        self.creation_index = -1 if op_type == "Constant" else next(_CREATION_INDICES)
        self.loop_variables = _collect_loop_variables(self.inputs).union(
            *(_collect_loop_variables(graph.results) - {*graph.parameters} for graph in self.graphs.values())
        )
        self.is_shape_value = op_type == "Shape" or (op_type in _SHAPE_VALUE_OPS and _are_shape_values(self.inputs))

    @property
    def results(self) -> Outputs:
        """Outputs that are not omitted."""
        return tuple(value for value in self.outputs if value is not None)


def _collect_loop_variables(values: Iterable[Value | None]) -> frozenset[Value]:
    """Return the loop variables that values depend on."""
    nodes = {value.node for value in values if value is not None and value.node is not None}
    variables = frozenset(value for value in values if isinstance(value, _LoopVariable))
    return variables.union(*(node.loop_variables for node in nodes))


def _are_shape_values(values: Sequence[Value | None]) -> bool:
    """Return True if all values are shape values or constants, and at least one is a shape value."""
    nodes = [value.node for value in values if value is not None and value.node is not None]
    computed = [node for node in nodes if node.op_type != "Constant"]
    return len(nodes) == len(values) and bool(computed) and all(node.is_shape_value for node in computed)


class _LoopVariable(Value):
    """Value that changes in each iteration of a loop; `scalar` is the element type of a scalar, None for tensors."""

    def __init__(self, scalar: int | None = None) -> None:
        super().__init__()
        self.scalar = scalar


class _Operators:
    """Operators of a domain, as methods by operator name."""

    def __init__(self, domain: str) -> None:
        self._domain = domain

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        return partial(self, op_type)

    def __call__(self, op_type: str, *inputs: Operand | None, **attributes: Any) -> Value:
        return Node(op_type, _to_values(inputs), attributes, domain=self._domain).results[0]


op = _Operators("")
contrib = _Operators(CONTRIB)


def multi_output(op_type: str, outputs: Sequence[bool], *inputs: Operand | None, **attributes: Any) -> Outputs:
    """Return the outputs of an operator with several outputs; False in `outputs` omits an optional one."""
    return Node(op_type, _to_values(inputs), attributes, outputs=outputs).results


def constant(value: Operand) -> Value:
    """Return numbers as a tensor: integers as int64, floats as float32, arrays in their dtype; tensors unchanged."""
    if isinstance(value, Value):
        return value
    if isinstance(value, np.ndarray):
        return _make_array(value.dtype.str, value.shape, value.tobytes())
    if isinstance(value, int | float):
        return _make_constant("value_int" if isinstance(value, int) else "value_float", value)
    return _make_constant("value_ints", tuple(value))


def _to_values(inputs: Sequence[Operand | None]) -> list[Value | None]:
    return [None if operand is None else constant(operand) for operand in inputs]


@cache
def _make_constant(attribute: str, value: int | float | tuple[int, ...]) -> Value:
    return Node("Constant", attributes={attribute: value}).results[0]


@cache
def _make_array(dtype: str, shape: tuple[int, ...], content: bytes) -> Value:
    tensor = numpy_helper.from_array(np.frombuffer(content, dtype).reshape(shape))
    return Node("Constant", attributes={"value": tensor}).results[0]


def concat_shape(*parts: Value | int) -> Value:
    """Concatenate integers and int64 1-D tensors to a 1-D tensor, such as a shape."""
    operands: list[Value | list[int]] = []
    for part in parts:
        if isinstance(part, int) and operands and isinstance(operands[-1], list):
            operands[-1].append(part)
        else:
            operands.append([part] if isinstance(part, int) else part)
    return op.Concat(*operands, axis=0) if len(operands) > 1 else constant(operands[0])


def reshape(tensor: Value, *dims: Value | int, **attributes: int) -> Value:
    """Reshape a tensor to the shape that integers and 1-D tensors concatenate to."""
    return op.Reshape(tensor, concat_shape(*dims), **attributes)


def arange(count: Value) -> Value:
    """Return 0 to count - 1, int64 (count,), for a count of shape (1,)."""
    return op.Range(0, op.Squeeze(count), 1)


def if_else(condition: Value, then: Outputs, otherwise: Outputs, elem_type: int = TensorProto.FLOAT) -> Outputs:
    """Return `then` if a boolean scalar is True, else `otherwise`; all have one element type."""
    graphs = {"then_branch": Graph(then, elem_type=elem_type), "else_branch": Graph(otherwise, elem_type=elem_type)}
    return Node("If", [condition], graphs=graphs, outputs=[True] * len(then)).results


def scan(ranks: Sequence[int], step: Callable[..., Outputs], *inputs: Value) -> Outputs:
    """Apply `step` to the elements of inputs (n, ...) by a `Scan`, and stack its results to (n, ...).

    `ranks` has the rank of each result of `step`: at least 1, since onnxruntime 1.19 runs no body that returns scalars.
    """
    parameters = tuple(_LoopVariable() for _ in inputs)
    body = Graph(step(*parameters), parameters, ranks)
    attributes = {"num_scan_inputs": len(inputs)}
    return Node("Scan", inputs, attributes, graphs={"body": body}, outputs=[True] * len(ranks)).results


def for_each(ranks: Sequence[int], step: Callable[..., Outputs], *inputs: Value) -> Outputs:
    """Apply `step` to the elements of inputs (n, ...) by a `Loop`, and stack its results, as `scan` does."""
    # OpenVINO 2026.4 loads no `Scan` that reads values of the outer graph
    index, condition = _LoopVariable(TensorProto.INT64), _LoopVariable(TensorProto.BOOL)
    results = step(*(op.Gather(tensor, index, axis=0) for tensor in inputs))
    body = Graph((condition, *results), (index, condition), (None, *ranks))
    count = op.Squeeze(op.Shape(inputs[0], end=1))
    return Node("Loop", [count, constant(np.array(True))], graphs={"body": body}, outputs=[True] * len(ranks)).results


def for_loop(count: Value, step: Callable[..., Outputs], *state: Value, rank: int) -> Outputs:
    """Return the state after a number of iterations of a `Loop`.

    Args:
        count: Number of iterations, int64 (1,).
        step: Maps the index of the iteration (int64 scalar) and the state to the next state.
        *state: Int64 tensors, whose shapes `step` may change.
        rank: Rank of each tensor of the state, in all iterations.
    """
    index, condition = _LoopVariable(TensorProto.INT64), _LoopVariable(TensorProto.BOOL)
    variables = tuple(_LoopVariable() for _ in state)
    results = step(index, *variables)
    body = Graph((condition, *results), (index, condition, *variables), (None, *[rank] * len(state)), TensorProto.INT64)
    inputs = [op.Squeeze(count), constant(np.array(True)), *state]
    return Node("Loop", inputs, graphs={"body": body}, outputs=[True] * len(state)).results
