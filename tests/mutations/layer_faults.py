"""Faults in the layers."""

from .fault import fault

_MASKS = (
    fault(
        "a length counts one key more",
        'ops.less(ops.arange(num_keys, dtype="int32"), valid_lens)',
        'ops.less_equal(ops.arange(num_keys, dtype="int32"), valid_lens)',
        "test_masking",
    ),
    fault(
        "a causal query does not see its own key",
        "    return ops.less_equal(\n",
        "    return ops.less(\n",
        "test_masking -k causal",
    ),
    fault(
        "a window ends one key early",
        "ops.greater_equal(gaps, -left)",
        "ops.greater(gaps, -left)",
        "test_window -k counts",
    ),
    fault(
        "masks are united",
        "reduce(ops.logical_and, given)",
        "reduce(ops.logical_or, given)",
        "test_pooling -k intersected",
    ),
    fault(
        "the values' mask is dropped",
        "keys_mask = intersect(keys_mask, values_mask)",
        "keys_mask = intersect(keys_mask)",
        "test_pooling",
    ),
    fault(
        "masked values are not hidden",
        "values = hide(values, ops.any(mask, axis=-2))",
        "values = hide(values, ops.ones_like(ops.any(mask, axis=-2)))",
        "test_pooling -k nan",
        "test_contract -k poison",
    ),
    fault(
        "keys that some query does not see are hidden from all",
        "hide(keys, ops.any(mask, axis=-2))",
        "hide(keys, ops.all(mask, axis=-2))",
        "test_pooling -k intersected",
        "test_contract_masks",
    ),
    fault(
        "hiding is a product",
        "return ops.where(ops.expand_dims(visible, -1), positions, 0.0)",
        "return positions * ops.cast(ops.expand_dims(visible, -1), positions.dtype)",
        "test_masking -k hidden_nan",
    ),
    fault(
        "the output carries no mask",
        "    if queries_mask is not None:\n",
        "    if queries_mask is None:\n",
        "test_pooling -k goes_on",
    ),
    fault(
        "a state carries no mask",
        "keys_mask.get(PROJECTED) if isinstance(keys_mask, Mapping) else keys_mask",
        "None if isinstance(keys_mask, Mapping) else keys_mask",
        "test_precompute -k carries",
    ),
    fault(
        "a mean over keys that not all queries see",
        "ops.all(ops.logical_or(mask, sees_none), axis=-2)",
        "ops.any(ops.logical_or(mask, sees_none), axis=-2)",
        "test_gaussian -k masked_keys",
    ),
)

_NORMALIZERS = (
    fault(
        "the softmax is not in float32",
        "    scores = at_least_float32(scores)\n    dtype = dtype_of(scores)\n    if mask is None:",
        "    dtype = dtype_of(scores)\n    if mask is None:",
        "test_masking -k half_precision",
    ),
    fault(
        "the fill is no lower than scores may be",
        "_softmax(ops.where(mask, scores, float(np.finfo(dtype).min)))",
        "_softmax(ops.where(mask, scores, -1e9))",
        "test_contract_softmax -k below_every_usual",
    ),
    fault(
        "a row without keys is uniform",
        "    return ops.cast(ops.where(mask, weights, 0.0), given_dtype)",
        "    return ops.cast(weights, given_dtype)",
        "test_masking -k no_key",
    ),
    fault(
        "the sparsemax threshold is too low",
        "(ops.sum(inside * descending, axis=-1, keepdims=True) - 1.0)",
        "(ops.sum(inside * descending, axis=-1, keepdims=True) - 2.0)",
        "test_normalizers",
    ),
    fault(
        "sparsemax counts masked scores",
        "gaps if mask is None else ops.where(mask, gaps, -2.0)",
        "gaps if mask is None else ops.where(mask, gaps, 0.0)",
        "test_normalizers",
    ),
    fault(
        "the gradient of sparsemax goes through its threshold twice",
        "weights = support * ops.maximum(gaps - threshold, 0.0)",
        "weights = support * ops.maximum(gaps - ops.stop_gradient(threshold), 0.0)",
        "test_normalizers -k gradients",
    ),
)

_SCORES = (
    fault(
        "dot products are scaled by another power of D",
        "else size**-0.5",
        "else size**-0.25",
        "test_dot_product",
    ),
    fault(
        "Gaussian scores lack the half",
        "return -0.5 * ops.sum(gaps * gaps, axis=-1)",
        "return -1.0 * ops.sum(gaps * gaps, axis=-1)",
        "test_gaussian",
    ),
    fault(
        "Gaussian scores of many axes forget the size of the keys",
        "return products - ops.expand_dims(of_queries, -1) - ops.expand_dims(of_keys, -2)",
        "return products - ops.expand_dims(of_queries, -1)",
        "test_gaussian",
    ),
    fault(
        "a vector of zeros has no direction",
        "unit * ops.sqrt(ops.where(squares > 0, squares, 1.0))",
        "unit * ops.sqrt(squares)",
        "test_cosine -k zeros",
    ),
    fault(
        "the temperature multiplies",
        "ops.exp(-self.log_temperature)",
        "ops.exp(self.log_temperature)",
        "test_cosine",
    ),
    fault(
        "normalized additive scores start too large",
        "Constant(self.num_hiddens**-0.5)",
        "Constant(self.num_hiddens**0.5)",
        "test_additive -k normalized",
    ),
    fault(
        "the bias of normalized scores is left out",
        "return projected if self.b is None else projected + ops.cast(self.b, projected.dtype)",
        "return projected",
        "test_additive -k normalized",
        "test_contract -k oracle",
    ),
    fault(
        "lengths of vectors overflow",
        "unit = ops.where(largest > 0, largest, 1.0)",
        "unit = ops.ones_like(largest)",
        "test_cosine -k length_of_a_vector",
    ),
)

