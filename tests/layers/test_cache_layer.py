"""What depends on keys alone, computed once: the same answer as the plain call, in every layer and on every path."""

import keras
import numpy as np
import pytest
from layer_contract import B, Dv, Tk, Tq, compute_outputs, every_case, every_variant, save_and_load, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention, MultiHeadAttention


@every_variant
def test_poison_in_the_padding_of_a_state_changes_nothing(case):
    layer, inputs = case.layer(), case.inputs()
    masks = {"valid_lens": np.array([3, 0])}
    clean = compute_outputs(layer, {**inputs, "keys": layer.precompute(inputs["keys"])}, masks)
    keys = inputs["keys"].copy()
    keys[0, 3:] = np.nan
    keys[1] = np.inf
    for actual, expected in zip(
        compute_outputs(layer, {**inputs, "keys": layer.precompute(keys)}, masks), clean, strict=True
    ):
        assert_identical(actual, expected)


@every_case
def test_state_passes_within_one_model_and_between_two(case, tmp_path):
    """Keras counts the outputs of a layer's first call, which is `precompute` here and has one."""
    layer, inputs = case.layer(), case.inputs()
    arrays = {**inputs, "valid_lens": np.array([2, 4], "int32")}
    plain = compute_outputs(layer, inputs, {"valid_lens": arrays["valid_lens"]})
    entries = {name: keras.Input((None, array.shape[-1]), name=name) for name, array in inputs.items()}
    entries["valid_lens"] = keras.Input((), dtype="int32", name="valid_lens")
    queries, keys, values, lengths = entries.values()

    def attended(state):
        return list(layer(queries, state, values, lengths, return_attention_scores=True))

    state = layer.precompute(keys)
    one = keras.Model(entries, attended(state))
    again = save_and_load(one, tmp_path)
    for found, loaded, exact in zip(one(arrays), again(arrays), plain, strict=True):
        assert_close(to_numpy(found), exact, "float32")
        assert_identical(to_numpy(loaded), to_numpy(found))
    copy = keras.models.clone_model(one)  # its first call of the layer has no queries to build from
    assert [weight.shape for weight in copy.weights] == [weight.shape for weight in one.weights]
    copy.set_weights(one.get_weights())
    assert_identical(to_numpy(copy(arrays)[0]), to_numpy(one(arrays)[0]))

    given = keras.Input(state["projected_keys"].shape[1:], name="state")
    second = keras.Model([queries, given, values, lengths], attended({"projected_keys": given}))
    kept = to_numpy(keras.Model(keys, state)(inputs["keys"])["projected_keys"])
    for model in (second, save_and_load(second, tmp_path)):
        found = model([inputs["queries"], kept, inputs["values"], arrays["valid_lens"]])
        assert_close(to_numpy(found[0]), plain[0], "float32")


def test_heads_take_a_state_with_several_leading_axes():
    rng, layer = np.random.default_rng(0), MultiHeadAttention(DotProductAttention(), 4)
    queries, keys, values = (rng.normal(size=(2, 6, length, 8)).astype("float32") for length in (Tq, Tk, Tk))
    mask = rng.random((Tq, Tk)) < 0.6
    plain = layer(queries, keys, values, attention_mask=mask)
    for given in ([layer.precompute(keys, values)], [layer.precompute(keys), values]):
        assert_close(to_numpy(layer(queries, *given, attention_mask=mask)), to_numpy(plain), "float32")


def test_layer_that_is_not_built_refuses_precompute_and_states():
    with pytest.raises(ValueError, match="must be built before `precompute`"):
        AdditiveAttention(8).precompute(np.ones((2, 5, 7), "float32"))
    queries, state, values = (np.ones((2, *shape), "float32") for shape in ((3, 4), (5, 8), (5, 6)))
    for layer in (AdditiveAttention(8), MultiHeadAttention(DotProductAttention(), 2)):
        with pytest.raises(ValueError, match="not built yet must get keys"):
            layer(queries, {"projected_keys": state}, values)


SIZE = r"projected keys must have size \d"


@pytest.mark.parametrize(
    ("layer", "name", "shape", "message"),
    [
        (AdditiveAttention(8), "projected_keys", (B, Tk, 7), SIZE),
        (DotProductAttention(), "k", (B, Tk, 4), r"the dict that `precompute` returns.*\['k'\]"),
        (BilinearAttention(), "projected_keys", (B, Tk, 7), SIZE),
        (MultiHeadAttention(DotProductAttention(), 2), "projected_keys", (B, 2, Tk, 3), SIZE),
    ],
)
def test_state_of_another_layer_is_refused(layer, name, shape, message):
    queries, values = np.ones((B, Tq, 4), "float32"), np.ones((B, Tk, Dv), "float32")
    layer(queries, np.ones((B, Tk, 4), "float32"), values)
    with pytest.raises(ValueError, match=message):
        layer(queries, {name: np.ones(shape, "float32")}, values)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (None, "`keys` must be a tensor"),
        (np.ones((B, Tk, 4), "complex64"), "`keys` must be real"),
        (np.ones((Tk, 4), "float32"), "`keys` must have at least 3 axes"),
        (np.ones((B, Tk, 5), "float32"), "last axis of `keys` must be 4"),
    ],
)
def test_precompute_refuses_bad_keys(keys, message):
    for layer in (AdditiveAttention(8), BilinearAttention(), MultiHeadAttention(DotProductAttention(), 2)):
        layer(np.ones((B, Tq, 4), "float32"), np.ones((B, Tk, 4), "float32"), np.ones((B, Tk, Dv), "float32"))
        with pytest.raises((TypeError, ValueError), match=message):
            layer.precompute(keys)
