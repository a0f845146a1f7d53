"""The base layer beyond the contract: masks that Keras carries, switches, dropout, and what a subclass has to give."""

import keras
import numpy as np
import pytest
from backends import compiled, every_mode, mask_of
from keras import ops
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, AttentionPooling, DotProductAttention

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


@every_mode
def test_an_explicit_queries_mask_goes_on_with_the_output(mode):
    queries, keys, values = arrays()
    mask = np.array([[1, 1, 1], [1, 1, 0]], bool)

    def outputs():
        output = DotProductAttention()(queries, keys[..., :Dq], values, queries_mask=mask)
        return output, mask_of(output), keras.layers.GlobalAveragePooling1D()(output)

    output, carried, mean = (ops.convert_to_numpy(x) for x in compiled(outputs, mode)())
    assert_identical(carried, mask)
    assert_close(mean[1], output[1, :2].mean(0))


def test_keys_beyond_the_last_causal_query_may_hold_nan():
    queries, keys, values = arrays()
    expected = ops.convert_to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True))
    keys[:, Tq:], values[:, Tq:] = np.nan, np.inf
    assert_identical(ops.convert_to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True)), expected)


def test_integer_inputs_are_computed_in_the_dtype_of_the_layer():
    values = np.arange(B * Tk * Dv).reshape(B, Tk, Dv)
    output = UniformAttention()(*arrays()[:2], values, np.array([2, 2]))
    assert_close(ops.convert_to_numpy(output)[:, 0], values[:, :2].mean(1).astype("float32"))


def test_a_constant_mask_survives_a_reload(tmp_path):
    inputs = symbols()
    mask = np.random.default_rng(0).random((Tq, Tk)) > 0.5
    model = keras.Model(inputs, AdditiveAttention(8)(**inputs, attention_mask=mask))
    model.save(tmp_path / "model.keras")
    values = dict(zip(inputs, arrays(), strict=True))
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert_identical(ops.convert_to_numpy(reloaded(values)), ops.convert_to_numpy(model(values)))


SWITCHES = ["use_causal_mask", "return_attention_scores"]


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["no", "", 2, 0.0, np.array([True])], ids=repr)
def test_what_is_neither_true_nor_false_is_refused(name, value):
    queries, keys, values = arrays()
    for given in ({"queries": queries, "keys": keys, "values": values}, symbols()):
        with pytest.raises(TypeError, match=rf"`{name}` must be True or False\. Received: {name} of type \w+"):
            UniformAttention()(**given, **{name: value})


@pytest.mark.parametrize("value", [True, 1, np.True_, False, 0, np.False_, None])
def test_what_counts_as_true_or_false(value):
    given, plain = (UniformAttention()(*arrays(), **dict.fromkeys(SWITCHES, each)) for each in (value, bool(value)))
    assert isinstance(given, tuple) == bool(value)
    for found, expected in zip(keras.tree.flatten(given), keras.tree.flatten(plain), strict=True):
        assert_identical(ops.convert_to_numpy(found), ops.convert_to_numpy(expected))


def test_a_score_of_the_wrong_shape_is_told_so():
    class Transposed(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tk, Tq))

    with pytest.raises(ValueError, match=r"`Transposed.score` must return.*\(2, 3, 5\).*shape \(2, 5, 3\)"):
        Transposed()(*arrays())


def test_a_score_of_another_dtype_leaves_the_dtype_of_the_layer():
    class Wide(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tq, Tk), "float32")

    output, weights = Wide(dtype="float16")(*arrays(), return_attention_scores=True)
    assert [keras.backend.standardize_dtype(x.dtype) for x in (output, weights)] == ["float16", "float16"]


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("missing", ["keys", "values"])
def test_what_is_not_given(missing, built):
    layer = DotProductAttention()
    tensors = {name: np.ones((2, size, 4), "float32") for name, size in (("queries", 3), ("keys", 5), ("values", 5))}
    if built:
        layer(**tensors)
    with pytest.raises(ValueError, match=rf"`{missing}` must be a tensor. Received: {missing}=None"):
        layer(**tensors | {missing: None})


def test_complex_numbers():
    layer = DotProductAttention()
    queries = np.ones((2, 3, 4), "complex64")
    keys = np.ones((2, 5, 4), "float32")
    with pytest.raises(TypeError, match=r"`queries` must be real numbers. Received: queries dtype complex64"):
        layer(queries, keys, keys)
