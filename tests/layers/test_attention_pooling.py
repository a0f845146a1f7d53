"""`AttentionPooling`: boolean options, arguments, scores of subclasses, and composites for an exporter."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import ops
from layer_contract import Evaluator, draw_normal, draw_weights, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import (
    AdditiveAttention,
    AttentionCell,
    AttentionPooling,
    AttentionRNN,
    BilinearAttention,
    CosineAttention,
    DotProductAttention,
    GaussianAttention,
    LocationSensitiveAttention,
    MultiHeadAttention,
)
from keras_attn._pooling.composite import use_evaluator
from keras_attn._types import Heads

B, Tq, Tk, Dq, Dk, Dv = 2, 3, 5, 4, 6, 7


class UniformAttention(AttentionPooling):
    """Layer with zero scores: its weights depend on the mask only."""

    def score(self, queries, keys):
        return ops.zeros((*ops.shape(queries)[:-1], ops.shape(keys)[-2]), queries.dtype)


def draw_arrays(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in ((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))]


def build_symbolic_inputs():
    shapes = {"queries": (Tq, Dq), "keys": (Tk, Dk), "values": (Tk, Dv)}
    return {name: keras.Input(shape, name=name) for name, shape in shapes.items()}


def test_nan_in_keys_after_the_last_causal_query_has_no_effect():
    queries, keys, values = draw_arrays()
    expected = to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True))
    keys[:, Tq:], values[:, Tq:] = np.nan, np.inf
    assert_identical(to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True)), expected)


def test_integer_inputs_are_computed_in_the_dtype_of_the_layer():
    values = np.arange(B * Tk * Dv).reshape(B, Tk, Dv)
    output = UniformAttention()(*draw_arrays()[:2], values, np.array([2, 2]))
    assert_close(to_numpy(output)[:, 0], values[:, :2].mean(1).astype("float32"))


BOOLEAN_OPTIONS = ["use_causal_mask", "return_attention_scores"]


@pytest.mark.parametrize("name", BOOLEAN_OPTIONS)
@pytest.mark.parametrize("value", ["no", 2, np.array([True])], ids=repr)
def test_boolean_options_reject_other_values(name, value):
    for inputs in (dict(zip(("queries", "keys", "values"), draw_arrays(), strict=True)), build_symbolic_inputs()):
        with pytest.raises(TypeError, match=rf"`{name}` must be True or False\. Received: {name} of type \w+"):
            UniformAttention()(**inputs, **{name: value})


@pytest.mark.parametrize("value", [1, np.True_, 0, None])
def test_boolean_options_accept_numbers_and_none(value):
    layer, inputs = UniformAttention(), draw_arrays()
    result, expected = (layer(*inputs, **dict.fromkeys(BOOLEAN_OPTIONS, x)) for x in (value, bool(value)))
    assert isinstance(result, tuple) == bool(value)
    for tensor, expected_tensor in zip(keras.tree.flatten(result), keras.tree.flatten(expected), strict=True):
        assert_identical(to_numpy(tensor), to_numpy(expected_tensor))


def test_score_of_another_shape_is_rejected():
    class TransposedScore(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tk, Tq))

    with pytest.raises(ValueError, match=r"`TransposedScore.score` must return.*\(2, 3, 5\).*shape \(2, 5, 3\)"):
        TransposedScore()(*draw_arrays())


def test_score_of_another_dtype_keeps_the_dtype_of_the_layer():
    class Float32Score(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tq, Tk), "float32")

    output, weights = Float32Score(dtype="float16")(*draw_arrays(), return_attention_scores=True)
    assert [keras.backend.standardize_dtype(x.dtype) for x in (output, weights)] == ["float16", "float16"]


@pytest.mark.parametrize(("missing_name", "is_built"), [("keys", False), ("values", True)])
def test_missing_keys_or_values_are_rejected(missing_name, is_built):
    layer = DotProductAttention()
    tensors = {name: np.ones((2, size, 4), "float32") for name, size in (("queries", 3), ("keys", 5), ("values", 5))}
    if is_built:
        layer(**tensors)
    with pytest.raises(ValueError, match=rf"`{missing_name}` must be a tensor. Received: {missing_name}=None"):
        layer(**tensors | {missing_name: None})


def test_complex_queries_are_rejected():
    keys = np.ones((2, 5, 4), "float32")
    with pytest.raises(TypeError, match=r"`queries` must be real numbers. Received: queries dtype complex64"):
        DotProductAttention()(np.ones((2, 3, 4), "complex64"), keys, keys)


X = np.zeros((2, 5, 4), "float32")


class FaultyScore(AttentionPooling):
    def score(self, queries, keys):
        raise TypeError("error of the score")


def build_rnn():
    return AttentionRNN(AttentionCell(keras.layers.GRUCell(3), DotProductAttention()))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: FaultyScore()(),
            r"`FaultyScore` cannot be called with these arguments: missing .*'queries'. Received: nothing. Call it as",
        ),
        (lambda: FaultyScore()((X, X)), "Received: a tuple of 2"),
        (lambda: FaultyScore()(None), "Received: NoneType."),
        (lambda: FaultyScore()(X, X, lens=2), r"'lens'. Received: a tensor, a tensor, `lens`.*values_mask`.$"),
        (lambda: build_rnn()(X), r"missing .*'memory'. Received: a tensor. Call it as `layer\(inputs, memory\)`"),
        (lambda: build_rnn()(keras.Input((5, 4))), "missing .*'memory'. Received: a tensor"),
    ],
)
def test_missing_and_unknown_arguments_are_rejected(call, message):
    with pytest.raises(TypeError, match=message):
        call()


def test_type_errors_of_a_score_keep_their_message():
    with pytest.raises(TypeError, match=r"(?s)^(?!.*cannot be called).*error of the score"):
        FaultyScore()(X, X, X)


class ProjectedScore(AttentionPooling):
    """Score in two parts, with short parameter names and an own attribute `kernels`."""

    def __init__(self, **options):
        super().__init__(**options)
        self.kernels = [keras.layers.Dense(4)]

    def project_keys(self, k):
        return 2 * k

    def score_projected(self, q, projected_keys):
        return ops.matmul(q, ops.swapaxes(projected_keys, -2, -1))


class UndividedScore(AttentionPooling):
    def score(self, q, k):
        return 2 * ops.matmul(q, ops.swapaxes(k, -2, -1))


class DoubledScore(AdditiveAttention):
    """Layer that overrides `score` and not its two parts."""

    def score(self, queries, keys):
        return 2.0 * super().score(queries, keys)


def test_overridden_score_accepts_precomputed_keys():
    x, layer = draw_normal(2, 3, 4), DoubledScore(8)
    expected = to_numpy(layer(x, x, x))
    assert_close(to_numpy(layer(x, layer.precompute(x), x)), expected)


def test_parameters_of_a_score_may_have_any_names():
    x, projected_layer, undivided_layer = draw_normal(2, 3, 4), ProjectedScore(), UndividedScore()
    expected = to_numpy(undivided_layer(x, x, x))
    assert_close(to_numpy(projected_layer(x, x, x)), expected)
    for keys in (x, projected_layer.precompute(x)):
        assert_close(to_numpy(projected_layer(x, keys, x)), expected)
    assert_close(to_numpy(undivided_layer(x, undivided_layer.precompute(x), x)), expected)


class UndefinedScore(AttentionPooling):
    def score(self, queries, keys):
        return 2 * super().score(queries, keys)


def test_layer_without_a_score_is_rejected():
    for layer in (UndefinedScore(), AttentionPooling()):
        with pytest.raises(NotImplementedError, match="must define `score"):
            layer(draw_normal(1, 2, 4), draw_normal(1, 2, 4), draw_normal(1, 2, 4))


class DoubledProjectedScore(LocationSensitiveAttention):
    def score_projected(self, queries, keys):
        return 2 * super().score_projected(queries, keys)


class DoubledKeys(LocationSensitiveAttention):
    def project_keys(self, keys):
        return super().project_keys(2 * keys)


@pytest.mark.parametrize("layer_class", [DoubledProjectedScore, DoubledKeys])
def test_overridden_parts_of_the_score_use_previous_weights(layer_class):
    layer, queries, keys = layer_class(6, 4, 3), draw_normal(2, 3, 4), draw_normal(2, 5, 4)
    first_key, last_key = (np.eye(5, dtype="float32")[[position] * 2] for position in (0, 4))
    output = to_numpy(layer(queries, keys, keys, previous_weights=first_key))
    assert np.abs(output - to_numpy(layer(queries, keys, keys, previous_weights=last_key))).max() > 1e-3
    if layer_class is DoubledKeys:  # weights for each query bypass `score_projected`
        weights_per_query = np.repeat(first_key[:, np.newaxis], 3, axis=1)
        assert_close(to_numpy(layer(queries, keys, keys, previous_weights=weights_per_query)), output)


class BoundedScore(GaussianAttention):
    def score(self, queries, keys):
        return ops.tanh(super().score(queries, keys))


def test_overridden_gaussian_score_uses_distances_during_an_export():
    x, layer = draw_normal(2, 3, 12), BoundedScore()
    expected = to_numpy(layer(x, x, x))
    with use_evaluator(Evaluator()):
        assert_close(to_numpy(layer(x, x, x)), expected)


H, T = 4, 5
ATTENTION_FACTORIES = {
    "additive": partial(AdditiveAttention, 7),
    "additive, normalized": partial(AdditiveAttention, 6, normalize=True),
    "bilinear": BilinearAttention,
    "cosine": partial(CosineAttention, 0.2),
    "dot product": DotProductAttention,
    "gaussian": GaussianAttention,
}


def capture_composite(layer, *args, **options):
    """Return the composite of a call; assert that its outputs equal those without an evaluator."""
    layer(*args, **options)
    draw_weights(layer)
    evaluator = Evaluator()
    expected = layer(*args, return_attention_scores=True, **options)
    with use_evaluator(evaluator):
        actual = layer(*args, return_attention_scores=True, **options)
    for tensor, expected_tensor in zip(actual, expected, strict=True):
        assert_close(to_numpy(tensor), to_numpy(expected_tensor))
    (composite,) = evaluator.composites
    return composite


def draw_sequences(size=8):
    return [draw_normal(3, T, size, seed=seed) for seed in range(3)]


HEAD_SCORES = [score for score in ATTENTION_FACTORIES if score != "gaussian"]
COMPOSITE_CASES = [(score, (1, 2, H)[n % 3], ("softmax", "sigmoid")[n % 2]) for n, score in enumerate(HEAD_SCORES)]


@pytest.mark.parametrize(("score", "groups", "normalizer"), COMPOSITE_CASES)
def test_exporter_receives_all_heads_as_one_composite(score, groups, normalizer):
    attention = ATTENTION_FACTORIES[score](normalizer=normalizer)
    layer = MultiHeadAttention(attention, H, key_dim=3, value_dim=2, num_kv_heads=groups)
    mask = np.random.default_rng(1).random((3, H, T, T)) < 0.6
    mask[0, 1] = False
    composite = capture_composite(layer, *draw_sequences(), np.array([2, 0, 5]), attention_mask=mask)
    assert (composite.heads, composite.normalizer) == (Heads(H, groups), normalizer)


@pytest.mark.parametrize(
    ("size", "name", "normalizer"),
    [(2, "distance", "softmax"), (8, "distance", "sigmoid"), (9, "dot_product", "sparsemax")],
)
def test_gaussian_scores_are_exported_as_distances_or_products(size, name, normalizer):
    layer = GaussianAttention(2.0, normalizer=normalizer)
    composite = capture_composite(layer, *draw_sequences(size), np.array([2, 0, 5]), window=(1, None))
    assert (composite.name, composite.normalizer) == (name, normalizer)
