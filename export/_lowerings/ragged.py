"""The `ragged` lowering: one example at a time over the keys that take part, in blocks that stay in the cache.

Scaled dot products without a mask of pairs and without returned weights are `MultiHeadAttention`, one of onnxruntime's
own operators, over the keys that take part: without a mask it takes its flash path, and no matrix of Tq Tk numbers
exists. All other calls go over blocks of queries; see `blocks.py`, and `additive.py` for the additive scores.
"""

from __future__ import annotations

import numpy as np

from .._tracing.attention_calls import Call
from . import additive
from .blocks import (
    block_outputs,
    block_sizes,
    example_outputs,
    from_blocks,
    in_blocks,
    is_masked,
    over_blocks,
    over_examples,
    selected,
    taking_part,
)
from .text import CONTRIB

SCORES = 2**20  # elements of the (rows, Tk) scores in a block: 4 MB
LOWEST_OPSET = 18


def fits(call: Call) -> bool:
    """Tell whether there is a body for a call; a scale of 0 would stand for the operator's default."""
    return call.name == "additive" or (call.name == "dot_product" and np.float32(call.options["scale"]) != 0)


def body(call: Call) -> str:
    """Return the body of the ONNX function of a call that fits."""
    if call.name == "additive":
        pooled = additive.body(call)
    else:
        pooled = _in_blocks(call) if call.mask_is_per_query or call.returns_weights else _flash(call)
    return taking_part(call) + pooled


def _flash(call: Call) -> str:
    attention = f"{CONTRIB}.MultiHeadAttention <num_heads = 1, scale = {call.options['scale']!r}>"
    if not is_masked(call):
        # onnx knows no types of onnxruntime's operators, and the ops that follow need one
        return f"""
            untyped = {attention} (queries, keys, values)
            typed = CastLike (untyped, values)
            value_size = Shape <start = -1> (values)
            pooled_shape = Concat <axis = 0> (N, Tq, value_size)
            output = Reshape (typed, pooled_shape)
        """
    example = f"""
        query_batch = Unsqueeze (query, zero)
        key_batch = Unsqueeze (key, zero)
        value_batch = Unsqueeze (value, zero)
        pooled_batch = {attention} (query_batch, key_batch, value_batch)
        example_output = Squeeze (pooled_batch, zero)
    """
    outputs = ("float[?, ?] example_output",)
    return f"""
        pooled = {over_examples(call, {"queries": "float[?, ?] query"}, example, outputs)}
        {selected(call, "output", "pooled")}
    """


def _in_blocks(call: Call) -> str:
    scores = "scores = MatMul (query, features_of_keys)"
    example = f"""
        features_of_keys = Transpose <perm = [1, 0]> (key)
        {over_blocks(call, {"query_blocks_of_example": "float[?, ?] query"}, scores)}
    """
    inputs = {"query_blocks": "float[?, ?, ?] query_blocks_of_example"}
    return f"""
        scale = Constant <value_float = {call.options["scale"]!r}> ()
        scaled = Mul (queries, scale)
        {block_sizes(SCORES, "Tk")}
        {in_blocks(call, "scaled")}
        {block_outputs(call)} = {over_examples(call, inputs, example, example_outputs(call))}
        {from_blocks(call)}
    """
