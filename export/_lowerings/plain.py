"""The `portable` lowering: plain ONNX of opset 18, which any runtime has.

What masks keep out gets a bias of the lowest float32 or less, from a selection over the mask, which is small where it
is the same for all queries or heads; a selection over all scores took as long as the softmax. What the bias does to NaN
is undone before: keys and values that no query sees are zeros. Only scores with a bias of the caller's are selected:
that may be anything where a pair takes no part.
"""

from __future__ import annotations

import re

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.composite import ADDITIVE, DISTANCE, DOT_PRODUCT

from .._tracing.attention_calls import Call
from . import distances
from .first_try import all_see, same, tried
from .masks import hidden, is_masked, may_lack_keys, pairs, rows, zeros_without_keys
from .normalizers import normalized
from .text import renamed

LOWEST_OPSET = 18


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call."""
    return call.name in _SCORES


def body(call: Call) -> str:
    """Return the body of the ONNX function of a call that fits."""
    if not is_masked(call):
        return from_scores(call, scores(call, "keys"), "values")
    return f"""
        {pairs(call) + rows(call) + hidden(call, "keys", "values")}
        {from_scores(call, scores(call, "hidden_keys"), "hidden_values")}
    """


def scores(call: Call, keys: str) -> str:
    """Lines that give `scores` of the queries and some keys, all pairs at once."""
    return _SCORES[call.name](call, keys)


def from_scores(call: Call, scores: str, values: str) -> str:
    """Lines that define the outputs of a call; they read what `pairs` and `rows` give, if it is masked.

    Args:
        call: The call.
        scores: Lines that give `scores`.
        values: The name of the values, zeros where no query sees them.
    """
    given = _attention(call, scores, values, "only")
    if not is_masked(call):
        return given + same(call, "only")
    return given + "".join(zeros_without_keys(call, name, f"only_{name}") for name in call.outputs)


def quick_body(call: Call, name: str) -> str:
    """Return a body that hides keys and values only where they leaked; `name` begins the names of its branches.

    A weight that onnxruntime knows before a run would be packed for the first product and not for the one in a branch,
    whose last bits would differ: a selection keeps it from that.
    """
    if not (may_lack_keys(call) and call.normalizer == SOFTMAX) or call.differs_by_query:
        return body(call)

    def attention(keys: str, values: str, form: str) -> str:
        return _attention(call, scores(call, keys), values, form, selects=call.name != ADDITIVE)

    lines = tried(call, attention, name)
    if call.name == ADDITIVE:
        lines = re.sub(r"\bw_v\b", "unpacked_w_v", lines)
        lines = "unpacked_w_v = Where (all_see, w_v, w_v)\n" + lines
    return pairs(call) + rows(call) + all_see(call) + lines


def _attention(call: Call, scores: str, values: str, form: str, *, selects: bool = False) -> str:
    """Lines that give `{form}_output`, and `{form}_weights`.

    Args:
        call: The call.
        scores: Lines that give `scores`.
        values: The name of the values.
        form: What their names begin with.
        selects: Whether scores of what masks keep out may be as large as the bias, which then is none: they are
            replaced.
    """
    lines = f"""
        {scores}
        {_biased(call)}
        {_weights(call, selects or call.has_bias)}
        {_pooled(call, values)}
        output = Identity (pooled)
        weights = Identity (all_weights)
    """
    return renamed(lines, form)


def _products(call: Call, keys: str) -> str:
    scale = f"scale = Constant <value_float = {call.options['scale']!r}> ()\nscaled = Mul (queries, scale)\n"
    if call.heads is None:
        return scale + f"keys_upright = Transpose <perm = [0, 2, 1]> ({keys})\nscores = MatMul (scaled, keys_upright)\n"
    return (
        scale
        + f"""
        {_heads("scaled", "query_heads", call.num_heads, call.key_size, "0, 2, 1, 3")}
        {_heads(keys, "keys_of_heads", call.num_kv_heads, call.key_size, "0, 2, 3, 1")}
        {_repeated(call, "keys_of_heads", "keys_of_all_heads")}
        scores = MatMul (query_heads, keys_of_all_heads)
    """
    )


def _heads(source: str, name: str, number: int, size: int, perm: str) -> str:
    return f"""
        shape_of_{name} = Constant <value_ints = [0, 0, {number}, {size}]> ()
        {name}_in_rows = Reshape ({source}, shape_of_{name})
        {name} = Transpose <perm = [{perm}]> ({name}_in_rows)
    """


def _repeated(call: Call, source: str, name: str) -> str:
    """Lines that give each head of keys (N, G, ...) to its heads of queries (N, H, ...)."""
    times = call.num_heads // call.num_kv_heads
    if times == 1:
        return f"{name} = Identity ({source})\n"
    return f"""
        {name}_single = Unsqueeze ({source}, two)
        {name}_times = Constant <value_ints = [1, 1, {times}, 1, 1]> ()
        {name}_repeated = Expand ({name}_single, {name}_times)
        {name}_tail = Shape <start = 2> ({source})
        {name}_heads = Constant <value_ints = [{call.num_heads}]> ()
        {name}_shape = Concat <axis = 0> (N, {name}_heads, {name}_tail)
        {name} = Reshape <allowzero = 1> ({name}_repeated, {name}_shape)
    """


def _additive(call: Call, keys: str) -> str:
    before, queries = "", "queries"
    if call.heads is not None:
        before = f"""
            {_heads("queries", "query_heads", call.num_heads, call.key_size, "0, 2, 1, 3")}
            {_heads(keys, "keys_of_heads", call.num_kv_heads, call.key_size, "0, 2, 1, 3")}
            {_repeated(call, "keys_of_heads", "keys_of_all_heads")}
        """
        queries, keys = "query_heads", "keys_of_all_heads"
    return f"""
        {before}
        minus_three = Constant <value_ints = [-3]> ()
        query_column = Unsqueeze ({queries}, minus_two)
        key_row = Unsqueeze ({keys}, minus_three)
        sums = Add (query_column, key_row)
        features = Tanh (sums)
        scores_column = MatMul (features, w_v)
        scores = Squeeze (scores_column, minus_one)
    """


def _distances(call: Call, keys: str) -> str:
    return f"""
        query_coordinates = Transpose <perm = [0, 2, 1]> (queries)
        key_coordinates = Transpose <perm = [0, 2, 1]> ({keys})
        {distances.scores("query_coordinates", "key_coordinates")}
    """


_SCORES = {DOT_PRODUCT: _products, ADDITIVE: _additive, DISTANCE: _distances}


def _biased(call: Call) -> str:
    """Lines that give `biased_scores`: those of pairs, with what a caller adds to them."""
    if not call.has_bias:
        return "biased_scores = Identity (scores)\n"
    of_scores = f"bias_of_scores = {'Squeeze (bias, one)' if call.heads is None else 'Identity (bias)'}\n"
    return of_scores + "biased_scores = Add (scores, bias_of_scores)\n"


def _weights(call: Call, selects: bool) -> str:
    if not is_masked(call):
        return normalized(call, "biased_scores", "all_weights", None)
    pairs_of_scores = "pairs_of_scores = Identity (pairs)"
    if call.heads is None:
        pairs_of_scores = f"pairs_of_scores = {'Squeeze (pairs' if call.differs_by_query else 'Unsqueeze (seen'}, one)"
    large_as_scores = call.differs_by_query and call.heads is None
    if selects or large_as_scores or (call.differs_by_query and call.normalizer != SOFTMAX):
        masked = "masked_scores = Where (pairs_of_scores, biased_scores, lowest)\n"
    else:
        # keys that only other queries see are not zeros: their scores may be as large as the lowest float32
        enough = "Add (lowest, lowest)" if call.differs_by_query else "Identity (lowest)"
        masked = f"""
            enough = {enough}
            bias_of_masks = Where (pairs_of_scores, nothing, enough)
            masked_scores = Add (biased_scores, bias_of_masks)
        """
    return f"{pairs_of_scores}\n{masked}\n" + normalized(call, "masked_scores", "all_weights", "pairs_of_scores")


def _pooled(call: Call, values: str) -> str:
    if call.heads is None:
        return f"pooled = MatMul (all_weights, {values})\n"
    return f"""
        {_heads(values, "values_of_heads", call.num_kv_heads, call.value_size, "0, 2, 1, 3")}
        {_repeated(call, "values_of_heads", "values_of_all_heads")}
        pooled_heads = MatMul (all_weights, values_of_all_heads)
        pooled_rows = Transpose <perm = [0, 2, 1, 3]> (pooled_heads)
        heads_side_by_side = Constant <value_ints = [0, 0, {call.num_heads * call.value_size}]> ()
        pooled = Reshape (pooled_rows, heads_side_by_side)
    """
