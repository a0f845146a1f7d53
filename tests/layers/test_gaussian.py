"""`GaussianAttention`: distances far from the origin, masked keys, overridden scores and half precision."""

import keras
import numpy as np
import pytest
import reference
from layer_contract import compute_outputs, draw_normal, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import DotProductAttention, GaussianAttention


@pytest.mark.parametrize("offset", [2000.0, 1e5])
def test_offset_of_coordinates_does_not_change_outputs(offset):
    """The layer must not compute |q|^2 - 2 q k + |k|^2: squares reach 1e10, which float32 rounds by up to 512."""
    queries, keys = np.float32(np.arange(3)[None, :, None] + 0.5), np.float32(np.arange(6)[None, :, None])
    layer = GaussianAttention(0.7)
    expected, output = (layer(queries + shift, keys + shift, keys) for shift in np.float32([0, offset]))
    assert_identical(to_numpy(output), to_numpy(expected))


@pytest.mark.parametrize(("size", "offset"), [(9, 2000.0), (30, 30.0)])
@pytest.mark.parametrize(
    "masks", [{}, {"valid_lens": np.array([[2, 3, 6, 0], [6, 4, 1, 1]])}, {"causal": True}], ids=["", "lens", "causal"]
)
def test_many_coordinates_far_from_the_origin_equal_the_reference(size, offset, masks):
    queries, keys = draw_normal(2, 4, size) + np.float32(offset), draw_normal(2, 6, size, seed=1) + np.float32(offset)
    queries[0, 0] = keys[0, 0]
    inputs = {"queries": queries, "keys": keys, "values": keys}
    _, expected = reference.attention(**inputs, score=reference.gaussian_score(1.0), **masks)
    assert_close(compute_outputs(GaussianAttention(), inputs, masks)[1], expected, "float32")


def test_nan_in_masked_keys_does_not_change_the_mean():
    queries, keys, values = draw_normal(1, 4, 12) + 50, draw_normal(1, 4, 12, seed=1) + 50, draw_normal(1, 4, 3)
    poisoned_keys = keys.copy()
    poisoned_keys[:, 2] = np.nan
    lengths = np.array([[1, 2, 2, 4]])
    for masks in ({"use_causal_mask": True}, {"valid_lens": lengths}):
        expected, output = (to_numpy(GaussianAttention()(queries, k, values, **masks)) for k in (keys, poisoned_keys))
        assert_identical(output[:, :2], expected[:, :2])
        assert np.isnan(output[:, 3]).all()


class DotProductScoredAttention(GaussianAttention):
    def score(self, queries, keys):
        return keras.ops.matmul(queries, keras.ops.swapaxes(keys, -2, -1))


def test_overridden_score_receives_original_coordinates():
    queries, keys = draw_normal(2, 4, 12), draw_normal(2, 6, 12, seed=1) + 3
    layers = DotProductScoredAttention(), DotProductAttention(scale=1.0)
    # Both layers return weights, so that neither uses the fused form.
    arguments = {"queries": queries, "keys": keys, "values": keys}
    assert_identical(*(compute_outputs(layer, arguments)[0] for layer in layers))


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_squared_distances_are_finite_in_half_precision(policy):
    queries, keys = np.full((1, 2, 12), 300.0), np.full((1, 5, 12), 300.0)
    keys[0, 0] = 0.0
    layer = GaussianAttention(20.0, dtype=policy)
    _, weights = layer(queries, keys, keys, return_attention_scores=True)
    assert_close(to_numpy(keras.ops.cast(weights, "float32"))[0, 0], np.array([0.0] + [0.25] * 4), "float32")


def test_bandwidth_is_float32_in_half_precision():
    """bfloat16 rounds log(0.01) to -4.594, which changes the weight by 14 %."""
    queries, keys = np.zeros((1, 1, 1), "float32"), np.array([[[0.0], [0.03125]]], "float32")
    _, weights = GaussianAttention(0.01, dtype="mixed_bfloat16")(queries, keys, keys, return_attention_scores=True)
    weight = float(to_numpy(keras.ops.cast(weights, "float32"))[0, 0, 1])
    assert weight == pytest.approx(0.00752, rel=0.005)
