"""Build the ONNX function of one attention call."""

from __future__ import annotations

from collections.abc import Callable

import onnx

from .._onnx.function_builder import written
from .._onnx.lazy_values import Outputs, Value
from .._onnx.traced_model import OF_ATTENTION
from .._onnx.traversal import all_nodes
from .._tracing.attention_calls import Call
from .body_inputs import Given, given_of, with_batch_axes


def function(
    call: Call, body: Callable[[Given], Outputs], opset: int, *, for_device: bool = False
) -> onnx.FunctionProto:
    """Return the ONNX function of a call.

    Args:
        call: Its arguments are the inputs, its outputs the outputs.
        body: Maps what a call is given to its output and, if it returns them, its weights, with one batch axis.
        opset: ONNX opset of the body; that of the model it goes into.
        for_device: Whether it is to run on a device such as a GPU.
    """
    arguments = {name: Value() for name in call.shapes}
    given = given_of(call, arguments, opset, for_device=for_device)
    results = [with_batch_axes(given, output) for output in body(given)]
    found = written(call.op, arguments, dict(zip(call.outputs, results, strict=True)), opset, for_device=for_device)
    for number, node in enumerate(all_nodes(found)):  # profiles then tell where the call ran
        node.name = f"{OF_ATTENTION}/{call.layer}/{call.op}/{node.op_type}_{number}"
    return found
