"""ONNX text that makes weights of scores: the softmax, and what may take its place."""

from __future__ import annotations

from keras_attn._maths.normalizers import SOFTMAX

from .._tracing.attention_calls import Call


def normalized(call: Call, scores: str, name: str, pairs: str | None) -> str:
    """Lines that give `name`, the weights of scores (..., keys), over their last axis.

    Args:
        call: The call.
        scores: The lowest float32 or less where a pair does not take part; weights are zero there, unless no key of
            the row does.
        name: The name of the weights.
        pairs: Booleans that broadcast to the scores, True where a pair takes part, or None where all do.
    """
    if call.normalizer == SOFTMAX:
        return f"{name} = Softmax <axis = -1> ({scores})\n"
    if call.normalizer == "sparsemax":
        return _sparsemax(scores, name)
    if pairs is None:
        return f"{name} = Sigmoid ({scores})\n"
    # a runtime need not give 0 for the lowest score: onnxruntime's approximation happens to
    return f"{name}_of_all = Sigmoid ({scores})\n{name} = Where ({pairs}, {name}_of_all, nothing)\n"


def _sparsemax(scores: str, name: str) -> str:
    """Lines for `max(score - t, 0)`, with the `t` for which they sum to 1, found among the scores in their order.

    Scores count from the largest of their row. All that are more than 1 below it are alike: sums of large ones would
    lose digits.
    """
    return f"""
        {name}_number = Shape <start = -1> ({scores})
        {name}_descending, {name}_order = TopK ({scores}, {name}_number)
        {name}_largest = Slice ({name}_descending, zero, one, minus_one)
        {name}_far = Constant <value_float = -2.0> ()
        {name}_sum = Constant <value_float = 1.0> ()
        {name}_gaps = Sub ({scores}, {name}_largest)
        {name}_gaps_in_order = Sub ({name}_descending, {name}_largest)
        {name}_near_in_order = Max ({name}_gaps_in_order, {name}_far)
        {name}_sums_of_first = CumSum ({name}_near_in_order, minus_one)
        {name}_number_scalar = Squeeze ({name}_number)
        {name}_behind_last = Add ({name}_number_scalar, one_scalar)
        {name}_counts = Range (one_scalar, {name}_behind_last, one_scalar)
        {name}_floating_counts = Cast <to = 1> ({name}_counts)
        {name}_multiples = Mul ({name}_floating_counts, {name}_near_in_order)
        {name}_multiples_and_sum = Add ({name}_multiples, {name}_sum)
        {name}_is_inside = Greater ({name}_multiples_and_sum, {name}_sums_of_first)
        {name}_inside = Cast <to = 1> ({name}_is_inside)
        {name}_gaps_inside = Mul ({name}_inside, {name}_near_in_order)
        {name}_sum_inside = ReduceSum <keepdims = 1> ({name}_gaps_inside, minus_one)
        {name}_number_inside = ReduceSum <keepdims = 1> ({name}_inside, minus_one)
        {name}_beyond_sum = Sub ({name}_sum_inside, {name}_sum)
        {name}_threshold = Div ({name}_beyond_sum, {name}_number_inside)
        {name}_above = Sub ({name}_gaps, {name}_threshold)
        {name} = Relu ({name}_above)
    """
