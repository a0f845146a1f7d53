"""Scores that a user's subclass gives: by any names, in parts, over those of the layers of this package."""

import keras
import numpy as np
import pytest
from contract_cases import as_numpy
from keras import ops
from tolerances import assert_close

from keras_attn import AttentionPooling, GaussianAttention, LocationSensitiveAttention
from keras_attn._pooling.composite import evaluated_by


def drawn(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


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


def test_parameters_may_have_any_names():
    x, parts, whole = drawn(2, 3, 4), Named(), Whole()
    found = as_numpy(whole(x, x, x))
    assert_close(as_numpy(parts(x, x, x)), found)
    for keys in (x, parts.precompute(x)):
        assert_close(as_numpy(parts(x, keys, x)), found)
    assert_close(as_numpy(whole(x, whole.precompute(x), x)), found)


class OverNothing(AttentionPooling):
    def score(self, queries, keys):
        return 2 * super().score(queries, keys)


def test_a_score_over_none_is_told_so():
    for layer in (OverNothing(), AttentionPooling()):
        with pytest.raises(NotImplementedError, match="must define `score"):
            layer(drawn(1, 2, 4), drawn(1, 2, 4), drawn(1, 2, 4))


class Sharper(LocationSensitiveAttention):
    def score_projected(self, queries, keys):
        return 2 * super().score_projected(queries, keys)


class LargerKeys(LocationSensitiveAttention):
    def project_keys(self, keys):
        return super().project_keys(2 * keys)


class Rectified(LocationSensitiveAttention):
    def __init__(self, *sizes, **options):
        super().__init__(*sizes, **options)
        self.w_v = keras.layers.Dense(1, use_bias=False, activation="relu", name="w_v")


@pytest.mark.parametrize("layer_class", [Sharper, LargerKeys, Rectified])
def test_parts_of_the_score_see_the_weights_before(layer_class):
    layer, queries, keys = layer_class(6, 4, 3), drawn(2, 3, 4), drawn(2, 5, 4)
    first, last = (np.eye(5, dtype="float32")[[place, place]] for place in (0, 4))
    found = as_numpy(layer(queries, keys, keys, previous_weights=first))
    assert np.abs(found - as_numpy(layer(queries, keys, keys, previous_weights=last))).max() > 1e-3
    if layer_class is not Sharper:  # by whose own formula weights for each query are not scored
        of_each_query = np.repeat(first[:, np.newaxis], 3, axis=1)
        assert_close(as_numpy(layer(queries, keys, keys, previous_weights=of_each_query)), found)


class Bounded(GaussianAttention):
    def score(self, queries, keys):
        return ops.tanh(super().score(queries, keys))


class Exporter:
    """Takes what it is given by its own function."""

    hides_masked, reasons = False, {}

    def __call__(self, composite, returns_weights):
        return composite.function(**composite.tensors)


def test_distances_are_whole_while_a_model_is_exported():
    x, layer = drawn(2, 3, 12), Bounded()
    found = as_numpy(layer(x, x, x))
    with evaluated_by(Exporter()):
        assert_close(as_numpy(layer(x, x, x)), found)