_BLOCKS = (
    fault(
        "the gradient of tanh is wrong",
        "dsums = drows * (1.0 - features * features)",
        "dsums = drows * (1.0 - features)",
        "test_blocks -k gradients",
    ),
    fault(
        "the gradient of the keys is that of the last block",
        "return (dkeys + ops.sum(dsums, -3), dw_v), ops.sum(dsums, -2)",
        "return (ops.sum(dsums, -3), dw_v), ops.sum(dsums, -2)",
        "test_blocks -k gradients",
    ),
    fault(
        "sums over pairs are taken in half precision",
        'return "float64" if dtype_of(tensor) == "float64" else "float32"',
        "return dtype_of(tensor)",
        "test_blocks -k digits",
    ),
    fault(
        "the tape keeps the features of all blocks",
        "constant_keys, constant_w_v = ops.stop_gradient(keys), ops.stop_gradient(w_v)",
        "constant_keys, constant_w_v = keys, w_v",
        "test_blocks -k features",
        "test_blocks",
    ),
    fault(
        "automatic blocks where all features fit",
        "return holds(features <= _WHOLE) or",
        "return holds(features >= _WHOLE) or",
        "test_blocks -k auto",
    ),
    fault(
        "blocks compute the pairs that their order hides",
        "    if pairs == EVERY_PAIR:\n",
        "    if pairs is not None:\n",
        "test_blocks -k features_of_pairs",
    ),
    fault(
        "a group sees one key less than its last query",
        "smallest(stop + right, num_keys)",
        "smallest(stop + right - 1, num_keys)",
        "test_blocks -k pairs_by_their_order",
    ),
    fault(
        "a group sees no key before its last query's window",
        "smallest(largest(start - left, 0), largest(behind - 1, 0))",
        "smallest(largest(stop - 1 - left, 0), largest(behind - 1, 0))",
        "test_blocks -k pairs_by_their_order",
    ),
    fault(
        "the scores of a group are those of the first keys",
        "unseen = [group.first, num_keys - group.behind]",
        "unseen = [0, num_keys - group.behind + group.first]",
        "test_blocks -k pairs_by_their_order",
    ),
    fault(
        "a subclass's own score is left out where there are pairs",
        "if not self._score_is_described:  # a subclass",
        "if False:  # a subclass",
        "test_blocks -k ones_own",
    ),
    fault(
        "a layer that was saved before there were blocks gets some",
        'config = {"query_block_size": None, **config}',
        'config = {"query_block_size": "auto", **config}',
        "test_additive -k before_there_were",
    ),
    fault(
        "ten blocks at a time",
        "return tf.map_fn(function, blocks, parallel_iterations=1)",
        "return tf.map_fn(function, blocks)",
        "test_blocks -k one_block_at_a_time",
    ),
)

_LAYERS = (
    fault(
        "returned weights are those after the dropout",
        "output = ops.matmul(weights if drop is None else drop(weights), values)",
        "output = ops.matmul(weights := weights if drop is None else drop(weights), values)",
        "test_pooling -k dropout",
    ),
    fault(
        "dropout acts outside of training",
        "return bool(training) and self.seed_generator is not None",
        "return self.seed_generator is not None",
        "test_pooling -k dropout",
        "test_contract_saving -k reproducible",
    ),
    fault(
        "dropout drops what it should keep",
        "keras.random.dropout(weights, self.dropout,",
        "keras.random.dropout(weights, 1 - self.dropout,",
        "test_pooling -k dropout",
    ),
    fault(
        "the seed is forgotten",
        "= SeedGenerator(self.seed) if",
        "= SeedGenerator() if",
        "test_contract_saving -k seed",
    ),
    fault(
        "the symbolic dtype is always float32",
        "dtype=self.compute_dtype) for s",
        ") for s",
        "test_contract_shapes -k policy",
    ),
    fault(
        "the output is as wide as the queries",
        "return (*scores_shape[:-1], values_shape[-1]), scores_shape",
        "return (*scores_shape[:-1], queries_shape[-1]), scores_shape",
        "test_pooling -k shape",
    ),
    fault(
        "sizes that only keys and values know are lost",
        "merge_shapes(queries_shape[:-2], keys_shape[:-2], values_shape[:-2])",
        "merge_shapes(queries_shape[:-2])",
        "test_pooling -k known_sizes",
    ),
    fault(
        "the config has the softmax for any normalizer",
        '"normalizer": self.normalizer',
        '"normalizer": SOFTMAX',
        "test_contract_saving -k config",
    ),
    fault(
        "the config lacks the block size",
        '            "query_block_size": self.query_block_size,\n',
        "",
        "test_additive -k config",
    ),
    fault(
        "the config lacks the scale",
        'return {**super().get_config(), "scale": self.scale}',
        "return {**super().get_config()}",
        "test_dot_product -k config",
    ),
    fault(
        "entropy of masked weights is not of their shares",
        "shares = exact / ops.where(sums > 0, sums, 1.0)",
        "shares = exact",
        "test_diagnostics -k mask",
    ),
    fault(
        "quantized sublayers are saved as floats",
        "if sublayer.quantization_mode is not None",
        "if False",
        "test_additive -k saved_twice",
        "test_contract_precision -k int8",
    ),
)

