"""Gaussian attention beyond the contract: distances, the bandwidth, and how it leads to the dot product."""

import keras
import numpy as np
import pytest
import reference
from layer_contract import compute_outputs, draw_normal, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import DotProductAttention, GaussianAttention


@pytest.mark.parametrize("offset", [2000.0, 1e5])
def test_coordinates_far_from_the_origin_keep_their_digits(offset):
    """Years, metres: as dot products, squares of 1e10 in float32 would leave distances of a thousand."""
    queries, keys = np.float32(np.arange(3)[None, :, None] + 0.5), np.float32(np.arange(6)[None, :, None])
    near, far = (GaussianAttention(0.7)(queries + o, keys + o, keys) for o in np.float32([0, offset]))
    assert_identical(to_numpy(far), to_numpy(near))


@pytest.mark.parametrize(("size", "offset"), [(9, 2000.0), (30, 30.0)])
@pytest.mark.parametrize(
    "masks", [{}, {"valid_lens": np.array([[2, 3, 6, 0], [6, 4, 1, 1]])}, {"causal": True}], ids=["", "lens", "causal"]
)
def test_many_axes_far_from_the_origin_agree_with_the_oracle(size, offset, masks):
    queries, keys = draw_normal(2, 4, size) + np.float32(offset), draw_normal(2, 6, size, seed=1) + np.float32(offset)
    queries[0, 0] = keys[0, 0]
    inputs = {"queries": queries, "keys": keys, "values": keys}
    _, exact = reference.attention(**inputs, score=reference.gaussian_score(1.0), **masks)
    assert_close(compute_outputs(GaussianAttention(), inputs, masks)[1], exact, "float32")


def test_poison_in_masked_keys_does_not_reach_the_mean():
    queries, keys, values = draw_normal(1, 4, 12) + 50, draw_normal(1, 4, 12, seed=1) + 50, draw_normal(1, 4, 3)
    poisoned = keys.copy()
    poisoned[:, 2] = np.nan
    lengths = np.array([[1, 2, 2, 4]])
    for masks in ({"use_causal_mask": True}, {"valid_lens": lengths}):
        before, after = (to_numpy(GaussianAttention()(queries, each, values, **masks)) for each in (keys, poisoned))
        assert_identical(after[:, :2], before[:, :2])
        assert np.isnan(after[:, 3]).all()


class FromTheOrigin(GaussianAttention):
    def score(self, queries, keys):
        return keras.ops.matmul(queries, keras.ops.swapaxes(keys, -2, -1))


def test_overridden_score_gets_unshifted_positions():
    queries, keys = draw_normal(2, 4, 12), draw_normal(2, 6, 12, seed=1) + 3
    # with the weights returned, both in plain operations
    given = {"queries": queries, "keys": keys, "values": keys}
    own, product = (compute_outputs(layer, given)[0] for layer in (FromTheOrigin(), DotProductAttention(scale=1.0)))
    assert_identical(own, product)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_squared_distances_are_finite_in_half_precision(policy):
    queries, keys = np.full((1, 2, 12), 300.0), np.full((1, 5, 12), 300.0)
    keys[0, 0] = 0.0
    layer = GaussianAttention(20.0, dtype=policy)
    _, weights = layer(queries, keys, keys, return_attention_scores=True)
    assert_close(to_numpy(keras.ops.cast(weights, "float32"))[0, 0], np.array([0.0] + [0.25] * 4), "float32")


def test_bandwidth_keeps_its_digits_in_half_precision():
    """log(0.01) is -4.594 in bfloat16, which would make the weight 14 % larger."""
    queries, keys = np.zeros((1, 1, 1), "float32"), np.array([[[0.0], [0.03125]]], "float32")
    _, weights = GaussianAttention(0.01, dtype="mixed_bfloat16")(queries, keys, keys, return_attention_scores=True)
    share = float(to_numpy(keras.ops.cast(weights, "float32"))[0, 0, 1])
    assert share == pytest.approx(0.00752, rel=0.005)
