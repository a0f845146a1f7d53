"""Scores that a user's subclass gives: by any names, in parts, over those of the layers of this package."""

import keras
import numpy as np
import pytest
from contract_cases import as_numpy, normal
from keras import ops
from tolerances import assert_close

from keras_attn import AdditiveAttention, AttentionPooling, GaussianAttention, LocationSensitiveAttention
from keras_attn._pooling.composite import evaluated_by


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
    x, layer = normal(2, 3, 4), Doubled(8)
    found = as_numpy(layer(x, x, x))
    assert_close(as_numpy(layer(x, layer.precompute(x), x)), found)


def test_parameters_of_a_score_may_have_any_names():
    x, parts, whole = normal(2, 3, 4), Named(), Whole()
    found = as_numpy(whole(x, x, x))
    assert_close(as_numpy(parts(x, x, x)), found)
    for keys in (x, parts.precompute(x)):
        assert_close(as_numpy(parts(x, keys, x)), found)
    assert_close(as_numpy(whole(x, whole.precompute(x), x)), found)


class OverNothing(AttentionPooling):
    def score(self, queries, keys):
        return 2 * super().score(queries, keys)


def test_layer_without_a_score_is_refused():
    for layer in (OverNothing(), AttentionPooling()):
        with pytest.raises(NotImplementedError, match="must define `score"):
            layer(normal(1, 2, 4), normal(1, 2, 4), normal(1, 2, 4))


class Sharper(LocationSensitiveAttention):
    def score_projected(self, queries, keys):
        return 2 * super().score_projected(queries, keys)


class LargerKeys(LocationSensitiveAttention):
    def project_keys(self, keys):
        return super().project_keys(2 * keys)


@pytest.mark.parametrize("layer_class", [Sharper, LargerKeys])
def test_overridden_parts_of_the_score_read_previous_weights(layer_class):
    layer, queries, keys = layer_class(6, 4, 3), normal(2, 3, 4), normal(2, 5, 4)
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


def test_overridden_gaussian_score_gets_distances_during_an_export():
    x, layer = normal(2, 3, 12), Bounded()
    found = as_numpy(layer(x, x, x))
    with evaluated_by(Exporter()):
        assert_close(as_numpy(layer(x, x, x)), found)
