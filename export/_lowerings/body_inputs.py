"""Inputs of an attention body: tensors with one batch axis, normalized masks, sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from onnx import TensorProto

from .._onnx.lazy_values import Value, arange, concat_shape, op, reshape
from .._tracing.attention_calls import TracedCall

MISSING_INPUT = Value()  # an input that the call lacks; a body that reads this value cannot be built
_WIDE_INT_DTYPES = ("int64", "uint32", "uint64")  # have values of 2**31 or more


@dataclass(frozen=True, eq=False)
class BodyInputs:
    """Inputs of an attention body. Nodes are written only for the inputs that the body reads."""

    call: TracedCall
    opset: int
    # Element type to which booleans are cast before a reduction: uint8 on CPUs, where it is fastest; int32 on CUDA,
    # which has no uint8 reductions at opset 18
    bool_reduce_type: int
    batch_shape: Value  # axes before they were merged, int64 (rank - 2,)
    queries: Value  # floats (B, Tq, H D); in a query block, Tq is its size
    keys: Value  # floats (B, Tk, Hkv D)
    values: Value  # floats (B, Tk, Hkv Dv)
    B: Value  # number of examples, int64 (1,)
    Tq: Value  # number of queries, int64 (1,)
    Tk: Value  # number of keys, int64 (1,)
    Tk_scalar: Value
    key_positions: Value  # 0 to Tk - 1, int64 (Tk,)
    query_positions: Value  # 0 to Tq - 1, int64 (Tq,)
    w_v: Value = MISSING_INPUT  # floats (U, 1)
    bandwidth: Value = MISSING_INPUT  # of a Gaussian kernel, float scalar
    lengths: Value = MISSING_INPUT  # int64 (B,) from 0 to Tk
    query_lengths: Value = MISSING_INPUT  # int64 (B, Tq) from 0 to Tk
    # Key mask, booleans (B, Tk); the lengths are part of the mask if the call has both
    keys_mask: Value = MISSING_INPUT
    mask: Value = MISSING_INPUT  # booleans (B or 1, H or 1, Tq or 1, Tk)
    bias: Value = MISSING_INPUT  # floats (B or 1, H or 1, Tq or 1, Tk)

    @property
    def for_device(self) -> bool:
        """True if the body runs on a device such as a GPU."""
        return bool(self.bool_reduce_type == TensorProto.INT32)

    @property
    def output_ranks(self) -> list[int]:
        """Ranks of the outputs: (B, Tq, H Dv) and, if returned, the weights (B, H, Tq, Tk) or (B, Tq, Tk)."""
        return [3, 3 if self.call.heads is None else 4][: len(self.call.outputs)]

    def reduce_any(self, booleans: Value, axes: list[int], *, keepdims: bool = False) -> Value:
        """Reduce booleans of any shape along axes by a logical or; the axes stay with length 1 if `keepdims`."""
        largest = op.ReduceMax(op.Cast(booleans, to=self.bool_reduce_type), axes, keepdims=int(keepdims))
        return op.Cast(largest, to=TensorProto.BOOL)

    def reduce_all(self, booleans: Value) -> Value:
        """Reduce booleans of any shape to a boolean scalar by a logical and."""
        return op.Cast(op.ReduceMin(op.Cast(booleans, to=self.bool_reduce_type), keepdims=0), to=TensorProto.BOOL)


def make_body_inputs(call: TracedCall, arguments: Mapping[str, Value], opset: int, *, for_device: bool) -> BodyInputs:
    """Return the inputs of the body of a call; arguments have any number of batch axes: `queries` (..., Tq, H D)."""
    queries, keys, values = (_merge_batch_axes(call, arguments[name]) for name in ("queries", "keys", "values"))
    Tq, Tk = op.Shape(queries, start=1, end=2), op.Shape(values, start=1, end=2)
    Tk_scalar = op.Squeeze(Tk)
    inputs = BodyInputs(
        call=call,
        opset=opset,
        bool_reduce_type=TensorProto.INT32 if for_device else TensorProto.UINT8,
        batch_shape=op.Shape(arguments["values"], end=-2),
        queries=queries,
        keys=keys,
        values=values,
        B=op.Shape(values, start=0, end=1),
        Tq=Tq,
        Tk=Tk,
        Tk_scalar=Tk_scalar,
        key_positions=op.Range(0, Tk_scalar, 1),
        query_positions=arange(Tq),
        w_v=arguments.get("w_v", MISSING_INPUT),
        bandwidth=arguments.get("bandwidth", MISSING_INPUT),
    )
    return replace(inputs, **_normalize_masks(inputs, arguments))


def restore_batch_axes(inputs: BodyInputs, output: Value) -> Value:
    """Split the batch axis of an output (B, ...) into the batch axes of the arguments."""
    if inputs.call.rank == 3:
        return output
    return reshape(output, inputs.batch_shape, op.Shape(output, start=1))


def _merge_batch_axes(call: TracedCall, argument: Value) -> Value:
    """Reshape an argument (..., T, features) to (B, T, features)."""
    return argument if call.rank == 3 else reshape(argument, -1, op.Shape(argument, start=-2))


def _normalize_masks(inputs: BodyInputs, arguments: Mapping[str, Value]) -> dict[str, Any]:
    """Return masks and bias by field name of `BodyInputs`; all key masks are merged into `keys_mask`."""
    call = inputs.call
    fields: dict[str, Any] = {}
    key_masks: list[Value] = []
    if call.has_query_lengths:
        fields["query_lengths"] = _clip_lengths(inputs, reshape(arguments["valid_lens"], inputs.B, inputs.Tq))
    elif call.has_lengths:
        lengths = arguments["valid_lens"]
        fields["lengths"] = _clip_lengths(inputs, lengths if call.rank == 3 else reshape(lengths, -1))
    if "keys_mask" in call.shapes:
        key_masks.append(reshape(arguments["keys_mask"], inputs.B, inputs.Tk))
    if call.has_attention_mask:
        fields["mask"] = _to_rank_4(inputs, arguments["mask"], "mask")
    elif "mask" in call.shapes:
        ones = [1] * (len(call.shapes["mask"]) - call.rank + 1)
        expanded = op.Expand(arguments["mask"], concat_shape(inputs.batch_shape, *ones, inputs.Tk))
        key_masks.append(reshape(expanded, inputs.B, inputs.Tk))
    if call.has_bias:
        fields["bias"] = _to_rank_4(replace(inputs, **fields), arguments["bias"], "bias")
    if key_masks and call.has_lengths:
        key_masks.append(inputs.key_positions < op.Unsqueeze(fields["lengths"], [1]))
    return fields | ({"keys_mask": logical_and(key_masks)} if key_masks else {})


def _clip_lengths(inputs: BodyInputs, lengths: Value) -> Value:
    """Return integers (B,) or (B, Tq) as int64, clipped to 0 .. Tk."""
    if inputs.call.dtypes["valid_lens"] not in _WIDE_INT_DTYPES:
        return op.Clip(op.Cast(lengths, to=TensorProto.INT64), 0, inputs.Tk_scalar)
    # `Clip` of onnxruntime 1.31 treats int64 from 2**31 to 2**32 as negative, and uint64 may exceed int64
    lengths_float64, Tk_float64 = (op.Cast(value, to=TensorProto.DOUBLE) for value in (lengths, inputs.Tk_scalar))
    return op.Cast(op.Clip(lengths_float64, np.array(0.0), Tk_float64), to=TensorProto.INT64)


def _to_rank_4(inputs: BodyInputs, argument: Value, name: str) -> Value:
    """Reshape `mask` or `bias` to (B or 1, H or 1, Tq or 1, Tk); axes that all examples share stay 1."""
    call = inputs.call
    if name in call.full_masks and call.rank == len(call.shapes[name]) - (call.heads is not None) == 3:
        return argument if call.heads else op.Unsqueeze(argument, [1])
    tail = 2 if call.heads is None else 3
    static_batch_shape = call.shapes[name][:-tail]
    is_shared = all(size == 1 for size in static_batch_shape)
    axes_before_keys = op.Shape(argument, start=-tail, end=-1)
    # The length of a mask is one node for all layers that share the mask; Tk is one node for each layer
    Tk = op.Shape(inputs.mask, start=-1) if "mask" in call.full_masks else inputs.Tk
    batch_shape = [1] * len(static_batch_shape) if is_shared else [inputs.batch_shape]
    expanded = op.Expand(argument, concat_shape(*batch_shape, axes_before_keys, Tk))
    heads = op.Shape(argument, start=-3, end=-2) if call.heads else 1
    queries = op.Shape(argument, start=-2, end=-1)
    return reshape(expanded, 1 if is_shared else inputs.B, heads, queries, Tk)


def logical_and(masks: list[Value]) -> Value:
    """Combine one or more boolean masks, whose shapes broadcast, by a logical and."""
    *first_masks, combined = masks
    for mask in first_masks:
        combined = combined & mask
    return combined
