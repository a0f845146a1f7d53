"""Build the ONNX function of one attention call."""

from collections.abc import Callable

import onnx

from .._onnx.function_builder import build_function
from .._onnx.lazy_values import Outputs, Value
from .._onnx.traced_model import ATTENTION_NODE_PREFIX
from .._onnx.traversal import iter_nodes
from .._tracing.attention_calls import TracedCall
from .body_inputs import BodyInputs, make_body_inputs, restore_batch_axes


def build_call_function(
    call: TracedCall, body: Callable[[BodyInputs], Outputs], opset: int, *, for_device: bool = False
) -> onnx.FunctionProto:
    """Return the ONNX function of a call, with the arguments and outputs of the call.

    `body` maps its inputs to the output (B, Tq, H Dv) and, if the call returns them, the weights.
    """
    arguments = {name: Value() for name in call.shapes}
    inputs = make_body_inputs(call, arguments, opset, for_device=for_device)
    outputs = [restore_batch_axes(inputs, output) for output in body(inputs)]
    results = dict(zip(call.outputs, outputs, strict=True))
    function_proto = build_function(call.op_type, arguments, results, opset, for_device=for_device)
    for index, node in enumerate(iter_nodes(function_proto)):  # `check_placement` reads these names in profiles
        node.name = f"{ATTENTION_NODE_PREFIX}/{call.layer}/{call.op_type}/{node.op_type}_{index}"
    return function_proto
