"""Which layers stay float32, of models whose noise is known: squares add up."""

import pytest

from keras_attn_export._precision.sensitive_layers import MOST_TRIED, left_in_float32


class Model:
    """Layers with noise of their own each; counts how often it is measured."""

    def __init__(self, **noise):
        self.noise, self.measured = noise, 0

    def __call__(self, layers):
        self.measured += 1
        noise = sum(self.noise[layer] ** 2 for layer in layers) ** 0.5
        return {"y": {"noise": noise, "share": 10 * noise}, "quiet": {"noise": 0.0, "share": 0.0}}

    def left(self, limit=None):
        return left_in_float32([*self.noise], self, limit)


@pytest.mark.parametrize(
    ("noise", "limit", "left"),
    [
        ({"a": 0.001, "b": 0.019, "c": 0.001}, None, []),
        ({"a": 0.001, "b": 0.5, "c": 0.001}, None, ["b"]),
        ({"a": 0.3, "b": 0.001, "c": 0.01, "d": 0.5, **dict.fromkeys("efgh", 0.001)}, None, ["a", "d"]),
        ({"a": 0.001, "b": 0.019, "c": 0.001}, 0.1, ["b"]),
        ({"a": 0.1, "b": 0.1, "c": 0.1, "d": 0.1}, None, []),
        ({"a": 0.5, "b": 0.6, "c": 0.7, "d": 0.01}, None, ["c"]),
        ({"a": 0.5}, None, []),
    ],
    ids=["near", "one", "two, in order", "a limit", "all alike", "no more than a quarter", "nothing else"],
)
def test_layers_that_make_most_noise_stay(noise, limit, left):
    assert Model(**noise).left(limit) == left


def test_near_models_are_measured_once_and_deep_ones_in_groups():
    near, deep = Model(a=0.01, b=0.01), Model(**{f"l{number}": 0.1 for number in range(100)}, last=9.0)
    assert near.left() == []
    assert near.measured == 1
    assert "last" in deep.left()
    assert deep.measured <= MOST_TRIED + 10
