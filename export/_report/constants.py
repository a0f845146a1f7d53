"""The stored constants of an ONNX file: their sizes, weights among them, and the first node that reads each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

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
    held: list[list[Held]] = []
    for node in proto.graph.node:
        read = [left.pop(name) for name in dict.fromkeys(names_read(node)) if name in left]
        within = (each for body in graphs_in(node) for each in all_graphs(body))
        weights = [*read, *(each for graph in within for each in graph.initializer)]
        held.append([measured(each) for each in weights])
    if held:
        held[-1] += [measured(each) for each in left.values()]
    return held


def measured(tensor: onnx.TensorProto) -> Held:
    """Return the size of a constant."""
    import onnx

    kind = onnx.TensorProto.DataType.Name(tensor.data_type)
    count = math.prod(tensor.dims)
    if kind == "STRING":
        size = sum(map(len, tensor.string_data))
    else:
        bits = 4 if kind.endswith("INT4") else 8 * onnx.helper.tensor_dtype_to_np_dtype(tensor.data_type).itemsize
        size = math.ceil(count * bits / 8)
    return Held(count if _is_weight(tensor, kind) else 0, size, len(tensor.dims))


def _is_weight(tensor: onnx.TensorProto, kind: str) -> bool:
    """Tell parameters from numbers in formulas, sizes and axes, and from what quantizing adds."""
    of_numbers = "FLOAT" in kind or kind in ("DOUBLE", "INT8", "UINT8", "INT4", "UINT4")
    return of_numbers and len(tensor.dims) > 0 and not tensor.name.endswith(("_scale", "_zero_point"))
