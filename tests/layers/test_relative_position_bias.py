"""`RelativePositionBias`: buckets of all distances by the published formula of T5, gradients, and invalid options."""

import math

import numpy as np
import pytest
from backends import MODES, compile_function, compute_gradients
from keras import ops
from layer_contract import build_error_pattern, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import RelativePositionBias
from keras_attn._positions.relative_bias import compute_bucket_starts

# (num_buckets, max_distance): T5; integer and non-integer borders of buckets; an odd number; the fewest buckets.
SIZES = [(32, 128), (16, 64), (20, 37), (11, 30), (5, 2)]
every_size = pytest.mark.parametrize("sizes", SIZES, ids=str)
every_direction = pytest.mark.parametrize("bidirectional", [True, False], ids=["both", "one"])


def compute_bucket(distance, num_buckets, max_distance, bidirectional):
    """Compute the bucket of a key `distance` positions after its query, as in the code of Raffel et al."""
    first_bucket = 0
    if bidirectional:
        num_buckets //= 2
        if distance > 0:
            first_bucket = num_buckets
        distance = abs(distance)
    else:
        distance = max(-distance, 0)
    num_exact = num_buckets // 2
    if distance < num_exact:
        return first_bucket + distance
    fraction = math.log(distance / num_exact) / math.log(max_distance / num_exact)
    # Rounding may put an integer quotient of two logarithms below the integer. 1e-9 corrects this, and is smaller than
    # the distance of every other border to an integer.
    return first_bucket + min(num_exact + math.floor(fraction * (num_buckets - num_exact) + 1e-9), num_buckets - 1)


def build_numbered_layer(num_buckets=32, max_distance=128, bidirectional=True):
    """Return a layer with two heads: the biases are the index of the bucket, and the index + 1000."""
    layer = RelativePositionBias(2, num_buckets, max_distance, bidirectional)
    layer.build()
    layer.set_weights([np.arange(num_buckets, dtype="float32")[:, None] + np.array([0, 1000], "float32")])
    return layer


def read_buckets(layer, max_gap):
    """Return the buckets of keys at distances from -max_gap to max_gap."""
    query, keys = np.zeros((1, 1, 1), "float32"), np.zeros((1, 2 * max_gap + 1, 1), "float32")
    buckets, second_head = to_numpy(layer(query, keys, offset=max_gap))[0, :, 0]
    assert_identical(second_head, buckets + 1000)
    return buckets.astype(int)


@every_size
@every_direction
def test_buckets_of_distances_equal_the_formula(sizes, bidirectional):
    if min(sizes) == sizes[1] <= (sizes[0] // (2 if bidirectional else 1)) // 2:
        sizes = (sizes[0], sizes[0])  # one direction has more exact buckets, which `max_distance` must exceed
    max_gap = 2 * sizes[1]
    expected = [compute_bucket(distance, *sizes, bidirectional) for distance in range(-max_gap, max_gap + 1)]
    assert read_buckets(build_numbered_layer(*sizes, bidirectional), max_gap).tolist() == expected


def compute_buckets_in_float32(distances, num_buckets, max_distance):
    """Compute the formula of one direction as the code of the authors."""
    num_exact = num_buckets // 2
    fractions = np.log(distances.astype("float32") / np.float32(num_exact))
    fractions /= np.float32(math.log(max_distance / num_exact))
    buckets = num_exact + (fractions * np.float32(num_buckets - num_exact)).astype("int32")
    return np.where(distances < num_exact, distances, np.minimum(buckets, num_buckets - 1))


@pytest.mark.parametrize("num_buckets", [16, 32])
def test_buckets_of_t5_equal_the_float32_formula(num_buckets):
    """Weights of the authors' code need equal buckets: 16 for both directions, 32 for one."""
    distances = np.arange(1, 1000)
    buckets = np.sum(distances[:, None] >= np.array(compute_bucket_starts(num_buckets, 128)), axis=-1)
    assert buckets.tolist() == compute_buckets_in_float32(distances, num_buckets, 128).tolist()


@pytest.mark.parametrize(("bidirectional", "mode"), [(n % 2 == 0, mode) for n, mode in enumerate(MODES)])
def test_gradient_of_a_bucket_is_the_sum_over_its_pairs(bidirectional, mode):
    layer = build_numbered_layer(8, 20, bidirectional)
    Tq, Tk, offsets = 6, 30, np.array([0, 17], "int32")
    upstream = np.random.default_rng(0).normal(size=(2, 2, Tq, Tk)).astype("float32")
    queries, keys = np.zeros((2, Tq, 1), "float32"), np.zeros((2, Tk, 1), "float32")

    def loss(upstream, queries, keys, offsets):
        return ops.sum(layer(queries, keys, offset=offsets) * upstream)

    program = compile_function(compute_gradients(loss, 0, layer.variables), mode, variables=layer.variables)
    (gradient,) = program(*map(ops.convert_to_tensor, (upstream, queries, keys, offsets)))
    expected = np.zeros((8, 2))
    for b, h, i, j in np.ndindex(*upstream.shape):
        expected[compute_bucket(j - (i + int(offsets[b])), 8, 20, bidirectional), h] += upstream[b, h, i, j]
    assert_close(to_numpy(ops.convert_to_tensor(gradient)), expected, "float32")


@pytest.mark.parametrize(
    "options",
    [{"num_buckets": 8.0}, {"num_buckets": 3}, {"max_distance": 8}, {"max_distance": -1}, {"bidirectional": 1}],
    ids=str,
)
def test_invalid_options_are_rejected(options):
    with pytest.raises((TypeError, ValueError), match=build_error_pattern(next(iter(options)))):
        RelativePositionBias(4, **options)


@pytest.mark.slow
@pytest.mark.needs("keras_hub")
@pytest.mark.filterwarnings("ignore::UserWarning")
@every_direction
def test_biases_equal_t5_of_keras_hub(bidirectional):
    from keras_hub.src.models.t5 import t5_multi_head_attention as t5

    t5_layer = t5.T5MultiHeadAttention(not bidirectional, 8, 4, 3, 0.0, use_relative_attention_bias=True)
    layer = RelativePositionBias(3, bidirectional=bidirectional, embeddings_initializer="normal")
    layer.build()
    t5_layer.relative_attention_bias.assign(layer.embeddings)
    biases = layer(np.zeros((1, 300, 1), "float32"), np.zeros((1, 310, 1), "float32"))
    assert_identical(to_numpy(biases), to_numpy(t5_layer.compute_bias(300, 310)))
