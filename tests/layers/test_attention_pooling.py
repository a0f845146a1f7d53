"""The base layer beyond the contract: switches, arguments, scores of a subclass, and what an exporter gets."""

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
    """All scores zero: the weights show the mask and nothing else."""

    def score(self, queries, keys):
        return ops.zeros((*ops.shape(queries)[:-1], ops.shape(keys)[-2]), queries.dtype)


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in ((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))]


def symbols():
    shapes = {"queries": (Tq, Dq), "keys": (Tk, Dk), "values": (Tk, Dv)}
    return {name: keras.Input(shape, name=name) for name, shape in shapes.items()}


def test_nan_in_keys_after_the_last_causal_query_changes_nothing():
    queries, keys, values = arrays()
    expected = to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True))
    keys[:, Tq:], values[:, Tq:] = np.nan, np.inf
    assert_identical(to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True)), expected)


def test_integer_inputs_are_computed_in_the_dtype_of_the_layer():
    values = np.arange(B * Tk * Dv).reshape(B, Tk, Dv)
    output = UniformAttention()(*arrays()[:2], values, np.array([2, 2]))
    assert_close(to_numpy(output)[:, 0], values[:, :2].mean(1).astype("float32"))


SWITCHES = ["use_causal_mask", "return_attention_scores"]


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["no", 2, np.array([True])], ids=repr)
def test_switches_refuse_values_other_than_booleans(name, value):
    queries, keys, values = arrays()
    for given in ({"queries": queries, "keys": keys, "values": values}, symbols()):
        with pytest.raises(TypeError, match=rf"`{name}` must be True or False\. Received: {name} of type \w+"):
            UniformAttention()(**given, **{name: value})


@pytest.mark.parametrize("value", [1, np.True_, 0, None])
def test_switches_take_numbers_and_none_as_booleans(value):
    given, plain = (UniformAttention()(*arrays(), **dict.fromkeys(SWITCHES, each)) for each in (value, bool(value)))
    assert isinstance(given, tuple) == bool(value)
    for found, expected in zip(keras.tree.flatten(given), keras.tree.flatten(plain), strict=True):
        assert_identical(to_numpy(found), to_numpy(expected))


def test_score_of_the_wrong_shape_is_refused():
    class Transposed(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tk, Tq))

    with pytest.raises(ValueError, match=r"`Transposed.score` must return.*\(2, 3, 5\).*shape \(2, 5, 3\)"):
        Transposed()(*arrays())


def test_score_of_another_dtype_keeps_the_dtype_of_the_layer():
    class Wide(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tq, Tk), "float32")

    output, weights = Wide(dtype="float16")(*arrays(), return_attention_scores=True)
    assert [keras.backend.standardize_dtype(x.dtype) for x in (output, weights)] == ["float16", "float16"]


@pytest.mark.parametrize(("missing", "built"), [("keys", False), ("values", True)])
def test_missing_keys_or_values_are_refused(missing, built):
    layer = DotProductAttention()
    tensors = {name: np.ones((2, size, 4), "float32") for name, size in (("queries", 3), ("keys", 5), ("values", 5))}
    if built:
        layer(**tensors)
    with pytest.raises(ValueError, match=rf"`{missing}` must be a tensor. Received: {missing}=None"):
        layer(**tensors | {missing: None})


def test_complex_queries_are_refused():
    keys = np.ones((2, 5, 4), "float32")
    with pytest.raises(TypeError, match=r"`queries` must be real numbers. Received: queries dtype complex64"):
        DotProductAttention()(np.ones((2, 3, 4), "complex64"), keys, keys)


X = np.zeros((2, 5, 4), "float32")


class Own(AttentionPooling):
    def score(self, queries, keys):
        raise TypeError("of its own")


