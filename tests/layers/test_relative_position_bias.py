"""The buckets of T5: each distance in the one that the published formula names, borders among them."""

import math

import numpy as np
import pytest
from backends import MODES, compile_function, compute_gradients
from keras import ops
from layer_contract import build_error_pattern, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import RelativePositionBias
from keras_attn._positions.relative_bias import compute_bucket_starts

# (num_buckets, max_distance): T5's; borders that are whole numbers and others; an odd number; next to no buckets
SIZES = [(32, 128), (16, 64), (20, 37), (11, 30), (5, 2)]
every_size = pytest.mark.parametrize("sizes", SIZES, ids=str)
every_direction = pytest.mark.parametrize("bidirectional", [True, False], ids=["both", "one"])


def bucket(gap, num_buckets, max_distance, bidirectional):
    """The formula of Raffel et al. as their code has it, for one key that is `gap` positions behind its query.

    In float64, with the floor taken a little above: two logarithms whose quotient is a whole number may be rounded to
    either side of it. No border that is no whole number lies so near to one.
    """
    first = 0
    if bidirectional:
        num_buckets //= 2
        if gap > 0:
            first = num_buckets
        distance = abs(gap)
    else:
        distance = max(-gap, 0)
    exact = num_buckets // 2
    if distance < exact:
        return first + distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return first + min(exact + math.floor(share * (num_buckets - exact) + 1e-9), num_buckets - 1)


def numbered(num_buckets=32, max_distance=128, bidirectional=True):
    """A layer of two heads whose biases are the number of the bucket, and 1000 more."""
    layer = RelativePositionBias(2, num_buckets, max_distance, bidirectional)
    layer.build()
    layer.set_weights([np.arange(num_buckets, dtype="float32")[:, None] + np.array([0, 1000], "float32")])
    return layer


def buckets_of(layer, farthest):
    """The buckets of keys from so far before one query to so far behind it."""
    query, keys = np.zeros((1, 1, 1), "float32"), np.zeros((1, 2 * farthest + 1, 1), "float32")
    first, second = to_numpy(layer(query, keys, offset=farthest))[0, :, 0]
    assert_identical(second, first + 1000)
    return first.astype(int)


@every_size
@every_direction
def test_distances_fall_into_the_buckets_of_the_formula(sizes, bidirectional):
    if min(sizes) == sizes[1] <= (sizes[0] // (2 if bidirectional else 1)) // 2:
        sizes = (sizes[0], sizes[0])  # in one direction there are more buckets of one distance
    farthest = 2 * sizes[1]
    expected = [bucket(gap, *sizes, bidirectional) for gap in range(-farthest, farthest + 1)]
    assert buckets_of(numbered(*sizes, bidirectional), farthest).tolist() == expected


def in_float32(distances, num_buckets, max_distance):
    """The formula of one direction as the authors' code computes it."""
    exact = num_buckets // 2
    share = np.log(distances.astype("float32") / np.float32(exact)) / np.float32(math.log(max_distance / exact))
    large = exact + (share * np.float32(num_buckets - exact)).astype("int32")
    return np.where(distances < exact, distances, np.minimum(large, num_buckets - 1))


@pytest.mark.parametrize("num_buckets", [16, 32])
def test_buckets_of_t5_equal_the_float32_formula(num_buckets):
    """So that weights trained with the authors' code mean the same here: 16 in both directions, 32 in one."""
    distances = np.arange(1, 1000)
    found = np.sum(distances[:, None] >= np.array(compute_bucket_starts(num_buckets, 128)), axis=-1)
    assert found.tolist() == in_float32(distances, num_buckets, 128).tolist()


@pytest.mark.parametrize(("bidirectional", "mode"), [(n % 2 == 0, mode) for n, mode in enumerate(MODES)])
def test_gradient_of_a_bucket_is_the_sum_over_its_pairs(bidirectional, mode):
    layer = numbered(8, 20, bidirectional)
    Tq, Tk, offsets = 6, 30, np.array([0, 17], "int32")
    upstream = np.random.default_rng(0).normal(size=(2, 2, Tq, Tk)).astype("float32")
    queries, keys = np.zeros((2, Tq, 1), "float32"), np.zeros((2, Tk, 1), "float32")

    def loss(upstream, queries, keys, offsets):
        return ops.sum(layer(queries, keys, offset=offsets) * upstream)

    program = compile_function(compute_gradients(loss, 0, layer.variables), mode, variables=layer.variables)
    (gradient,) = program(*map(ops.convert_to_tensor, (upstream, queries, keys, offsets)))
    expected = np.zeros((8, 2))
    for b, h, i, j in np.ndindex(*upstream.shape):
        expected[bucket(j - (i + int(offsets[b])), 8, 20, bidirectional), h] += upstream[b, h, i, j]
    assert_close(to_numpy(ops.convert_to_tensor(gradient)), expected, "float32")


@pytest.mark.parametrize(
    "options",
    [{"num_buckets": 8.0}, {"num_buckets": 3}, {"max_distance": 8}, {"max_distance": -1}, {"bidirectional": 1}],
    ids=str,
)
def test_bad_options_are_refused(options):
    with pytest.raises((TypeError, ValueError), match=build_error_pattern(next(iter(options)))):
        RelativePositionBias(4, **options)


@pytest.mark.slow
@pytest.mark.needs("keras_hub")
@pytest.mark.filterwarnings("ignore::UserWarning")
@every_direction
def test_biases_equal_those_of_keras_hub_t5(bidirectional):
    from keras_hub.src.models.t5 import t5_multi_head_attention as t5

    theirs = t5.T5MultiHeadAttention(not bidirectional, 8, 4, 3, 0.0, use_relative_attention_bias=True)
    ours = RelativePositionBias(3, bidirectional=bidirectional, embeddings_initializer="normal")
    ours.build()
    theirs.relative_attention_bias.assign(ours.embeddings)
    biases = ours(np.zeros((1, 300, 1), "float32"), np.zeros((1, 310, 1), "float32"))
    assert_identical(to_numpy(biases), to_numpy(theirs.compute_bias(300, 310)))
