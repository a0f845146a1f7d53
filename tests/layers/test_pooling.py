"""The base layer beyond the contract: masks that Keras carries, switches, dropout, and what a subclass has to give."""

import keras
import numpy as np
import pytest
from keras import ops
from tolerances import assert_close, assert_identical

from keras_attn import AttentionCell, AttentionPooling, AttentionRNN, DotProductAttention

B, Tq, Tk, Dq, Dk, Dv = 2, 3, 5, 4, 6, 7


class UniformAttention(AttentionPooling):
    """All scores zero: the weights show the mask and nothing else."""

    def score(self, queries, keys):
        return ops.zeros((*ops.shape(queries)[:-1], ops.shape(keys)[-2]), queries.dtype)


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in ((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))]


def symbols():
    shapes = {"queries": (Tq, Dq), "keys": (Tk, Dk), "values": (Tk, Dv)}
    return {name: keras.Input(shape, name=name) for name, shape in shapes.items()}


def test_nan_in_keys_after_the_last_causal_query_changes_nothing():
    queries, keys, values = arrays()
    expected = ops.convert_to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True))
    keys[:, Tq:], values[:, Tq:] = np.nan, np.inf
    assert_identical(ops.convert_to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True)), expected)


def test_integer_inputs_are_computed_in_the_dtype_of_the_layer():
    values = np.arange(B * Tk * Dv).reshape(B, Tk, Dv)
    output = UniformAttention()(*arrays()[:2], values, np.array([2, 2]))
    assert_close(ops.convert_to_numpy(output)[:, 0], values[:, :2].mean(1).astype("float32"))


SWITCHES = ["use_causal_mask", "return_attention_scores"]


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["no", 2, np.array([True])], ids=repr)
def test_switches_refuse_values_other_than_booleans(name, value):
    queries, keys, values = arrays()
    for given in ({"queries": queries, "keys": keys, "values": values}, symbols()):
        with pytest.raises(TypeError, match=rf"`{name}` must be True or False\. Received: {name} of type \w+"):
            UniformAttention()(**given, **{name: value})


@pytest.mark.parametrize("value", [1, np.True_, 0, None])
def test_switches_take_numbers_and_none_as_booleans(value):
    given, plain = (UniformAttention()(*arrays(), **dict.fromkeys(SWITCHES, each)) for each in (value, bool(value)))
    assert isinstance(given, tuple) == bool(value)
    for found, expected in zip(keras.tree.flatten(given), keras.tree.flatten(plain), strict=True):
        assert_identical(ops.convert_to_numpy(found), ops.convert_to_numpy(expected))


def test_score_of_the_wrong_shape_is_refused():
    class Transposed(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tk, Tq))

    with pytest.raises(ValueError, match=r"`Transposed.score` must return.*\(2, 3, 5\).*shape \(2, 5, 3\)"):
        Transposed()(*arrays())


def test_score_of_another_dtype_keeps_the_dtype_of_the_layer():
    class Wide(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tq, Tk), "float32")

    output, weights = Wide(dtype="float16")(*arrays(), return_attention_scores=True)
    assert [keras.backend.standardize_dtype(x.dtype) for x in (output, weights)] == ["float16", "float16"]


@pytest.mark.parametrize(("missing", "built"), [("keys", False), ("values", True)])
def test_missing_keys_or_values_are_refused(missing, built):
    layer = DotProductAttention()
    tensors = {name: np.ones((2, size, 4), "float32") for name, size in (("queries", 3), ("keys", 5), ("values", 5))}
    if built:
        layer(**tensors)
    with pytest.raises(ValueError, match=rf"`{missing}` must be a tensor. Received: {missing}=None"):
        layer(**tensors | {missing: None})


def test_complex_queries_are_refused():
    keys = np.ones((2, 5, 4), "float32")
    with pytest.raises(TypeError, match=r"`queries` must be real numbers. Received: queries dtype complex64"):
        DotProductAttention()(np.ones((2, 3, 4), "complex64"), keys, keys)


X = np.zeros((2, 5, 4), "float32")


class Own(AttentionPooling):
    def score(self, queries, keys):
        raise TypeError("of its own")


def recurrent():
    return AttentionRNN(AttentionCell(keras.layers.GRUCell(3), DotProductAttention()))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: Own()(), r"`Own` cannot be called like this: missing .*'queries'. Received: nothing. Call it as"),
        (lambda: Own()((X, X)), "Received: a tuple of 2"),
        (lambda: Own()(None), "Received: NoneType."),
        (lambda: Own()(X, X, lens=2), r"'lens'. Received: a tensor, a tensor, `lens`.*values_mask`.$"),
        (lambda: recurrent()(X), r"missing .*'memory'. Received: a tensor. Call it as `layer\(inputs, memory\)`"),
        (lambda: recurrent()(keras.Input((5, 4))), "missing .*'memory'. Received: a tensor"),
    ],
)
def test_missing_and_unknown_arguments_are_refused(call, said):
    with pytest.raises(TypeError, match=said):
        call()


def test_other_type_errors_keep_their_message():
    with pytest.raises(TypeError, match=r"(?s)^(?!.*cannot be called).*of its own"):
        Own()(X, X, X)
