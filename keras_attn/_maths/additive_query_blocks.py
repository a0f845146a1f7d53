"""Additive scores in blocks of queries, with rematerialized features in the backward pass.

The plain form holds all `B Tq Tk U` features from the forward pass to the end of the backward pass. Here one block of
them exists at a time, in either pass, and none where torch compiles kernels for a GPU. The gradient by the scores `g`,
with `t = tanh(q_i + k_j)` for a pair:

    d = g_ij (1 - t^2)    dq_i = w_v sum_j d    dk_j = w_v sum_i d    dw_v = sum_ij g_ij t

Sizes that are unknown while a graph is traced are scalar tensors here: then the number of blocks is one too.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import keras
from keras import ops

from .._keras.custom_gradients import attach_gradient
from .._keras.private_api import is_on_gpu
from .._shapes import ceil_div, dtype_of, exact_dtype, is_known_true, max_size, min_size
from .._types import Pairs, Tensor
from .additive_torch_compiled import block_gradients, block_scores, uses_compiled_kernels
from .masks import visible_key_range
from .scores import additive_scores, project_features

BlockSize = int | Literal["auto"] | None
UNBOUNDED = Pairs()

# Counts of features, for "auto"; measured on two CPU cores, and to be measured again before they are changed.
# Up to as many the plain form is faster, which does not compute them twice. On TensorFlow that is as a graph; torch
# computes blocks operation by operation, and gains memory alone.
_MAX_PLAIN_FEATURES = {"tensorflow": 3 * 2**23, "torch": 2**27}.get(keras.backend.backend(), 2**23)
_MIN_BLOCK_FEATURES = (
    2**20
)  # a block of as many, and what is computed from it, fits a cache; of fewer XLA makes slow code
_MIN_BLOCK_QUERIES = 4  # queries in a block: of fewer too, since it cannot vectorise the sum over queries
_ASSUMED_BATCH_SIZE = 128  # examples in a batch of unknown size, when there is to be decided whether the features fit
# On a GPU an operation takes as long to start as it takes for 2**24 features or more. With torch blocks hold a GB
# unless kernels are compiled; XLA, which keeps no features of a sum over them, gets all queries at once.
_GPU_FEATURE_LIMITS = {"torch": (2**27, 2**28), "jax": (2**24, 2**40)}
_MAX_QUERY_GROUPS = (
    8  # of queries, each with the keys that it may see: causal scores are then 9/16 of all; each is two loops
)


def blocked_additive_scores(
    queries: Tensor, keys: Tensor, w_v: Tensor, block_size: BlockSize, band: Pairs = UNBOUNDED
) -> Tensor:
    """Return additive scores `B + (Tq, Tk)` of projected queries and keys, like `additive_scores`, gradients too.

    Args:
        queries: Projected queries, `B + (Tq, U)`.
        keys: Projected keys, `B + (Tk, U)`.
        w_v: (U, 1), of the dtype of queries and keys.
        block_size: The largest number of queries in a block; `"auto"` for one whose features stay in cache; None, or
            a block that holds all queries, for the plain form.
        pairs: Which pairs take part by their order alone. With blocks, the scores of others may be zeros.
    """
    num_queries, num_keys = (ops.shape(rows)[-2] for rows in (queries, keys))
    if block_size is None or _uses_plain_form(queries, keys, block_size):
        return _plain_scores(queries, keys, w_v)
    groups = _group_queries(num_queries, num_keys, band, block_size)
    if len(groups) == 1:
        return _scores_in_blocks(queries, keys, w_v, block_size)

    def scores_of(group: QueryGroup) -> Tensor:
        rows, seen = queries[..., group.start : group.stop, :], keys[..., group.first_key : group.end_key, :]
        scores = _scores_in_blocks(rows, seen, w_v, block_size)
        masked = [group.first_key, num_keys - group.end_key]
        return ops.pad(scores, [*([0, 0] for _ in scores.shape[:-1]), masked])

    return ops.concatenate([scores_of(group) for group in groups], axis=-2)


def _feature_limits(keys: Tensor) -> tuple[int, int]:
    """How many features the plain form may have for `"auto"`, and how many a block has at least."""
    gpu_limits = _GPU_FEATURE_LIMITS.get(keras.backend.backend()) if is_on_gpu(keys) else None
    return gpu_limits or (_MAX_PLAIN_FEATURES, _MIN_BLOCK_FEATURES)


def _plain_scores(queries: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
    return additive_scores(queries, keys, lambda features: _multiply_by_w_v(features, w_v))


def _multiply_by_w_v(features: Tensor, w_v: Tensor) -> Tensor:
    """The product (N, 1) of features and `w_v` (U, 1), which XLA fuses on a GPU where it is written as a sum."""
    if keras.backend.backend() == "jax" and is_on_gpu(features):
        return ops.sum(features * ops.transpose(w_v), axis=-1, keepdims=True)
    return ops.matmul(features, w_v)


def _uses_plain_form(queries: Tensor, keys: Tensor, block_size: Any) -> bool:
    """Whether the plain form is known to do for all queries."""
    num_queries = ops.shape(queries)[-2]
    if block_size != "auto":
        return is_known_true(block_size >= num_queries)
    *batch, num_keys, num_hiddens = ops.shape(keys)
    batch_sizes = [size if isinstance(size, int) else _ASSUMED_BATCH_SIZE for size in batch]
    features = math.prod(batch_sizes) * num_keys * num_hiddens * num_queries
    return is_known_true(features <= _feature_limits(keys)[0]) or is_known_true(num_queries <= _MIN_BLOCK_QUERIES)


class QueryGroup(NamedTuple):
    """Queries `start <= i < stop`, and the keys `first <= j < end` outside of which they see none."""

    start: Any
    stop: Any
    first_key: Any
    end_key: Any


def _group_queries(num_queries: Any, num_keys: Any, band: Pairs, block_size: Any) -> list[QueryGroup]:
    """Groups of queries beside each other, whose keys are known before the program is: no backend waits for a size."""
    ungrouped = QueryGroup(0, num_queries, 0, num_keys)
    if band == UNBOUNDED:
        return [ungrouped]
    size = max_size(
        ceil_div(num_queries, _MAX_QUERY_GROUPS), _MIN_BLOCK_QUERIES if block_size == "auto" else block_size
    )
    groups = []
    for index in range(_MAX_QUERY_GROUPS):
        start, stop = index * size, min_size((index + 1) * size, num_queries)
        if is_known_true(start >= num_queries):
            break
        groups.append(QueryGroup(start, stop, *visible_key_range(band, start, stop, num_keys)))
    see_all_keys = all(is_known_true(group.first == 0) and is_known_true(group.end == num_keys) for group in groups)
    return [ungrouped] if see_all_keys else groups


def _auto_block_size(queries: Tensor, keys: Tensor) -> Any:
    """The number of queries in a block for `"auto"`, such that all blocks hold as many features as they should."""
    num_queries, (*batch, num_keys, num_hiddens) = ops.shape(queries)[-2], ops.shape(keys)
    min_queries = max_size(
        ceil_div(_feature_limits(keys)[1], max_size(math.prod(batch) * num_keys * num_hiddens, 1)), _MIN_BLOCK_QUERIES
    )
    size = ceil_div(num_queries, max_size(num_queries // min_queries, 1))
    return max_size(size, 1)  # a group may have no queries, where their number was not known when groups were made


class QueryBlocks(NamedTuple):
    """Rows of queries, `B + (T, D)`, in `count` blocks of `size` rows, with zeros after the last row."""

    num_rows: Any
    count: Any
    size: Any

    def split(self, rows: Tensor) -> Tensor:
        """Return rows as blocks `(count,) + B + (size, D)`."""
        *batch, num_rows, features = ops.shape(rows)
        padding = self.count * self.size - num_rows
        if not is_known_true(padding == 0):
            rows = ops.pad(rows, [[0, 0]] * len(batch) + [[0, padding], [0, 0]])
        return ops.moveaxis(ops.reshape(rows, (*batch, self.count, self.size, features)), -3, 0)

    def join(self, blocks: Tensor) -> Tensor:
        """Return blocks `(count,) + B + (size, D)` as rows, without the padding."""
        count, *batch, size, features = ops.shape(blocks)
        rows = ops.reshape(ops.moveaxis(blocks, 0, -3), (*batch, count * size, features))
        return rows if is_known_true(count * size == self.num_rows) else rows[..., : self.num_rows, :]


def _scores_in_blocks(queries: Tensor, keys: Tensor, w_v: Tensor, block_size: Any) -> Tensor:
    if is_known_true(ops.shape(keys)[-2] == 0):
        return _plain_scores(queries, keys, w_v)
    max_queries = _auto_block_size(queries, keys) if block_size == "auto" else block_size
    num_queries = ops.shape(queries)[-2]
    # As few blocks as this size allows, of equal size: the last one is then padded by less than one query a block.
    count = max_size(ceil_div(num_queries, max_queries), 1)
    size = max_size(ceil_div(num_queries, count), 1)  # to ONNX, a size of 0 in a reshape means another
    blocks = QueryBlocks(num_queries, count, size)
    if keras.backend.backend() == "jax":
        return blocks.join(_jax_block_scores(blocks.split(queries), keys, w_v))

    def scores_of(queries: Tensor, keys: Tensor, w_v: Tensor) -> tuple[Tensor, Callable[..., tuple[Tensor, ...]]]:
        def gradient(*received: Tensor, upstream: Tensor | None = None) -> tuple[Tensor, ...]:
            # TensorFlow passes the gradient alone, torch the arguments as well.
            arguments = (queries, keys, w_v, *received) if upstream is None else (*received, upstream)
            return _compute_gradients(blocks, *arguments)

        # TensorFlow's eager tape would record these ops as well, and keep the features.
        constant_keys, constant_w_v = ops.stop_gradient(keys), ops.stop_gradient(w_v)

        def block_of(rows: Tensor) -> Tensor:
            scores = block_scores if uses_compiled_kernels(rows) else _plain_scores
            return scores(rows, constant_keys, constant_w_v)

        return blocks.join(_map_blocks(block_of, blocks.split(ops.stop_gradient(queries)))), gradient

    scores: Tensor = attach_gradient(scores_of)(queries, keys, w_v)
    return scores


def _jax_block_scores(query_blocks: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
    """Blocks of scores, by a map of JAX that makes the features again where a derivative needs them.

    JAX takes derivatives of a function with a gradient of its own in reverse alone; of this, in both directions.
    """
    import jax

    dtype, sums_dtype = dtype_of(query_blocks), exact_dtype(dtype_of(query_blocks))

    def block_of(rows: Tensor, keys: Tensor, w_v: Tensor) -> Tensor:
        sums = ops.cast(ops.expand_dims(rows, -2) + ops.expand_dims(keys, -3), dtype)
        return project_features(ops.tanh(sums), lambda features: _multiply_by_w_v(features, ops.cast(w_v, dtype)))

    # A derivative by what a map does not map over is summed in its dtype.
    query_blocks, keys, w_v = (ops.cast(x, sums_dtype) for x in (query_blocks, keys, w_v))
    block_of = jax.checkpoint(block_of, prevent_cse=False)  # what that prevents does not happen within a map
    return jax.lax.map(lambda rows: block_of(rows, keys, w_v), query_blocks)


def _compute_gradients(
    blocks: QueryBlocks, queries: Tensor, keys: Tensor, w_v: Tensor, dscores: Tensor
) -> tuple[Tensor, ...]:
    """Return the gradients by projected queries, keys and `w_v`, from the gradient by the scores."""
    dtype, sums_dtype = dtype_of(queries), exact_dtype(dtype_of(queries))

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
    (dkeys, dw_v), dqueries = _fold_blocks(
        step, zeros, blocks.split(queries), blocks.split(ops.cast(dscores, sums_dtype))
    )
    return (
        ops.cast(blocks.join(dqueries) * weights, dtype),
        ops.cast(dkeys * weights, dtype),
        ops.cast(ops.transpose(dw_v), dtype),
    )


def _map_blocks(function: Callable[[Tensor], Tensor], blocks: Tensor) -> Tensor:
    """What a function gives for each block."""
    if keras.backend.backend() != "tensorflow":
        return ops.map(function, blocks)
    import tensorflow as tf

    # Unless it is told, TensorFlow runs ten steps at a time, and ten blocks of features exist.
    return tf.map_fn(function, blocks, parallel_iterations=1)


def _fold_blocks(
    step: Callable[..., tuple[tuple[Tensor, ...], Tensor]],
    sums: tuple[Tensor, ...],
    blocks: Tensor,
    other_blocks: Tensor,
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Sum over all blocks, and stack what a step returns for each, in a form whose gradient each backend can take.

    A step maps the sums so far and a block of each kind, from arrays `(count,) + ...`, to the next sums and its result,
    which has the shape of `blocks` and the dtype of the sums.
    """
    if keras.backend.backend() == "torch":  # which compiles a loop of Python, and no tensor as an index
        results = []
        for index in range(len(blocks)):
            sums, result = step(sums, blocks[index], other_blocks[index])
            results.append(result)
        return sums, ops.stack(results)
    import tensorflow as tf

    def body(index: Tensor, results: Tensor, *sums: Tensor) -> tuple[Tensor, ...]:
        sums, result = step(sums, blocks[index], other_blocks[index])
        return index + 1, tf.tensor_scatter_nd_update(results, [[index]], result[None]), *sums

    zeros, count = tf.zeros_like(blocks, sums[0].dtype), ops.shape(blocks)[0]
    if 0 in tuple(blocks.shape):  # TensorFlow updates no tensor without entries, as that of a batch without examples
        return sums, zeros
    steps = tf.minimum(count, tf.size(blocks))  # the same where sizes are unknown
    start = tf.constant(0), zeros, *sums
    # XLA needs to know how many steps there are at most.
    _, results, *sums = tf.while_loop(
        lambda index, *_: index < steps, body, start, maximum_iterations=count, parallel_iterations=1
    )
    return tuple(sums), results
