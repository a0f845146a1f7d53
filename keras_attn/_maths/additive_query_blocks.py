"""Additive scores in blocks of queries, with rematerialized features in the backward pass.

The plain form stores all `B Tq Tk U` features `tanh(q_i + k_j)` from the forward to the end of the backward pass. The
block form stores the features of `size` queries at a time, in both passes; kernels that torch compiles for a GPU store
none. With the gradient `g_ij` by the scores and `t = tanh(q_i + k_j)`, the gradients of the inputs are

    d = g_ij (1 - t^2)    dq_i = w_v sum_j d    dk_j = w_v sum_i d    dw_v = sum_ij g_ij t

With a causal mask or window, queries are divided into up to 8 groups, and each group is scored against the range of
its unmasked keys. Under a causal mask, group g of n needs g / n of the keys, so all groups need (n + 1) / (2 n) of the
pairs, 9/16 for n = 8. More groups approach 1/2, but every group is a loop in each pass, which XLA compiles separately.

A size, also the number of blocks, is an integer, or a scalar tensor if a traced graph does not know the size.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import keras
from keras import ops

from .._keras.custom_gradients import attach_gradient
from .._keras.private_api import is_on_gpu
from .._shapes import accumulation_dtype, ceil_div, dtype_of, is_known_true, max_size, min_size
from .._types import BandMask, Tensor
from .additive_torch_compiled import block_gradients, block_scores, uses_compiled_kernels
from .masks import visible_key_range
from .scores import additive_scores, project_features

BlockSize = int | Literal["auto"] | None
UNBOUNDED = BandMask()

# Limits of block_size="auto", in features (`B Tq Tk U`), measured on two CPU cores; measure again before a change.
# Up to this number the plain form is faster, as it computes features once (on TensorFlow: as a graph). On torch, blocks
# run operation by operation, so they only save memory.
_MAX_PLAIN_FEATURES = {"tensorflow": 3 * 2**23, "torch": 2**27}.get(keras.backend.backend(), 2**23)
# A block of 4 MiB in float32 stays in the cache with its intermediate results. XLA compiles slow code for smaller
# blocks, and for blocks of fewer than 4 queries, where it cannot vectorize the sum over queries.
_MIN_BLOCK_FEATURES = 2**20
_MIN_BLOCK_QUERIES = 4
# Stands for an unknown batch size in the choice between plain form and blocks.
_ASSUMED_BATCH_SIZE = 128
# (plain form up to, minimum of a block). On a GPU, launching an operation takes as long as computing 2**24 features or
# more. With torch a block takes 1 GiB, unless kernels are compiled. XLA on a GPU fuses the sum over features without
# storing them, so one block holds all queries.
_GPU_FEATURE_LIMITS = {"torch": (2**27, 2**28), "jax": (2**24, 2**40)}
_MAX_QUERY_GROUPS = 8


def blocked_additive_scores(
    queries: Tensor, keys: Tensor, w_v: Tensor, block_size: BlockSize, band: BandMask = UNBOUNDED
) -> Tensor:
    """Return additive scores `B + (Tq, Tk)`, equal to `additive_scores` up to rounding, and so are their gradients.

    Args:
        queries: Projected queries, `B + (Tq, U)`.
        keys: Projected keys, `B + (Tk, U)`.
        w_v: Kernel, (U, 1), of the dtype of queries and keys.
        block_size: Maximum number of queries in a block; `"auto"` for blocks that stay in the cache; None, or at least
            Tq, for the plain form.
        band: Causal mask or window. The block form may return zeros for pairs outside of the band.
    """
    num_queries, num_keys = (ops.shape(rows)[-2] for rows in (queries, keys))
    if block_size is None or _uses_plain_form(queries, keys, block_size):
        return _plain_scores(queries, keys, w_v)
    groups = _group_queries(num_queries, num_keys, band, block_size)
    if len(groups) == 1:
        return _scores_in_blocks(queries, keys, w_v, block_size)

    def score_group(group: QueryGroup) -> Tensor:
        rows, group_keys = queries[..., group.start : group.stop, :], keys[..., group.first_key : group.end_key, :]
        scores = _scores_in_blocks(rows, group_keys, w_v, block_size)
        padding = [group.first_key, num_keys - group.end_key]
        return ops.pad(scores, [*([0, 0] for _ in scores.shape[:-1]), padding])

    return ops.concatenate([score_group(group) for group in groups], axis=-2)


def _feature_limits(keys: Tensor) -> tuple[int, int]:
    """Return (maximum features of the plain form, minimum features of a block) on the device of keys `B + (Tk, U)`."""
    gpu_limits = _GPU_FEATURE_LIMITS.get(keras.backend.backend()) if is_on_gpu(keys) else None
    return gpu_limits or (_MAX_PLAIN_FEATURES, _MIN_BLOCK_FEATURES)


def _plain_scores(queries: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
    """Return scores in the plain form; shapes as in `blocked_additive_scores`."""
    return additive_scores(queries, keys, lambda features: _multiply_by_w_v(features, w_v))


def _multiply_by_w_v(features: Tensor, w_v: Tensor) -> Tensor:
    """Return the product (N, 1) of features (N, U) and `w_v` (U, 1)."""
    # On a GPU XLA fuses the tanh into a sum, but not into a matrix product, which would store the features.
    if keras.backend.backend() == "jax" and is_on_gpu(features):
        return ops.sum(features * ops.transpose(w_v), axis=-1, keepdims=True)
    return ops.matmul(features, w_v)


def _uses_plain_form(queries: Tensor, keys: Tensor, block_size: Any) -> bool:
    """Return True if queries `B + (Tq, U)` and keys `B + (Tk, U)` are statically known to need no blocks."""
    num_queries = ops.shape(queries)[-2]
    if block_size != "auto":
        return is_known_true(block_size >= num_queries)
    *batch, num_keys, num_hiddens = ops.shape(keys)
    batch_sizes = [size if isinstance(size, int) else _ASSUMED_BATCH_SIZE for size in batch]
    features = math.prod(batch_sizes) * num_keys * num_hiddens * num_queries
    return is_known_true(features <= _feature_limits(keys)[0]) or is_known_true(num_queries <= _MIN_BLOCK_QUERIES)


class QueryGroup(NamedTuple):
    """Queries `start <= i < stop` and the keys `first_key <= j < end_key` that a band leaves unmasked for them."""

    start: Any
    stop: Any
    first_key: Any
    end_key: Any


def _group_queries(num_queries: Any, num_keys: Any, band: BandMask, block_size: Any) -> list[QueryGroup]:
    """Divide the queries into consecutive groups of equal size; return one group if every group needs all keys."""
    # The bounds depend on sizes alone, so that XLA and JAX know them when they compile.
    ungrouped = QueryGroup(0, num_queries, 0, num_keys)
    if band == UNBOUNDED:
        return [ungrouped]
    min_queries = _MIN_BLOCK_QUERIES if block_size == "auto" else block_size
    size = max_size(ceil_div(num_queries, _MAX_QUERY_GROUPS), min_queries)
    groups = []
    for index in range(_MAX_QUERY_GROUPS):
        start, stop = index * size, min_size((index + 1) * size, num_queries)
        if is_known_true(start >= num_queries):
            break
        groups.append(QueryGroup(start, stop, *visible_key_range(band, start, stop, num_keys)))
    need_all_keys = all(is_known_true(first == 0) and is_known_true(end == num_keys) for _, _, first, end in groups)
    return [ungrouped] if need_all_keys else groups


def _auto_block_size(queries: Tensor, keys: Tensor) -> Any:
    """Return the queries in a block for `"auto"`, at equal sizes, for queries `B + (Tq, U)` and keys `B + (Tk, U)`."""
    num_queries, (*batch, num_keys, num_hiddens) = ops.shape(queries)[-2], ops.shape(keys)
    query_features = max_size(math.prod(batch) * num_keys * num_hiddens, 1)
    min_queries = max_size(ceil_div(_feature_limits(keys)[1], query_features), _MIN_BLOCK_QUERIES)
    size = ceil_div(num_queries, max_size(num_queries // min_queries, 1))
    # If Tq was unknown when the groups were made, a group may have no queries.
    return max_size(size, 1)


class QueryBlocks(NamedTuple):
    """Division of the rows of queries `B + (num_rows, D)` into `count` blocks of `size` rows, zero-padded."""

    num_rows: Any
    count: Any
    size: Any

    def split(self, rows: Tensor) -> Tensor:
        """Split rows `B + (num_rows, D)` into blocks `(count,) + B + (size, D)`."""
        *batch, num_rows, features = ops.shape(rows)
        padding = self.count * self.size - num_rows
        if not is_known_true(padding == 0):
            rows = ops.pad(rows, [[0, 0]] * len(batch) + [[0, padding], [0, 0]])
        return ops.moveaxis(ops.reshape(rows, (*batch, self.count, self.size, features)), -3, 0)

    def join(self, blocks: Tensor) -> Tensor:
        """Join blocks `(count,) + B + (size, D)` to rows `B + (num_rows, D)`, without the padding."""
        count, *batch, size, features = ops.shape(blocks)
        rows = ops.reshape(ops.moveaxis(blocks, 0, -3), (*batch, count * size, features))
        return rows if is_known_true(count * size == self.num_rows) else rows[..., : self.num_rows, :]


def _scores_in_blocks(queries: Tensor, keys: Tensor, w_v: Tensor, block_size: Any) -> Tensor:
    """Return scores in the block form; shapes as in `blocked_additive_scores`."""
    if is_known_true(ops.shape(keys)[-2] == 0):
        return _plain_scores(queries, keys, w_v)
    max_queries = _auto_block_size(queries, keys) if block_size == "auto" else block_size
    num_queries = ops.shape(queries)[-2]
    # Blocks of equal size need less than one query of padding per block.
    count = max_size(ceil_div(num_queries, max_queries), 1)
    # ONNX Reshape interprets a size of 0 as "copy the size of the input".
    size = max_size(ceil_div(num_queries, count), 1)
    blocks = QueryBlocks(num_queries, count, size)
    if keras.backend.backend() == "jax":
        return blocks.join(_jax_block_scores(blocks.split(queries), keys, w_v))

    def score_all(queries: Tensor, keys: Tensor, w_v: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        def gradient(*received: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            # TensorFlow passes only the upstream gradient, torch also the arguments.
            arguments = (queries, keys, w_v, *received) if upstream is None else (*received, upstream)
            return _backprop(blocks, *arguments)

        # Without stop_gradient TensorFlow's eager tape records these operations and keeps the features.
        constant_keys, constant_w_v = ops.stop_gradient(keys), ops.stop_gradient(w_v)

        def score_block(rows: Tensor) -> Tensor:
            scores = block_scores if uses_compiled_kernels(rows) else _plain_scores
            return scores(rows, constant_keys, constant_w_v)

        return blocks.join(_map_blocks(score_block, blocks.split(ops.stop_gradient(queries)))), gradient

    scores: Tensor = attach_gradient(score_all)(queries, keys, w_v)
    return scores


def _jax_block_scores(query_blocks: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
    """Return score blocks `(count,) + B + (size, Tk)` of query blocks, keys `B + (Tk, U)` and `w_v` (U, 1)."""
    import jax

    # `jax.checkpoint` recomputes features for the gradient. Unlike a custom gradient, it supports forward mode.

    dtype, sums_dtype = dtype_of(query_blocks), accumulation_dtype(dtype_of(query_blocks))

    def score_block(rows: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
        sums = ops.cast(ops.expand_dims(rows, -2) + ops.expand_dims(keys, -3), dtype)
        return project_features(ops.tanh(sums), lambda features: _multiply_by_w_v(features, ops.cast(w_v, dtype)))

    # JAX sums the gradients of keys and w_v over the blocks in their dtype.
    query_blocks, keys, w_v = (ops.cast(x, sums_dtype) for x in (query_blocks, keys, w_v))
    # Inside of a map XLA cannot merge the recomputation with the forward pass, which prevent_cse guards against.
    score_block = jax.checkpoint(score_block, prevent_cse=False)
    return jax.lax.map(lambda rows: score_block(rows, keys, w_v), query_blocks)


def _backprop(blocks: QueryBlocks, queries: Tensor, keys: Tensor, w_v: Tensor, dscores: Tensor) -> tuple[Tensor, ...]:
    """Return the gradients of queries `B + (Tq, U)`, keys `B + (Tk, U)` and `w_v` (U, 1).

    `dscores` is the gradient by the scores, `B + (Tq, Tk)`. Sums are computed in float32 at least.
    """
    dtype, sums_dtype = dtype_of(queries), accumulation_dtype(dtype_of(queries))

    def step(sums: tuple[Tensor, ...], rows: Tensor, drows: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        dkeys, dw_v = sums
        if uses_compiled_kernels(rows):
            more_dqueries, more_dkeys, more_dw_v = block_gradients(rows, keys, drows)
            return (dkeys + more_dkeys, dw_v + more_dw_v), more_dqueries
        drows = ops.expand_dims(drows, -1)
        features = ops.tanh(ops.expand_dims(rows, -2) + ops.expand_dims(keys, -3))
        features = ops.cast(features, sums_dtype)
        dw_v = dw_v + ops.matmul(ops.reshape(drows, (1, -1)), ops.reshape(features, (-1, features.shape[-1])))
        dsums = drows * (1.0 - features * features)
        return (dkeys + ops.sum(dsums, -3), dw_v), ops.sum(dsums, -2)

    weights = ops.cast(ops.transpose(w_v), sums_dtype)
    zeros = tuple(ops.zeros_like(sums, dtype=sums_dtype) for sums in (keys, weights))
    (dkeys, dw_v), dqueries = _fold(step, zeros, blocks.split(queries), blocks.split(ops.cast(dscores, sums_dtype)))
    return (
        ops.cast(blocks.join(dqueries) * weights, dtype),
        ops.cast(dkeys * weights, dtype),
        ops.cast(ops.transpose(dw_v), dtype),
    )


def _map_blocks(function: Callable[[Tensor], Tensor], blocks: Tensor) -> Tensor:
    """Apply a function to every block `(count,) + ...`, one at a time, and stack the results."""
    if keras.backend.backend() != "tensorflow":
        return ops.map(function, blocks)
    import tensorflow as tf

    # By default TensorFlow runs ten iterations at a time, so that ten blocks of features exist.
    return tf.map_fn(function, blocks, parallel_iterations=1)


def _fold(
    step: Callable[..., tuple[tuple[Tensor, ...], Tensor]], sums: tuple[Tensor, ...], blocks: Tensor, deltas: Tensor
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Fold a step over all blocks, in a form that every backend can differentiate; return sums and stacked results.

    `step(sums, blocks[n], deltas[n])` returns the next sums and a result. The sums keep their shapes, both arrays
    of blocks are `(count,) + ...`, and the results have the shape of `blocks` and the dtype of the sums.
    """
    if keras.backend.backend() == "torch":
        # torch.compile unrolls a Python loop, but does not compile a tensor as an index.
        results = []
        for index in range(len(blocks)):
            sums, result = step(sums, blocks[index], deltas[index])
            results.append(result)
        return sums, ops.stack(results)
    import tensorflow as tf

    def body(index: Tensor, results: Tensor, *sums: Tensor) -> tuple[Tensor, ...]:
        sums, result = step(sums, blocks[index], deltas[index])
        return index + 1, tf.tensor_scatter_nd_update(results, [[index]], result[None]), *sums

    zeros, count = tf.zeros_like(blocks, sums[0].dtype), ops.shape(blocks)[0]
    # TensorFlow cannot update an empty tensor, such as that of an empty batch, whether its size is static or dynamic.
    if 0 in tuple(blocks.shape):
        return sums, zeros
    steps = tf.minimum(count, tf.size(blocks))
    start = tf.constant(0), zeros, *sums
    # XLA needs an upper bound of the number of iterations.
    _, results, *sums = tf.while_loop(
        lambda index, *_: index < steps, body, start, maximum_iterations=count, parallel_iterations=1
    )
    return tuple(sums), results
