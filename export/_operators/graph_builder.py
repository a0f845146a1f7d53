"""Build nodes and constants in a tf2onnx graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

from .._private_api.tf2onnx_internals import make_name

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
        return str(self.graph.make_const(make_name("constant"), _array(value)).output[0])

    def all_of(self, op: str, count: int, *inputs: Value, **attributes: Any) -> list[str]:
        """Write an operator and return its outputs."""
        names = [self.constant(each) for each in inputs]
        return [str(name) for name in self.graph.make_node(op, names, attr=attributes, output_count=count).output]

    def computed(self, op: str, *inputs: Value, **attributes: Any) -> Value:
        """Return what an operator gives for constants, computed here; of anything else it is written."""
        if any(isinstance(each, str) for each in inputs):
            return self(op, *inputs, **attributes)
        arrays = {str(number): _array(each) for number, each in enumerate(inputs) if not isinstance(each, str)}
        node = helper.make_node(op, [*arrays], ["found"], **attributes)
        found: list[np.ndarray] = ReferenceEvaluator(node).run(None, arrays)
        return np.asarray(found[0])

    def repeated(self, count: Value, state: Sequence[str], step: Callable[..., Sequence[str]]) -> list[str]:
        """Write a `Loop` and return its state afterwards.

        Args:
            count: How many steps, a scalar.
            state: Tensors of known ranks, which they keep.
            step: Takes a writer of the body, the number of the step (a scalar) and the state; returns the next state.
        """
        body = self.graph.create_new_graph_with_same_config()
        body.parent_graph = self.graph
        write, number, go_on = Writer(body), make_name("step"), make_name("go_on")
        body.add_graph_input(number, TensorProto.INT64, [])
        body.add_graph_input(go_on, TensorProto.BOOL, [])
        kinds = [(self.graph.get_dtype(each), self.graph.get_shape(each)) for each in state]
        inner = [make_name("state") for _ in state]
        for name, kind in zip(inner, kinds, strict=True):
            body.add_graph_input(name, *kind)
        after = [write("Identity", go_on), *step(write, number, *inner)]
        for name, kind in zip(after, [(TensorProto.BOOL, []), *kinds], strict=True):
            body.add_graph_output(name, *kind)
        made = self.graph.make_node(
            "Loop",
            [self.constant(count), self.constant(np.bool_(True)), *state],
            output_count=len(state),
            branches={"body": body},
            dtypes=[kind for kind, _ in kinds],
            shapes=[shape for _, shape in kinds],
        )
        return [str(name) for name in made.output]

    def named(self, output: str, op: str, *inputs: Value, shape: Shape, gives: int, **attributes: Any) -> None:
        """Write an operator whose output has this name."""
        self._made(op, inputs, attributes, outputs=[output], shapes=[shape], dtypes=[gives])

    def _made(self, op: str, inputs: tuple[Value, ...], attributes: dict[str, Any], **options: Any) -> str:
        domain = attributes.pop("domain", "")  # ONNX's own unless another is said
        names = [self.constant(each) for each in inputs]
        return str(self.graph.make_node(op, names, attr=attributes, domain=domain, **options).output[0])


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


def _array(value: int | list[int] | np.ndarray | np.generic) -> np.ndarray:
    return np.asarray(value, np.int64) if isinstance(value, int | list) else np.asarray(value)
