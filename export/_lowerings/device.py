"""What differs in a body for a GPU: CUDA has no reductions of uint8 at opset 18, which are the fastest on a CPU."""

from __future__ import annotations

import onnx
from onnx import TensorProto

from .._graphs.walk import all_nodes


def on_device(function: onnx.FunctionProto) -> None:
    """Change a body so that whether any of some booleans is true is told on the device."""
    for node in all_nodes(function):
        for attribute in node.attribute:
            if (node.op_type, attribute.name, attribute.i) == ("Cast", "to", TensorProto.UINT8):
                attribute.i = TensorProto.INT32
