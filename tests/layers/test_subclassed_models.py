"""Subclassed models that take lengths and masks as inputs: a file gives Keras floats to build them on."""

import keras
import numpy as np
import pytest
from layer_contract import draw_normal, save_and_load, to_numpy
from tolerances import assert_identical

from keras_attn import AdditiveAttention, DotProductAttention, MaskedSoftmax, MultiHeadAttention, masked_softmax

B, Tq, Tk, D = 2, 3, 5, 4
LAYERS = {
    "additive": lambda: AdditiveAttention(8),
    "dot product": DotProductAttention,
    "multi-head": lambda: MultiHeadAttention(AdditiveAttention(8), 2),
}
RNG = np.random.default_rng(0)
MASKS = {
    "valid_lens": np.array([2, 3]),
    "valid_lens by query": np.array([[1, 2, 5], [4, 0, 3]]),
    "attention_mask": RNG.random((B, Tq, Tk)) < 0.5,
    "queries_mask": RNG.random((B, Tq)) < 0.5,
    "keys_mask": RNG.random((B, Tk)) < 0.5,
    "offset": np.array([0, 9]),
}
PAIRS = [([*LAYERS][number % 3], name) for number, name in enumerate(MASKS)]


def vectors():
    return draw_normal(B, Tq, D), draw_normal(B, Tk, D)


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class Attending(keras.Model):
    """A layer over positional inputs, and a layer that is built after it.

    Of several inputs Keras writes the shape of the first alone, unless the model returns those of all.
    """

    def __init__(self, layer, mask, **kwargs):
        super().__init__(**kwargs)
        self.options = {"layer": layer, "mask": mask}
        self.attend, self.dense = LAYERS[layer](), keras.layers.Dense(1)

    def call(self, queries, keys, mask):
        return self.dense(self.attend(queries, keys, keys, **{self.options["mask"].split()[0]: mask}))

    def get_config(self):
        return {**super().get_config(), **self.options}

    def get_build_config(self):
        shapes = {"queries": (B, Tq, D), "keys": (B, Tk, D), "mask": MASKS[self.options["mask"]].shape}
        return {"shapes_dict": {f"{name}_shape": shape for name, shape in shapes.items()}}


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class OfDict(Attending):
    """All inputs in one dict: Keras writes the shapes of all."""

    def call(self, inputs):
        return super().call(inputs["queries"], inputs["keys"], inputs["mask"])

    def get_build_config(self):
        return keras.Model.get_build_config(self)


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class Weighing(keras.Model):
    """Both forms of the softmax on inputs in a dict, and a layer that is built after the first."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.first, self.dense = MaskedSoftmax(), keras.layers.Dense(Tk)

    def call(self, inputs):
        lengths, mask = inputs["valid_lens"], inputs["mask"]
        weights = self.first(inputs["scores"], lengths, attention_mask=mask)
        return masked_softmax(self.dense(weights), lengths, mask=mask)


@pytest.mark.parametrize(("layer", "name"), PAIRS)
def test_positional_inputs_keep_their_weights_and_float_masks_are_refused(layer, name, tmp_path):
    model, inputs = Attending(layer, name), (*vectors(), MASKS[name])
    sentence = rf"`{name.split()[0]}` must be (integers|boolean).*dtype float32"
    wrong = (*inputs[:2], inputs[2].astype("float32"))
    with pytest.raises(TypeError, match=sentence):
        model(*wrong)
    expected, again = to_numpy(model(*inputs)), save_and_load(model, tmp_path)
    for each in (model, again):
        assert_identical(to_numpy(each(*inputs)), expected)
        with pytest.raises(TypeError, match=sentence):
            each(*wrong)


def test_layer_after_the_softmax_keeps_its_weights(tmp_path):
    inputs = {"scores": draw_normal(B, Tq, Tk), "valid_lens": MASKS["valid_lens"], "mask": MASKS["attention_mask"]}
    model = Weighing()
    expected = to_numpy(model(inputs))
    assert_identical(to_numpy(save_and_load(model, tmp_path)(inputs)), expected)


def test_float_lengths_through_another_layer_are_refused_when_the_model_runs():
    inputs = [keras.Input((Tq, D)), keras.Input((Tk, D)), keras.Input((), dtype="float32")]
    model = keras.Model(inputs, Attending("dot product", "valid_lens")(*inputs))
    with pytest.raises(TypeError, match=r"`valid_lens` must be integers.*dtype float32"):
        model([*vectors(), np.array([2.0, 3.0], "float32")])


@pytest.mark.parametrize("name", ["valid_lens", "attention_mask"])
def test_inputs_in_a_dict_keep_their_weights(name, tmp_path):
    queries, keys = vectors()
    model, inputs = OfDict("additive", name), {"queries": queries, "keys": keys, "mask": MASKS[name]}
    expected = to_numpy(model(inputs))
    assert_identical(to_numpy(save_and_load(model, tmp_path)(inputs)), expected)
