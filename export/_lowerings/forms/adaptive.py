"""Lowering `adaptive`: an `If` on the request's sizes picks the small or the large form.

The small form computes all pairs of query and key at once: by the operator `Attention` if the opset has it, else by
plain operators. The large form keeps no tensor of the size of all scores and reads unmasked keys only (`ragged.py`),
but costs more for each call and key. With the threshold of the kind of call (`_thresholds.LARGE_THRESHOLDS`), it is
taken if

    (Tq - ignored_queries) Tk >= min_pairs   and   Tk >= min_keys

For additive scores, whose work is in proportion to H U, `min_pairs` is divided by H U. For a sliding window it is
divided by (MEASURED_WINDOW_KEYS / K)^2, with K keys read by a query block: thresholds were measured at K =
MEASURED_WINDOW_KEYS, and the number of positions from which the window pays grows with K. If the model fixes the sizes,
the form is chosen at conversion. Outputs are (B, Tq, H Dv) and, if returned, weights (B, H, Tq, Tk), without heads (B,
Tq, Tk).
"""

import math

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import ADDITIVE, DISTANCE

from ..._onnx.lazy_values import Outputs, if_else
from ..._onnxruntime_releases import FUSED_OPSET
from ..._thresholds import LARGE_THRESHOLDS, MEASURED_WINDOW_KEYS, NEVER, SizeThreshold
from ..._tracing.attention_calls import TracedCall
from ..additive_without_tanh import count_units
from ..body_inputs import BodyInputs
from ..forms import fused, multi_head_attention_op, portable, ragged, sliding_window

LOWEST_OPSET = 18


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the outputs of a supported call."""
    call, is_large = inputs.call, _choose_statically(inputs.call)
    if is_large is not None:
        return ragged.build_body(inputs) if is_large else small_body(inputs)
    if get_threshold_key(call) != "examples":
        return _branch_by_size(inputs, _get_large_threshold(call), small_body(inputs), ragged.build_body(inputs))
    # If all keys are unmasked, the large form skips none: it must pay by itself, as for a call without masks
    attend_all_keys, threshold = multi_head_attention_op.attend_all_keys, _get_large_threshold(call)
    unmasked = _branch_by_size(inputs, LARGE_THRESHOLDS["flash"], small_body(inputs), attend_all_keys(inputs))
    return _branch_by_size(inputs, threshold, small_body(inputs), multi_head_attention_op.build_body(inputs, unmasked))


def _branch_by_size(inputs: BodyInputs, threshold: SizeThreshold, small: Outputs, large: Outputs) -> Outputs:
    """Return the outputs of the small or the large form, by a threshold on Tq and Tk."""
    counted_queries = inputs.Tq - threshold.ignored_queries if threshold.ignored_queries else inputs.Tq
    is_small = counted_queries * inputs.Tk < [threshold.min_pairs]
    if threshold.min_keys:
        is_small = is_small | (inputs.Tk < [threshold.min_keys])
    return if_else(is_small, small, large)


def get_runtime_threshold(call: TracedCall) -> SizeThreshold | None:
    """Return the threshold of the large form, or None if the form does not depend on the sizes of a request."""
    threshold = _get_large_threshold(call)
    return threshold if threshold.min_pairs != NEVER and _choose_statically(call) is None else None


def describe_form(call: TracedCall, opset: int) -> str:
    """Return the text of the manifest that describes the form of a call."""
    small_form = "the operator `Attention`" if _uses_attention_op(call, opset) else "plain operators"
    threshold, is_large = _get_large_threshold(call), _choose_statically(call)
    if threshold.min_pairs == NEVER:
        return f"{small_form}, at all sizes"
    if is_large is not None:
        return f"{'ragged' if is_large else small_form}, since the model fixes the sizes"
    queries = f"(queries - {threshold.ignored_queries})" if threshold.ignored_queries else "queries"
    or_keys = f" or keys < {threshold.min_keys:,}" if threshold.min_keys else ""
    return f"{small_form} while {queries} * keys < {threshold.min_pairs:,}{or_keys}, else ragged"


def can_use_attention_op(call: TracedCall) -> bool:
    """Return True if the small form of a call may use the operator `Attention`, if the opset has it."""
    return not (fused.find_unsupported_reason(call) or _choose_statically(call))


def get_threshold_key(call: TracedCall) -> str:
    """Return the kind of a call, the key of its threshold in `LARGE_THRESHOLDS`."""
    if call.score == ADDITIVE:
        return "additive"
    if call.score == DISTANCE:
        return "distance"
    if call.returns_weights or call.normalizer != SOFTMAX:
        return "weights"
    if call.has_attention_mask or call.has_bias:
        return "pairs"
    if call.has_query_lengths:
        return "query lengths"
    if call.window != (None, None):
        return "causal" if None in call.window else "window"
    return "examples" if call.has_lengths or call.has_key_mask else "flash"


def _get_large_threshold(call: TracedCall) -> SizeThreshold:
    """Return the threshold of the large form of a call, scaled for additive scores and windows."""
    threshold = LARGE_THRESHOLDS[get_threshold_key(call)]
    if sliding_window.supports(call) and threshold.min_pairs != NEVER:
        scaled = threshold.scale_pairs((MEASURED_WINDOW_KEYS / sliding_window.count_block_keys(call)) ** 2)
        longest = _get_longest_golden_length()
        pairs = min(scaled.min_pairs, (longest - scaled.ignored_queries) * longest)
        # The cost of a block of queries does not depend on Tk, so Tk alone decides, from one block of queries on
        keys = math.isqrt(pairs)
        return scaled._replace(min_pairs=min(pairs, sliding_window.BLOCK_QUERIES * keys), min_keys=keys)
    return threshold if call.score != ADDITIVE else threshold.scale_pairs(call.num_heads * count_units(call))


def _uses_attention_op(call: TracedCall, opset: int) -> bool:
    return opset >= FUSED_OPSET and not fused.find_unsupported_reason(call)


def small_body(inputs: BodyInputs) -> Outputs:
    """Return the outputs in the small form."""
    is_fused = _uses_attention_op(inputs.call, inputs.opset)
    return fused.build_body(inputs) if is_fused else portable.build_body_with_nan_fallback(inputs)


def _choose_statically(call: TracedCall) -> bool | None:
    """Return True for the large form, False for the small form, or None if the sizes of a request decide."""
    # If the model fixes one axis only, the small form is taken at all sizes if the large form would need a longer other
    # axis than golden cases have: no case would check the large form
    queries, keys = call.shapes["queries"][-2], call.shapes["keys"][-2]
    threshold = _get_large_threshold(call)
    longest = threshold.find_min_length() if call.score == ADDITIVE else _get_longest_golden_length()
    if threshold.min_pairs == NEVER or not threshold.applies_to(queries or longest, keys or longest):
        return False
    return None if queries is None or keys is None else True


def _get_longest_golden_length() -> int:
    """Return the number of positions in the longest golden case, except of additive scores; see `edge_cases.py`."""
    return max(threshold.find_min_length() for name, threshold in LARGE_THRESHOLDS.items() if name != ADDITIVE)
