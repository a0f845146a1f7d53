"""ALiBi: the slope of each head, and biases that fall with the distance."""

import numpy as np
import pytest
from layer_contract import to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import LinearBias


def biases(num_heads, num_queries, num_keys, offset=0, **options):
    queries, keys = (np.zeros((1, length, 1), "float32") for length in (num_queries, num_keys))
    return to_numpy(LinearBias(num_heads, **options)(queries, keys, offset=offset))[0]


@pytest.mark.parametrize(
    ("num_heads", "powers"),
    [  # of a half; 8 are those of the paper's section 3, the uneven ones by hand from the authors' code
        (1, [8]),
        (3, [4, 8, 2]),
        (6, [2, 4, 6, 8, 1, 3]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (16, [0.5 * head for head in range(1, 17)]),
    ],
)
def test_slopes_equal_those_of_the_paper(num_heads, powers):
    assert_close(biases(num_heads, 1, 2)[:, 0, 1], -(0.5 ** np.array(powers)), "float32", tolerance=1e-7)


def test_biases_equal_an_example_by_hand():
    """Two heads have the slopes 1/16 and 1/256; keys behind the query count as those before it."""
    distances = np.array([[0, 1, 2, 3], [1, 0, 1, 2], [2, 1, 0, 1]])
    assert_identical(biases(2, 3, 4), np.stack([-distances / 16, -distances / 256]).astype("float32"))
    distances = np.array([[5, 4, 3, 2]])
    assert_identical(biases(2, 1, 4, offset=5), np.stack([-distances / 16, -distances / 256]).astype("float32"))


def test_float16_biases_are_finite_far_away():
    """Where only far keys are seen, the weights of a row of infinities would be NaN."""
    found = biases(2, 1, 3, offset=3_000_000, dtype="float16")
    assert found.dtype == "float16"
    assert_identical(found[:, 0], np.array([[-65504] * 3, [-11720] * 3], "float16"))
    assert biases(2, 1, 1, offset=3_000_000)[0, 0, 0] == -187500


@pytest.mark.slow
@pytest.mark.needs("keras_hub")
@pytest.mark.parametrize("num_heads", [3, 20])
def test_biases_equal_those_of_keras_hub_alibi(num_heads):
    """It gives those of the last query to all, which a softmax under a causal mask does not see."""
    import keras_hub

    theirs = to_numpy(keras_hub.layers.AlibiBias()(np.zeros((1, num_heads, 1, 40), "float32")))[0]
    assert_close(biases(num_heads, 1, 40, offset=39), theirs, "float32")
