"""States of `precompute`: equality with calls on keys, saved models, and rejected states, for all layers."""

import keras
import numpy as np
import pytest
from layer_contract import B, Dv, Tk, Tq, compute_outputs, every_case, every_variant, save_and_load, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, BilinearAttention, DotProductAttention, MultiHeadAttention


@every_variant
def test_padding_of_a_state_has_no_effect(case):
    layer, inputs = case.layer(), case.inputs()
    masks = {"valid_lens": np.array([3, 0])}
    expected = compute_outputs(layer, {**inputs, "keys": layer.precompute(inputs["keys"])}, masks)
    keys = inputs["keys"].copy()
    keys[0, 3:] = np.nan
    keys[1] = np.inf
    actual = compute_outputs(layer, {**inputs, "keys": layer.precompute(keys)}, masks)
    for array, expected_array in zip(actual, expected, strict=True):
        assert_identical(array, expected_array)


@every_case
def test_state_is_accepted_in_one_model_and_between_two(case, tmp_path):
    """Keras counts the outputs of the first call of a layer: here of `precompute`, which returns one tensor."""
    layer, inputs = case.layer(), case.inputs()
    arrays = {**inputs, "valid_lens": np.array([2, 4], "int32")}
    expected = compute_outputs(layer, inputs, {"valid_lens": arrays["valid_lens"]})
    symbolic_inputs = {name: keras.Input((None, array.shape[-1]), name=name) for name, array in inputs.items()}
    symbolic_inputs["valid_lens"] = keras.Input((), dtype="int32", name="valid_lens")
    queries, keys, values, lengths = symbolic_inputs.values()

    def attend(state):
        return list(layer(queries, state, values, lengths, return_attention_scores=True))

    state = layer.precompute(keys)
    model = keras.Model(symbolic_inputs, attend(state))
    loaded = save_and_load(model, tmp_path)
    for output, loaded_output, expected_output in zip(model(arrays), loaded(arrays), expected, strict=True):
        assert_close(to_numpy(output), expected_output, "float32")
        assert_identical(to_numpy(loaded_output), to_numpy(output))
    clone = keras.models.clone_model(model)  # it calls `precompute` first, without queries
    assert [weight.shape for weight in clone.weights] == [weight.shape for weight in model.weights]
    clone.set_weights(model.get_weights())
    assert_identical(to_numpy(clone(arrays)[0]), to_numpy(model(arrays)[0]))

    projected_keys = keras.Input(state["projected_keys"].shape[1:], name="state")
    decoder = keras.Model([queries, projected_keys, values, lengths], attend({"projected_keys": projected_keys}))
    state_array = to_numpy(keras.Model(keys, state)(inputs["keys"])["projected_keys"])
    for model in (decoder, save_and_load(decoder, tmp_path)):
        output, _ = model([inputs["queries"], state_array, inputs["values"], arrays["valid_lens"]])
        assert_close(to_numpy(output), expected[0], "float32")


def test_heads_accept_a_state_with_several_leading_axes():
    rng, layer = np.random.default_rng(0), MultiHeadAttention(DotProductAttention(), 4)
    queries, keys, values = (rng.normal(size=(2, 6, length, 8)).astype("float32") for length in (Tq, Tk, Tk))
    mask = rng.random((Tq, Tk)) < 0.6
    expected = layer(queries, keys, values, attention_mask=mask)
    for state in ([layer.precompute(keys, values)], [layer.precompute(keys), values]):
        assert_close(to_numpy(layer(queries, *state, attention_mask=mask)), to_numpy(expected), "float32")


def test_unbuilt_layer_rejects_precompute_and_states():
    with pytest.raises(ValueError, match="must be built before `precompute`"):
        AdditiveAttention(8).precompute(np.ones((2, 5, 7), "float32"))
    queries, state, values = (np.ones((2, *shape), "float32") for shape in ((3, 4), (5, 8), (5, 6)))
    for layer in (AdditiveAttention(8), MultiHeadAttention(DotProductAttention(), 2)):
        with pytest.raises(ValueError, match="not built yet must get keys"):
            layer(queries, {"projected_keys": state}, values)


SIZE_RULE = r"projected keys must have size \d"


@pytest.mark.parametrize(
    ("layer", "name", "shape", "message"),
    [
        (AdditiveAttention(8), "projected_keys", (B, Tk, 7), SIZE_RULE),
        (DotProductAttention(), "k", (B, Tk, 4), r"the dict that `precompute` returns.*\['k'\]"),
        (BilinearAttention(), "projected_keys", (B, Tk, 7), SIZE_RULE),
        (MultiHeadAttention(DotProductAttention(), 2), "projected_keys", (B, 2, Tk, 3), SIZE_RULE),
    ],
)
def test_state_of_another_layer_is_rejected(layer, name, shape, message):
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
def test_precompute_rejects_invalid_keys(keys, message):
    for layer in (AdditiveAttention(8), BilinearAttention(), MultiHeadAttention(DotProductAttention(), 2)):
        layer(np.ones((B, Tq, 4), "float32"), np.ones((B, Tk, 4), "float32"), np.ones((B, Tk, Dv), "float32"))
        with pytest.raises((TypeError, ValueError), match=message):
            layer.precompute(keys)
