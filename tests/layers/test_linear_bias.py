"""`LinearBias` (ALiBi): slopes of the heads and biases proportional to the distance."""

import numpy as np
import pytest
from layer_contract import to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import LinearBias


def compute_biases(num_heads, num_queries, num_keys, offset=0, **options):
    queries, keys = (np.zeros((1, length, 1), "float32") for length in (num_queries, num_keys))
    return to_numpy(LinearBias(num_heads, **options)(queries, keys, offset=offset))[0]


@pytest.mark.parametrize(
    ("num_heads", "powers"),
    [  # slopes are 0.5**power; 8 heads: section 3 of the paper; other numbers: by hand from the authors' code
        (1, [8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (16, [0.5 * head for head in range(1, 17)]),
    ],
)
def test_slopes_equal_those_of_the_paper(num_heads, powers):
    assert_close(compute_biases(num_heads, 1, 2)[:, 0, 1], -(0.5 ** np.array(powers)), "float32", tolerance=1e-7)


def test_biases_equal_an_example_by_hand():
    """Two heads have the slopes 1/16 and 1/256; biases do not depend on the sign of a distance."""
    distances = np.array([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1]])
    assert_identical(compute_biases(2, 3, 4), np.stack([-distances / 16, -distances / 256]).astype("float32"))
    distances = np.array([[5, 4, 3, 2]])
    assert_identical(compute_biases(2, 1, 4, offset=5), np.stack([-distances / 16, -distances / 256]).astype("float32"))


def test_float16_biases_of_large_distances_are_finite():
    """If all unmasked keys are distant, the weights of infinite biases would be NaN."""
    biases = compute_biases(2, 1, 3, offset=3_000_000, dtype="float16")
    assert biases.dtype == "float16"
    assert_identical(biases[:, 0], np.array([[-65504] * 3, [-11720] * 3], "float16"))
    assert compute_biases(2, 1, 1, offset=3_000_000)[0, 0, 0] == -187500


@pytest.mark.slow
@pytest.mark.needs("keras_hub")
@pytest.mark.parametrize("num_heads", [3, 20])
def test_biases_equal_alibi_of_keras_hub(num_heads):
    """KerasHub adds the biases of the last query to all queries: a causal softmax ignores the difference."""
    import keras_hub

    expected = to_numpy(keras_hub.layers.AlibiBias()(np.zeros((1, num_heads, 1, 40), "float32")))[0]
    assert_close(compute_biases(num_heads, 1, 40, offset=39), expected, "float32")
