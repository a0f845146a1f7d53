"""Build the ONNX function of one attention call."""

from collections.abc import Callable

import onnx

from .._onnx.function_builder import build_function
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
        call: The attention call, whose arguments and outputs become those of the function.
        body: Maps the inputs of a body to the output and, if the call returns them, the weights; with one batch axis.
        opset: ONNX opset of the model.
        for_device: Whether the function runs on a device such as a GPU.
    """
    arguments = {name: Value() for name in call.shapes}
    inputs = given_of(call, arguments, opset, for_device=for_device)
    outputs = [with_batch_axes(inputs, output) for output in body(inputs)]
    results = dict(zip(call.outputs, outputs, strict=True))
    built = build_function(call.op, arguments, results, opset, for_device=for_device)
    for number, node in enumerate(all_nodes(built)):  # `check_placement` reads these names in profiles
        node.name = f"{OF_ATTENTION}/{call.layer}/{call.op}/{node.op_type}_{number}"
    return built
