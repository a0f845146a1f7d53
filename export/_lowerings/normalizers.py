"""Attention normalizers: softmax, sparsemax, sigmoid."""

from onnx import TensorProto

from keras_attn._maths.normalizers import SOFTMAX

from .._onnx.lazy_values import Value, multi_output, op
from .._tracing.attention_calls import TracedCall


def normalize_scores(call: TracedCall, scores: Value, mask: Value | None) -> Value:
    """Return the weights (..., Tk) of scores (..., Tk), which are at most `FLOAT32_MIN` at masked pairs.

    Weights are zero at masked pairs, except in fully masked rows; the mask is booleans that broadcast to the scores.
    """
    if call.normalizer == SOFTMAX:
        return op.Softmax(scores, axis=-1)
    if call.normalizer == "sparsemax":
        return _sparsemax(scores)
    weights = op.Sigmoid(scores)
    # A runtime need not return 0 for the lowest score, though onnxruntime's approximation does
    return weights if mask is None else op.Where(mask, weights, 0.0)


def _sparsemax(scores: Value) -> Value:
    """Return `max(score - t, 0)` for scores (..., Tk), with the `t` of each row for which the weights sum to 1."""
    # With scores s_1 >= s_2 >= ... the support is the largest k with 1 + k s_k > s_1 + ... + s_k, and
    # t = (s_1 + ... + s_k - 1) / k (Martins and Astudillo, 2016). Scores are counted from the row's largest, and scores
    # more than 1 below it, which have weight 0, are clipped at -2: sums of large scores would lose digits.
    count = op.Shape(scores, start=-1)
    descending, _ = multi_output("TopK", [True, True], scores, count)
    largest = op.Slice(descending, [0], [1], [-1])
    gaps = op.Max(descending - largest, -2.0)
    ranks = op.Cast(op.Range(1, op.Squeeze(count) + 1, 1), to=TensorProto.FLOAT)
    support = op.Cast(ranks * gaps + 1.0 > op.CumSum(gaps, -1), to=TensorProto.FLOAT)
    support_sum, support_size = (op.ReduceSum(terms, [-1], keepdims=1) for terms in (support * gaps, support))
    return op.Relu(scores - largest - (support_sum - 1.0) / support_size)
