"""The constants of an ONNX file: which are weights, how large they are, and which node is the first to read each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .._graphs.walk import all_graphs, graphs_in, names_read

if TYPE_CHECKING:
    import onnx


@dataclass(frozen=True)
class Held:
    """A constant: how many parameters it is, its bytes, and whether it is of a table's or a matrix's shape."""

    count: int
    size: int
    axes: int


def held_by(proto: onnx.ModelProto) -> list[list[Held]]:
    """Return the constants that each node is the first to read; those that none reads are with the last."""
    left = {each.name: each for each in proto.graph.initializer}
    functions = {(each.domain, each.name): each for each in proto.functions}
    held: list[list[Held]] = []
    for node in proto.graph.node:
        read = [left.pop(name) for name in dict.fromkeys(names_read(node)) if name in left]
        within = (each for body in graphs_in(node) for each in all_graphs(body))
        weights = [*read, *(each for graph in within for each in graph.initializer)]
        held.append([measured(each) for each in weights])
        held[-1] += [measured(each, is_formula=True) for each in _in_formulas(node, functions)]
    if held:
        held[-1] += [measured(each) for each in left.values()]
    return held


def _in_formulas(node: onnx.NodeProto, functions: dict[tuple[str, str], Any]) -> Iterator[onnx.TensorProto]:
    """Yield what stands in operators `Constant`: here, in loops and branches, and, once each, in functions."""
    yield from (each.t for each in node.attribute if each.HasField("t"))
    body = functions.pop((node.domain, node.op_type), None)
    for nodes in (*(graph.node for graph in graphs_in(node)), () if body is None else body.node):
        for each in nodes:
            yield from _in_formulas(each, functions)


def measured(tensor: onnx.TensorProto, *, is_formula: bool = False) -> Held:
    """Return the size of a constant; one in a formula is no weight."""
    import onnx

    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    count = math.prod(tensor.dims)
    if kind == "STRING":
        size = sum(map(len, tensor.string_data))
    else:
        bits = 4 if kind.endswith("INT4") else 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        size = math.ceil(count * bits / 8)
    return Held(count if not is_formula and _is_weight(tensor, kind) else 0, size, len(tensor.dims))


def _is_weight(tensor: onnx.TensorProto, kind: str) -> bool:
    """Tell parameters from numbers in formulas, sizes and axes, and from what quantizing adds."""
    of_numbers = "FLOAT" in kind or kind in ("DOUBLE", "INT8", "UINT8", "INT4", "UINT4")
    return of_numbers and len(tensor.dims) > 0 and not tensor.name.endswith(("_scale", "_zero_point"))
