"""Dot-product attention, one example at a time, in query blocks.

A block has at most `MAX_BLOCK_SCORES` scores and `MAX_BLOCK_QUERIES` queries. Each query of the block computes scores
with all keys of the block's range (`key_ranges.py`): with n queries, up to n - 1 more than a causal mask or a window
leaves to it. Smaller blocks compute fewer masked scores in slower products.

With a causal mask, a key mask becomes one more component of queries and keys: 1 in each query; in a key 0, or
FLOAT32_MIN if the key is masked, whose other components are then 0. So q k + 1 * bias = bias: the product adds the mask
to the scores, and no pass over the scores is needed.
"""

from dataclasses import replace

from ..._onnx.lazy_values import FLOAT32_MIN, Outputs, Value, concat_shape, op
from ..block_split import split_queries
from ..body_inputs import BodyInputs
from ..example_blocks import scan_blocks, unfold_scores
from ..heads import pad_last_axis, split_heads, split_query_groups
from ..key_ranges import ScoreFunction, has_unmasked_prefix
from ..per_example import SplitExample, scan_examples

MAX_BLOCK_SCORES = 2**19  # over all heads: 2 MB in float32
MAX_BLOCK_QUERIES = 128  # with more, a block computes more scores that a causal mask or a window masks


def build_body(inputs: BodyInputs) -> Outputs:
    """Return the output (B, Tq, H Dv) of a call and, if returned, its weights."""
    scores_per_query = count_keys_per_block(inputs) * inputs.call.num_heads
    split = split_queries(inputs, scores_per_query, MAX_BLOCK_SCORES, MAX_BLOCK_QUERIES)
    blocks = split.split(inputs, inputs.queries * inputs.call.options["scale"])
    return scan_examples(inputs, split, _attend_example, blocks)


def count_keys_per_block(inputs: BodyInputs) -> Value:
    """Return the largest number of keys that a block of queries may read, a size."""
    left, right = inputs.call.window
    return inputs.Tk if left is None or right is None else op.Min(inputs.Tk, [left + right + MAX_BLOCK_QUERIES])


def _attend_example(example: SplitExample, queries: Value) -> Outputs:
    """Return the output and the weights of an example, for scaled queries (blocks, n, H D)."""
    call, inputs = example.inputs.call, example.inputs
    is_mask_in_keys = has_unmasked_prefix(call) and call.has_key_mask
    if is_mask_in_keys:
        key_mask = op.Unsqueeze(inputs.keys_mask, [1])
        keys, values = (op.Where(key_mask, tensor, 0.0) for tensor in (inputs.keys, inputs.values))
        inputs = replace(inputs, keys=keys, values=values)
        example = example._replace(inputs=inputs)
    if call.heads is None:
        keys, axis = op.Transpose(inputs.keys, perm=[1, 0]), 1
    else:
        keys, axis = split_heads(inputs.keys, call.num_kv_heads, call.key_size, order=(1, 2, 0)), 2
    if is_mask_in_keys:
        bias = op.Where(inputs.keys_mask, 0.0, FLOAT32_MIN)
        bias = op.Expand(bias, concat_shape(*[call.num_kv_heads] * (axis - 1), 1, inputs.Tk))
        keys = op.Concat(keys, bias, axis=axis - 1)

    def build_score_function(block_queries: Value) -> ScoreFunction:
        rows = block_queries if call.heads is None else split_query_groups(call, block_queries, call.key_size)
        rows = pad_last_axis(rows, axis + 1, count=1, fill=1.0) if is_mask_in_keys else rows

        def compute_scores(start: Value, end: Value) -> Value:
            return unfold_scores(example, op.MatMul(rows, op.Slice(keys, start, end, [axis])))

        return compute_scores

    return scan_blocks(example, build_score_function, queries)
