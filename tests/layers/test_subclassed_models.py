"""Subclassed models with lengths and masks, which Keras builds with float placeholders when it loads a file."""

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
LAYERS_AND_MASKS = [([*LAYERS][index % 3], name) for index, name in enumerate(MASKS)]


def draw_queries_and_keys():
    return draw_normal(B, Tq, D), draw_normal(B, Tk, D)


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class AttentionModel(keras.Model):
    """Model of an attention layer with positional inputs, followed by a dense layer."""

    # Keras saves the shape of the first positional input only, unless `get_build_config` returns all shapes.

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
class DictInputModel(AttentionModel):
    """Model with all inputs in one dict, of which Keras saves all shapes."""

    def call(self, inputs):
        return super().call(inputs["queries"], inputs["keys"], inputs["mask"])

    def get_build_config(self):
        return keras.Model.get_build_config(self)


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class SoftmaxModel(keras.Model):
    """Model of a softmax layer, a dense layer and the softmax function, with inputs in a dict."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.softmax, self.dense = MaskedSoftmax(), keras.layers.Dense(Tk)

    def call(self, inputs):
        lengths, mask = inputs["valid_lens"], inputs["mask"]
        weights = self.softmax(inputs["scores"], lengths, attention_mask=mask)
        return masked_softmax(self.dense(weights), lengths, mask=mask)


@pytest.mark.parametrize(("layer", "name"), LAYERS_AND_MASKS)
def test_model_with_positional_inputs_is_loaded_and_rejects_float_masks(layer, name, tmp_path):
    model, inputs = AttentionModel(layer, name), (*draw_queries_and_keys(), MASKS[name])
    message = rf"`{name.split()[0]}` must be (integers|boolean).*dtype float32"
    float_inputs = (*inputs[:2], inputs[2].astype("float32"))
    with pytest.raises(TypeError, match=message):
        model(*float_inputs)
    expected = to_numpy(model(*inputs))
    for tested_model in (model, save_and_load(model, tmp_path)):
        assert_identical(to_numpy(tested_model(*inputs)), expected)
        with pytest.raises(TypeError, match=message):
            tested_model(*float_inputs)


def test_model_with_softmax_is_loaded_with_its_weights(tmp_path):
    inputs = {"scores": draw_normal(B, Tq, Tk), "valid_lens": MASKS["valid_lens"], "mask": MASKS["attention_mask"]}
    model = SoftmaxModel()
    expected = to_numpy(model(inputs))
    assert_identical(to_numpy(save_and_load(model, tmp_path)(inputs)), expected)


def test_float_lengths_of_an_inner_model_are_rejected_at_run_time():
    inputs = [keras.Input((Tq, D)), keras.Input((Tk, D)), keras.Input((), dtype="float32")]
    model = keras.Model(inputs, AttentionModel("dot product", "valid_lens")(*inputs))
    with pytest.raises(TypeError, match=r"`valid_lens` must be integers.*dtype float32"):
        model([*draw_queries_and_keys(), np.array([2.0, 3.0], "float32")])


@pytest.mark.parametrize("name", ["valid_lens", "attention_mask"])
def test_model_with_dict_inputs_is_loaded_with_its_weights(name, tmp_path):
    queries, keys = draw_queries_and_keys()
    model, inputs = DictInputModel("additive", name), {"queries": queries, "keys": keys, "mask": MASKS[name]}
    expected = to_numpy(model(inputs))
    assert_identical(to_numpy(save_and_load(model, tmp_path)(inputs)), expected)
