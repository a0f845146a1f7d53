"""What every operator of this folder is written with: nodes and constants in a graph of tf2onnx."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._internals.tf2onnx_internals import make_name

Value = str | int | list[int] | np.ndarray | np.generic  # a tensor by its name, or a constant: whole numbers are int64
Shape = list[int] | None


def constant_of(graph: Any, name: str) -> np.ndarray | None:
    """Return what a tensor always is; None where that is not known."""
    node = graph.get_node_by_output(name)
    return np.asarray(node.get_tensor_value(as_list=False)) if node is not None and node.is_const() else None


class Writer:
    """Writes operators of ONNX into a graph.

    Attributes:
        graph: The graph, of tf2onnx.

    Example:
        >>> write = Writer(graph)  # doctest: +SKIP
        >>> largest = write("ReduceMax", scores, [-1], keepdims=1)  # doctest: +SKIP
    """

    def __init__(self, graph: Any) -> None:
        self.graph = graph

    def __call__(self, op: str, *inputs: Value, gives: int | None = None, **attributes: Any) -> str:
        """Write an operator and return its output, whose dtype is `gives`, or what ONNX infers."""
        return self._made(op, inputs, attributes, dtypes=None if gives is None else [gives])

    def sizes(self, tensor: str, start: int = 0, end: int = 2**31) -> str:
        """Return the sizes of some axes; tf2onnx's optimizers do not know that `Shape` can be of some."""
        return self("Slice", self("Shape", tensor), [start], [end], [0])

    def constant(self, value: Value) -> str:
        """Return the name of a constant; that of a tensor as it is."""
        if isinstance(value, str):
            return value
        array = np.asarray(value, np.int64) if isinstance(value, int | list) else np.asarray(value)
        return str(self.graph.make_const(make_name("constant"), array).output[0])

    def named(self, output: str, op: str, *inputs: Value, shape: Shape, gives: int, **attributes: Any) -> None:
        """Write an operator whose output has this name."""
        self._made(op, inputs, attributes, outputs=[output], shapes=[shape], dtypes=[gives])

    def _made(self, op: str, inputs: tuple[Value, ...], attributes: dict[str, Any], **options: Any) -> str:
        node = self.graph.make_node(op, [self.constant(each) for each in inputs], attr=attributes, **options)
        return str(node.output[0])


class Replacement(Writer):
    """Writes what stands in the place of a node, which is removed: `last` makes what it made.

    Attributes:
        inputs: The names of its inputs.
        shape: That of its output, as far as it is known.
        dtype: That of its output.
    """

    def __init__(self, graph: Any, node: Any) -> None:
        super().__init__(graph)
        self.inputs: list[str] = list(node.input)
        (self.shape,), (self.dtype,) = node.output_shapes, node.output_dtypes
        self._output, self._name = node.output[0], node.name
        graph.remove_node(node.name)

    def last(self, op: str, *inputs: Value, **attributes: Any) -> None:
        """Write the operator that makes the output, with the shape and the dtype that are told by then."""
        options = {"shapes": [self.shape], "dtypes": [self.dtype], "name": self._name}
        self._made(op, inputs, attributes, outputs=[self._output], **options)
