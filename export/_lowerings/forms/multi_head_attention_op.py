"""Dot-product attention with onnxruntime's contrib operator `MultiHeadAttention`.

The operator stores no scores, but only without a mask. So if a key mask or lengths mask any key, a `Scan` goes over the
examples, and the operator gets the unmasked keys of one example only. If an example has no unmasked key, key 0 takes
their place and the output is set to zero.
"""

from ..._onnx.lazy_values import Outputs, Value, contrib, if_else, op, reshape, scan
from ..._tracing.attention_calls import TracedCall
from ..body_inputs import BodyInputs
from ..heads import repeat_packed_kv_heads
from ..masks import is_masked


def build_body(inputs: BodyInputs, unmasked: Outputs | None = None) -> Outputs:
    """Return the output (B, Tq, H Dv) of a call under key masks; `unmasked` is the output if all keys are unmasked."""
    if not is_masked(inputs.call):
        return attend_all_keys(inputs)
    if inputs.call.has_key_mask:
        are_all_unmasked = inputs.reduce_all(inputs.keys_mask)
    else:
        are_all_unmasked = op.ReduceMin(inputs.lengths, keepdims=0) >= inputs.Tk_scalar
    return if_else(are_all_unmasked, unmasked or attend_all_keys(inputs), _attend_examples(inputs))


def attend_all_keys(inputs: BodyInputs, **attributes: int) -> Outputs:
    """Return the output (B, Tq, H Dv) with all keys unmasked; with `unidirectional=1`, under a causal mask."""
    call = inputs.call
    keys = repeat_packed_kv_heads(call, inputs.keys, call.key_size)
    values = repeat_packed_kv_heads(call, inputs.values, call.value_size)
    return (call_operator(call, inputs.queries, keys, values, **attributes),)


def _attend_examples(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) by a `Scan` over the examples, each with its unmasked keys."""
    call = inputs.call
    masks, select = (inputs.keys_mask, _gather_unmasked) if call.has_key_mask else (inputs.lengths, _take_prefix)

    def step(mask: Value, queries: Value, keys: Value, values: Value) -> Outputs:
        keys, values = select(mask, keys, values)
        keys = repeat_packed_kv_heads(call, keys, call.key_size, axes=1)
        values = repeat_packed_kv_heads(call, values, call.value_size, axes=1)
        output = call_operator(call, *(op.Unsqueeze(tensor, [0]) for tensor in (queries, keys, values)))
        return (op.Squeeze(output, [0]),)

    (output,) = scan([2], step, masks, inputs.queries, inputs.keys, inputs.values)
    has_key = inputs.reduce_any(masks, [1]) if call.has_key_mask else masks > 0
    return (op.Where(op.Unsqueeze(has_key, [1, 2]), output, 0.0),)


def _take_prefix(length: Value, *sequences: Value) -> Outputs:
    """Return the first `length` (int64 scalar) elements, at least one, of each sequence (Tk, ...)."""
    count = op.Max(op.Unsqueeze(length, [0]), [1])
    return tuple(op.Slice(sequence, [0], count, [0]) for sequence in sequences)


def _gather_unmasked(key_mask: Value, *sequences: Value) -> Outputs:
    """Return the elements of each sequence (Tk, ...) where the mask, booleans (Tk,), is True; element 0 if nowhere."""
    indices = op.Squeeze(op.NonZero(key_mask), [0])
    count = op.Max(op.Shape(indices), [1])
    indices = op.Slice(op.Concat(indices, [0], axis=0), [0], count)
    return tuple(op.Gather(sequence, indices, axis=0) for sequence in sequences)


def call_operator(call: TracedCall, queries: Value, keys: Value, values: Value, **attributes: int) -> Value:
    """Return the operator's output (B, Tq, H Dv) for (B, Tq, H D), (B, Tk, H D), (B, Tk, H Dv)."""
    attributes = {"num_heads": call.num_heads, **attributes}
    output = contrib.MultiHeadAttention(queries, keys, values, scale=call.options["scale"], **attributes)
    # onnx infers neither type nor shape of onnxruntime's operators: `CastLike` and `Reshape` declare both
    return reshape(op.CastLike(output, values), op.Shape(queries, end=-1), op.Shape(values, start=-1))