def recurrent():
    return AttentionRNN(AttentionCell(keras.layers.GRUCell(3), DotProductAttention()))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: Own()(),
            r"`Own` cannot be called with these arguments: missing .*'queries'. Received: nothing. Call it as",
        ),
        (lambda: Own()((X, X)), "Received: a tuple of 2"),
        (lambda: Own()(None), "Received: NoneType."),
        (lambda: Own()(X, X, lens=2), r"'lens'. Received: a tensor, a tensor, `lens`.*values_mask`.$"),
        (lambda: recurrent()(X), r"missing .*'memory'. Received: a tensor. Call it as `layer\(inputs, memory\)`"),
        (lambda: recurrent()(keras.Input((5, 4))), "missing .*'memory'. Received: a tensor"),
    ],
)
def test_missing_and_unknown_arguments_are_refused(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_other_type_errors_keep_their_message():
    with pytest.raises(TypeError, match=r"(?s)^(?!.*cannot be called).*of its own"):
        Own()(X, X, X)


class Named(AttentionPooling):
    """Its parameters are called otherwise, and it keeps layers under a name of its own."""

    def __init__(self, **options):
        super().__init__(**options)
        self.kernels = [keras.layers.Dense(4)]

    def project_keys(self, k):
        return 2 * k

    def score_projected(self, q, projected):
        return ops.matmul(q, ops.swapaxes(projected, -2, -1))


class Whole(AttentionPooling):
    def score(self, q, k):
        return 2 * ops.matmul(q, ops.swapaxes(k, -2, -1))


class Doubled(AdditiveAttention):
    """Overrides the whole score and not its parts."""

    def score(self, queries, keys):
        return 2.0 * super().score(queries, keys)


def test_overridden_score_takes_a_state_of_keys():
    x, layer = draw_normal(2, 3, 4), Doubled(8)
    found = to_numpy(layer(x, x, x))
    assert_close(to_numpy(layer(x, layer.precompute(x), x)), found)


def test_parameters_of_a_score_may_have_any_names():
    x, parts, whole = draw_normal(2, 3, 4), Named(), Whole()
    found = to_numpy(whole(x, x, x))
    assert_close(to_numpy(parts(x, x, x)), found)
    for keys in (x, parts.precompute(x)):
        assert_close(to_numpy(parts(x, keys, x)), found)
    assert_close(to_numpy(whole(x, whole.precompute(x), x)), found)


class OverNothing(AttentionPooling):
    def score(self, queries, keys):
        return 2 * super().score(queries, keys)


def test_layer_without_a_score_is_refused():
    for layer in (OverNothing(), AttentionPooling()):
        with pytest.raises(NotImplementedError, match="must define `score"):
            layer(draw_normal(1, 2, 4), draw_normal(1, 2, 4), draw_normal(1, 2, 4))


class Sharper(LocationSensitiveAttention):
    def score_projected(self, queries, keys):
        return 2 * super().score_projected(queries, keys)


class LargerKeys(LocationSensitiveAttention):
    def project_keys(self, keys):
        return super().project_keys(2 * keys)


@pytest.mark.parametrize("layer_class", [Sharper, LargerKeys])
def test_overridden_parts_of_the_score_read_previous_weights(layer_class):
    layer, queries, keys = layer_class(6, 4, 3), draw_normal(2, 3, 4), draw_normal(2, 5, 4)
    first, last = (np.eye(5, dtype="float32")[[place, place]] for place in (0, 4))
    found = to_numpy(layer(queries, keys, keys, previous_weights=first))
    assert np.abs(found - to_numpy(layer(queries, keys, keys, previous_weights=last))).max() > 1e-3
    if layer_class is not Sharper:  # by whose own formula weights for each query are not scored
        of_each_query = np.repeat(first[:, np.newaxis], 3, axis=1)
        assert_close(to_numpy(layer(queries, keys, keys, previous_weights=of_each_query)), found)


class Bounded(GaussianAttention):
    def score(self, queries, keys):
        return ops.tanh(super().score(queries, keys))


def test_overridden_gaussian_score_gets_distances_during_an_export():
    x, layer = draw_normal(2, 3, 12), Bounded()
    found = to_numpy(layer(x, x, x))
    with use_evaluator(Evaluator()):
        assert_close(to_numpy(layer(x, x, x)), found)


H, T = 4, 5
SCORES = {
    "additive": partial(AdditiveAttention, 7),
    "additive, normalized": partial(AdditiveAttention, 6, normalize=True),
    "bilinear": BilinearAttention,
    "cosine": partial(CosineAttention, 0.2),
    "dot product": DotProductAttention,
    "gaussian": GaussianAttention,
}


def composite_of(layer, *args, **options):
    """Return the composite of a call, and check that its outputs are those without an evaluator."""
    layer(*args, **options)
    draw_weights(layer)
    kept = Evaluator()
    expected = layer(*args, return_attention_scores=True, **options)
    with use_evaluator(kept):
        actual = layer(*args, return_attention_scores=True, **options)
    for one, other in zip(actual, expected, strict=True):
        assert_close(to_numpy(one), to_numpy(other))
    (composite,) = kept.composites
    return composite


def sequences(size=8):
    return [draw_normal(3, T, size, seed=seed) for seed in range(3)]


IN_HEADS = [score for score in SCORES if score != "gaussian"]
CALLS = [(score, (1, 2, H)[n % 3], ("softmax", "sigmoid")[n % 2]) for n, score in enumerate(IN_HEADS)]


@pytest.mark.parametrize(("score", "groups", "normalizer"), CALLS)
def test_exporter_gets_all_heads_as_one_call(score, groups, normalizer):
    layer = MultiHeadAttention(SCORES[score](normalizer=normalizer), H, key_dim=3, value_dim=2, num_kv_heads=groups)
    mask = np.random.default_rng(1).random((3, H, T, T)) < 0.6
    mask[0, 1] = False
    composite = composite_of(layer, *sequences(), np.array([2, 0, 5]), attention_mask=mask)
    assert (composite.heads, composite.normalizer) == (Heads(H, groups), normalizer)


@pytest.mark.parametrize(
    ("size", "name", "normalizer"),
    [(2, "distance", "softmax"), (8, "distance", "sigmoid"), (9, "dot_product", "sparsemax")],
)
def test_gaussian_scores_become_distances_or_products(size, name, normalizer):
    layer = GaussianAttention(2.0, normalizer=normalizer)
    composite = composite_of(layer, *sequences(size), np.array([2, 0, 5]), window=(1, None))
    assert (composite.name, composite.normalizer) == (name, normalizer)
