"""What differs in a body for a device such as a GPU: all that is as large as the scores is made there.

onnxruntime computes on the CPU what follows from sizes alone (`GetCpuPreferredNodes`), masks of positions too, and
copies it over at each run. Positions to which a zero of the device is added stay there, with all that follows from
them. CUDA has no reductions of uint8 at opset 18, which are the fastest on a CPU.
"""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto, helper

ZERO = "zero_on_device"

# Of a number that no optimizer knows. The sum of nothing is a number too.
ZERO_LINES = f"""
    first_places = Constant <value_ints = [0, 0, 0]> ()
    behind_first_places = Constant <value_ints = [1, 1, 1]> ()
    first_number_or_none = Slice (values, first_places, behind_first_places)
    some_number = ReduceSum <keepdims = 0> (first_number_or_none)
    is_less_than_itself = Less (some_number, some_number)
    {ZERO} = Cast <to = {TensorProto.INT64}> (is_less_than_itself)
"""


def on_device(function: onnx.FunctionProto) -> None:
    """Change a body, which has `ZERO_LINES`, so that positions and masks are made on the device."""
    _change(function.node)


def _change(nodes: Any) -> None:
    changed = []
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _change(attribute.g.node)
            elif (node.op_type, attribute.name, attribute.i) == ("Cast", "to", TensorProto.UINT8):
                attribute.i = TensorProto.INT32
        changed.append(node)
        if node.op_type == "Range":
            positions = node.output[0]
            node.output[0] = f"{positions}_of_sizes"
            changed.append(helper.make_node("Add", [node.output[0], ZERO], [positions]))
    kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in changed]
    del nodes[:]
    nodes.extend(kept)
