"""Attention normalizers: softmax, sparsemax, sigmoid."""

from onnx import TensorProto

from keras_attn._maths.normalizers import SOFTMAX

from .._onnx.lazy_values import Value, op, outputs_of
from .._tracing.attention_calls import Call


def normalized(call: Call, scores: Value, pairs: Value | None) -> Value:
    """Return the weights of scores (..., keys), over their last axis.

    Args:
        call: The call.
        scores: The lowest float32 or less where a pair does not take part; weights are zero there, unless no key of
            the row does.
        pairs: Booleans that broadcast to the scores, True where a pair takes part, or None where all do.
    """
    if call.normalizer == SOFTMAX:
        return op.Softmax(scores, axis=-1)
    if call.normalizer == "sparsemax":
        return _sparsemax(scores)
    weights = op.Sigmoid(scores)
    # a runtime need not give 0 for the lowest score: onnxruntime's approximation happens to
    return weights if pairs is None else op.Where(pairs, weights, 0.0)


def _sparsemax(scores: Value) -> Value:
    """Return `max(score - t, 0)`, with the `t` for which they sum to 1, found among the scores in their order.

    Scores count from the largest of their row. All that are more than 1 below it are alike: sums of large ones would
    lose digits.
    """
    count = op.Shape(scores, start=-1)
    descending, _ = outputs_of("TopK", [True, True], scores, count)
    largest = op.Slice(descending, [0], [1], [-1])
    near = op.Max(descending - largest, -2.0)
    counts = op.Cast(op.Range(1, op.Squeeze(count) + 1, 1), to=TensorProto.FLOAT)
    inside = op.Cast(counts * near + 1.0 > op.CumSum(near, -1), to=TensorProto.FLOAT)
    sum_inside, count_inside = (op.ReduceSum(each, [-1], keepdims=1) for each in (inside * near, inside))
    return op.Relu(scores - largest - (sum_inside - 1.0) / count_inside)
