"""The text around the body of an ONNX function: what all lowerings begin and end with."""

from __future__ import annotations

import onnx
from onnx import parser

from .._tracing.attention_calls import DOMAIN, Call

CONTRIB = "com.microsoft"  # operators of onnxruntime's own

_CONSTANTS = """
    zero = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    minus_one = Constant <value_ints = [-1]> ()
    zero_scalar = Constant <value_int = 0> ()
    one_scalar = Constant <value_int = 1> ()
    nothing = Constant <value_float = 0.0> ()
    lowest = Constant <value_float = -3.4028234e38> ()
"""
_SIZES = """
    batch = Shape <end = -2> (values_given)
    N = Shape <start = 0, end = 1> (values)
    Tq = Shape <start = 1, end = 2> (queries)
    Tk = Shape <start = 1, end = 2> (values)
    Tk_scalar = Squeeze (Tk)
    positions = Range (zero_scalar, Tk_scalar, one_scalar)
"""
_LENGTHS = """
    long_lengths = Cast <to = 7> (valid_lens_given)
    flat_lengths = Reshape (long_lengths, minus_one)
    lengths = Clip (flat_lengths, zero_scalar, Tk_scalar)
"""
_MASK = """
    mask_queries = Shape <start = -2, end = -1> (mask_given)
    full_shape = Concat <axis = 0> (batch, mask_queries, Tk)
    mask_of_batch = Expand (mask_given, full_shape)
"""


def function(call: Call, body: str, opset: int) -> onnx.FunctionProto:
    """Return the ONNX function of a call.

    Args:
        call: Its arguments are the inputs, its outputs the outputs.
        body: ONNX text. It may read `queries`, `keys` and `values`, all with one batch axis N; the weights of the
            layer; int64 `lengths` (N,) from 0 to Tk, and booleans `mask` (N, Tq or 1, Tk), if the call has them;
            the sizes `N`, `Tq` and `Tk`, vectors of one number each; `positions`, 0 to Tk - 1; and the constants above.
            It defines `output`, and `weights` if the call returns them, with the batch axis N.
        opset: ONNX opset of the body; that of the model it goes into.
    """
    sequences = ("queries", "keys", "values")
    inputs = [name if name == "w_v" else f"{name}_given" for name in call.shapes]
    one_batch_axis = call.rank == 3
    text = f"""
        <domain: "{DOMAIN}", opset_import: ["" : {opset}, "{CONTRIB}" : 1]>
        {call.op} ({", ".join(inputs)}) => ({", ".join(f"{name}_of_batch" for name in call.outputs)})
        {{
            {_CONSTANTS}
            {"".join(_flattened(f"{name}_given", name, one_batch_axis) for name in sequences)}
            {_SIZES}
            {_LENGTHS if "valid_lens" in call.shapes else ""}
            {_MASK + _flattened("mask_of_batch", "mask", one_batch_axis) if "mask" in call.shapes else ""}
            {body}
            {"".join(_unflattened(name, one_batch_axis) for name in call.outputs)}
        }}"""
    return parser.parse_function(text)


def _flattened(source: str, target: str, one_batch_axis: bool) -> str:
    """Lines that make one batch axis of all."""
    if one_batch_axis:
        return f"{target} = Identity ({source})\n"
    return f"""
        {target}_tail = Shape <start = -2> ({source})
        {target}_shape = Concat <axis = 0> (minus_one, {target}_tail)
        {target} = Reshape ({source}, {target}_shape)
    """


def _unflattened(name: str, one_batch_axis: bool) -> str:
    """Lines that give an output its batch axes back."""
    if one_batch_axis:
        return f"{name}_of_batch = Identity ({name})\n"
    return f"""
        {name}_tail = Shape <start = -2> ({name})
        {name}_shape = Concat <axis = 0> (batch, {name}_tail)
        {name}_of_batch = Reshape ({name}, {name}_shape)
    """