_HEADS = (
    fault(
        "heads of keys are dealt out in turns",
        "ops.repeat(heads, times, axis=-3)",
        "ops.concatenate([heads] * times, axis=-3)",
        "test_multi_head -k groups",
    ),
    fault(
        "a query without keys gives the bias",
        " is None else hide(output, ",
        " is None or True else hide(output, ",
        "test_multi_head -k bias",
    ),
    fault(
        "a query must see a key in every head",
        "ops.any(mask, axis=-3)",
        "ops.all(mask, axis=-3)",
        "test_multi_head -k different_keys",
    ),
    fault(
        "all projections start alike",
        ".clone() if isinstance(",
        " if isinstance(",
        "test_multi_head -k alike",
    ),
    fault(
        "the config lacks the number of heads of keys",
        '"num_kv_heads": self.num_kv_heads,',
        '"num_kv_heads": None,',
        "test_multi_head -k option",
    ),
    fault(
        "heads are not divided where they are joined",
        "ops.reshape(ops.swapaxes(heads, -3, -2), (*batch, length, num_heads * size))",
        "ops.reshape(heads, (*batch, length, num_heads * size))",
        "test_multi_head -k agrees",
    ),
)

_MIGRATION = (
    fault(
        "kernels of MXNet are not turned",
        '_OUT_IN = ("torch", "mxnet")',
        '_OUT_IN = ("torch",)',
        "test_migrate -k additive",
        "test_migrate",
    ),
    fault(
        "packed projections of torch are dealt out from the end",
        "zip(entry.to, shares, strict=True)",
        "zip(reversed(entry.to), shares, strict=True)",
        "test_migrate_states -k packed",
    ),
    fault(
        "the scale of Luong attention is left out",
        '"W.kernel": weights["W.kernel"] * _unscaled_is_one(weights, sizes)["scale"]',
        '"W.kernel": weights["W.kernel"]',
        "test_migrate -k luong",
    ),
    fault(
        "unknown entries of a state are passed over",
        "if unknown and strict:",
        "if unknown and not strict:",
        "test_migrate_states -k known",
    ),
    fault(
        "a name that several entries have is taken twice",
        "if rest in values:",
        "if name in values:",
        "test_migrate_states -k fit",
        "test_migrate_states",
    ),
)

_CORE = (
    fault(
        "no placeholder is taken for lengths and masks",
        "return is_float and in_symbolic_scope() and",
        "return False and is_float and in_symbolic_scope() and",
        "test_subclassed_models -k keep",
    ),
    fault(
        "a copy's first call builds queries of the size of the keys",
        "return keys if shape is None or shape[-1] is None else ZerosLike(shape[-1])(keys)",
        "return keys",
        "test_precompute -k copy",
    ),
    fault(
        "any value switches an argument on",
        "if not is_boolean and not (isinstance(value, Integral) and value in (0, 1)):",
        "if False:",
        "test_pooling -k neither",
        "test_pooling",
    ),
    fault(
        "features have four axes when they are weighed",
        "return ops.reshape(weigh(ops.reshape(features, (-1, num_hiddens))), axes)",
        "return ops.reshape(weigh(features), axes)",
        "test_scores -k two_axes",
        "test_scores",
    ),
    fault(
        "in one operation, a query without keys is not made zero",
        "causal=causal, zeros=not harmless)",
        "causal=causal, zeros=False)",
        "test_fused_pooling",
    ),
    fault(
        "in one operation, a query without keys gets none",
        "seen = ops.logical_or(mask, ops.logical_not(sees_a_key))",
        "seen = mask",
        "test_fused_pooling",
    ),
    fault(
        "every score is taken for one in parts",
        "cls._scores_in_parts = score is parts",
        "cls._scores_in_parts = True",
        "test_precompute",
        "test_pooling",
    ),
    fault(
        "every position is taken to see itself",
        "return all(mask is None for mask in masks) and num_queries is not None",
        "return num_queries is not None",
        "test_fused_pooling",
        "test_multi_head",
    ),
)

LAYER_FAULTS = (*_CORE, *_MASKS, *_NORMALIZERS, *_SCORES, *_BLOCKS, *_LAYERS, *_HEADS, *_MIGRATION)
