"""What differs in a body for a GPU: CUDA has no reductions of uint8 at opset 18, which are the fastest on a CPU."""

from __future__ import annotations

from typing import Any

import onnx
from onnx import TensorProto


def on_device(function: onnx.FunctionProto) -> None:
    """Change a body so that whether any of some booleans is true is told on the device."""
    _change(function.node)


def _change(nodes: Any) -> None:
    for node in nodes:
        for attribute in node.attribute:
            if attribute.HasField("g"):
                _change(attribute.g.node)
            elif (node.op_type, attribute.name, attribute.i) == ("Cast", "to", TensorProto.UINT8):
                attribute.i = TensorProto.INT32
