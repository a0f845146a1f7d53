"""Dot-product attention with onnxruntime's contrib operator `MultiHeadAttention`.

Where masks of keys keep some out, one example goes after another, over the keys of it that take part. No key takes part
in an example without any: the first stands in, and the output is zeros.
"""

from ..._onnx.lazy_values import Outputs, Value, branch, contrib, op, reshape, scan
from ..._tracing.attention_calls import Call
from ..body_inputs import Given
from ..heads import repeat_joined
from ..masks import is_masked


def body(given: Given, full: Outputs | None = None) -> Outputs:
    """Return the output of a call whose masks are of keys, without weights.

    Args:
        given: What the call is given.
        full: The output where all keys take part, in place of that of the operator.
    """
    if not is_masked(given.call):
        return over_all(given)
    if given.call.has_keys_mask:
        all_take_part = given.all_of(given.keys_mask)
    else:
        all_take_part = op.ReduceMin(given.lengths, keepdims=0) >= given.Tk_scalar
    return branch(all_take_part, full or over_all(given), _over_examples(given))


def over_all(given: Given, **attributes: int) -> Outputs:
    """Return the output of a call in which all keys take part, or with `unidirectional=1` those up to each query."""
    call = given.call
    keys = repeat_joined(call, given.keys, call.key_size)
    return (attention(call, given.queries, keys, repeat_joined(call, given.values, call.value_size), **attributes),)


def _over_examples(given: Given) -> Outputs:
    call = given.call
    masks, some = (given.keys_mask, _gathered) if call.has_keys_mask else (given.lengths, _first)

    def step(mask: Value, queries: Value, every_key: Value, every_value: Value) -> Outputs:
        keys, values = some(mask, every_key, every_value)
        keys = repeat_joined(call, keys, call.key_size, axes=1)
        values = repeat_joined(call, values, call.value_size, axes=1)
        output = attention(call, *(op.Unsqueeze(each, [0]) for each in (queries, keys, values)))
        return (op.Squeeze(output, [0]),)

    (output,) = scan([2], step, masks, given.queries, given.keys, given.values)
    has_key = given.any_of(masks, [1]) if call.has_keys_mask else masks > 0
    return (op.Where(op.Unsqueeze(has_key, [1, 2]), output, 0.0),)


def _first(length: Value, *sequences: Value) -> Outputs:
    """Return what comes before a length, one place at least."""
    count = op.Max(op.Unsqueeze(length, [0]), [1])
    return tuple(op.Slice(each, [0], count, [0]) for each in sequences)


def _gathered(keys_mask: Value, *sequences: Value) -> Outputs:
    """Return what a mask leaves; the first place where it leaves none."""
    numbers = op.Squeeze(op.NonZero(keys_mask), [0])
    count = op.Max(op.Shape(numbers), [1])
    one_at_least = op.Slice(op.Concat(numbers, [0], axis=0), [0], count)
    return tuple(op.Gather(each, one_at_least, axis=0) for each in sequences)


def attention(call: Call, queries: Value, keys: Value, values: Value, **attributes: int) -> Value:
    """Return the output of the operator, with the type and the shape that onnx cannot tell of onnxruntime's."""
    attributes = {"num_heads": call.num_heads, **attributes}
    output = contrib.MultiHeadAttention(queries, keys, values, scale=call.options["scale"], **attributes)
    return reshape(op.CastLike(output, values), op.Shape(queries, end=-1), op.Shape(values, start=-1))
