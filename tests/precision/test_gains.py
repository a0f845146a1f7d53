"""What is measured of a conversion."""

import numpy as np
import pytest

from keras_attn_export._precision.gains import top1
from keras_attn_export._standalone.verify import Case


def softmax(scores):
    exponents = np.exp(scores)
    return (exponents / exponents.sum(-1, keepdims=True)).astype("float32")


def cases(*outputs):
    return [Case(f"case {index}", {}, {"out": array}) for index, array in enumerate(outputs)]


SCORES = [softmax(np.random.default_rng(seed).standard_normal((seed + 2, 3))) for seed in range(2)]


def test_the_share_of_rows_with_the_same_class():
    actual = [{"out": SCORES[0]}, {"out": np.roll(SCORES[1], 1, axis=-1)}]
    assert top1(cases(*SCORES), actual) == {"out": {"agreement": 0.4, "rows": 5}}


@pytest.mark.parametrize(
    "outputs",
    [
        [softmax(np.ones((2, 3))), softmax(np.ones((2, 5)))],
        [softmax(np.ones((2, 1)))],
        [np.ones((2, 3), "float32")],
        [np.array([[1.5, -0.5]], "float32")],
        [np.zeros((0, 3), "float32")],
        [np.array([[1, 0]])],
        [np.float32(1)],
    ],
    ids=["axis varies", "one entry", "sum is not 1", "negative", "no rows", "integers", "scalar"],
)
def test_what_is_no_class_score(outputs):
    assert top1(cases(*outputs), [{"out": array} for array in outputs]) == {}
