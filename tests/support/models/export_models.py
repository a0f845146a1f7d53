"""Models that other exporters fail to export, with their sample inputs: the table of test_export_models.py."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import keras
import numpy as np
from keras import layers

from keras_attn import (
    AdditiveAttention,
    BilinearAttention,
    CosineAttention,
    DotProductAttention,
    GaussianAttention,
    MaskedSoftmax,
    MultiHeadAttention,
)


@dataclass(frozen=True)
class ExportCase:
    """A model, its sample inputs, and a lower bound on the number of its lowered attention layers."""

    build: Callable[[], keras.Model]
    samples: Callable[[], Mapping[str, object] | None] = lambda: None
    attention: int = 1


def build_attention_inputs(queries=6, keys=8, values=5):
    return (
        keras.Input((None, queries), name="queries"),
        keras.Input((None, keys), name="keys"),
        keras.Input((None, values), name="values"),
        keras.Input((), dtype="int32", name="valid_lens"),
    )


def build_additive():
    q, k, v, lens = build_attention_inputs()
    return keras.Model([q, k, v, lens], AdditiveAttention(7, name="attention")(q, k, v, lens))


def build_dict_inputs_and_outputs():
    q, k, v, lens = build_attention_inputs(keys=6)
    out, weights = DotProductAttention(name="attention")(q, k, v, lens, return_attention_scores=True)
    return keras.Model({"queries": q, "keys": k, "values": v, "valid_lens": lens}, {"context": out, "weights": weights})


def build_list_outputs_of_one_layer():
    q, k, v, lens = build_attention_inputs()
    outputs = AdditiveAttention(4, name="attention")(q, k, v, lens, return_attention_scores=True)
    return keras.Model([q, k, v, lens], outputs)


def build_per_query_lengths():
    q, k, v, _ = build_attention_inputs()
    lens = keras.Input((None,), dtype="int64", name="valid_lens")
    return keras.Model([q, k, v, lens], AdditiveAttention(4)(q, k, v, lens))


def build_boolean_and_causal_mask():
    q, k, v, _ = build_attention_inputs(keys=6)
    mask = keras.Input((None, None), dtype="bool", name="mask")
    return keras.Model([q, k, v, mask], DotProductAttention()(q, k, v, attention_mask=mask, use_causal_mask=True))


def build_all_scores():
    q, k, v, lens = build_attention_inputs(keys=9)
    wide, narrow = layers.Dense(9)(q), layers.Dense(3)
    outputs = {
        "bilinear": BilinearAttention()(q, k, v, lens),
        "gaussian_of_many_axes": GaussianAttention(2.0)(wide, k, v, lens),
        "gaussian": GaussianAttention(0.7)(narrow(wide), narrow(k), v, lens),
        "cosine": CosineAttention(0.2)(wide, k, v, lens),
        "normalized": AdditiveAttention(5, normalize=True)(q, k, v, lens),
    }
    return keras.Model([q, k, v, lens], outputs)


def build_all_normalizers_and_windows():
    q, k, v, lens = build_attention_inputs(keys=6)
    sparse, weights = DotProductAttention(normalizer="sparsemax")(q, k, v, lens, return_attention_scores=True)
    independent = BilinearAttention(normalizer="sigmoid")(q, k, v, lens, window=(2, 1))
    windowed = DotProductAttention()(q, k, v, lens, window=(2, None), use_causal_mask=True)
    return keras.Model([q, k, v, lens], {"sparse": sparse, "weights": weights, "each": independent, "near": windowed})


def build_multiple_heads():
    q, k, v, lens = build_attention_inputs()
    grouped = MultiHeadAttention(DotProductAttention(), 4, key_dim=3, value_dim=2, num_kv_heads=2, name="grouped")
    out, weights = grouped(q, k, v, lens, return_attention_scores=True)
    additive_heads = MultiHeadAttention(AdditiveAttention(5), 2, name="additive_heads")
    return keras.Model([q, k, v, lens], {"out": additive_heads(out, k, v, lens), "weights": weights})


def build_precomputed_keys():
    q, k, v, lens = build_attention_inputs()
    attention = AdditiveAttention(7, name="attention")
    heads = MultiHeadAttention(BilinearAttention(), 2, name="heads")
    for layer in (attention, heads):
        layer.build(q.shape, k.shape, v.shape)
    context = attention(q, attention.precompute(k), v, lens)
    return keras.Model([q, k, v, lens], heads(layers.Dense(6)(context), heads.precompute(k), v, lens))


@keras.saving.register_keras_serializable("tests")
class Halves(layers.Layer):
    """Splits the last axis in two, as heads are split, with dynamic sizes of all further axes."""

    def call(self, x):
        batch, length, size = keras.ops.shape(x)
        return keras.ops.swapaxes(keras.ops.reshape(x, (batch, length, 2, size // 2)), 1, 2)


def build_reshaped_after_dense():
    x = keras.Input((None, 5), name="x")
    return keras.Model(x, Halves(name="halves")(layers.Dense(6)(x)))


def build_masked_softmax_alone():
    scores = keras.Input((3, None), name="scores")
    lens = keras.Input((3,), dtype="int32", name="valid_lens")
    return keras.Model([scores, lens], MaskedSoftmax()(scores, lens))


def build_implicit_mask_and_encoders():
    ids = keras.Input((None,), dtype="int32", name="ids")
    embedded = layers.Embedding(11, 6, mask_zero=True)(ids)
    backward = layers.LSTM(4, return_sequences=True, go_backwards=True)
    encoded = layers.Bidirectional(layers.GRU(4, return_sequences=True), backward_layer=backward)(embedded)
    out = AdditiveAttention(4, name="attention")(encoded, encoded, encoded)
    return keras.Model(ids, layers.Dense(3, activation="softmax", name="classes")(out))


def build_gelu_norm_dropout_conv():
    x = keras.Input((None, 6), name="x")
    lens = keras.Input((), dtype="int32", name="valid_lens")
    y = layers.Conv1D(8, 3, padding="same", activation="gelu")(x)
    y = layers.LayerNormalization()(layers.Dropout(0.3)(y))
    y = layers.BatchNormalization()(DotProductAttention(0.2)(y, y, y, lens))
    return keras.Model([x, lens], layers.Dense(2, activation=keras.activations.gelu)(y))


def build_compiled_with_xla():
    model = build_gelu_norm_dropout_conv()
    model.compile("sgd", "mse", jit_compile=True)
    return model


def build_shared_layer():
    q, k, v, lens = build_attention_inputs(values=6)
    attention = AdditiveAttention(4, name="attention")
    return keras.Model([q, k, v, lens], attention(attention(q, k, v, lens), k, v, lens))


def build_nested_model():
    q, k, v, lens = build_attention_inputs()
    inner = build_additive()
    out = layers.Dense(3, name="outer")(inner([q, k, v, lens]))
    return keras.Model([q, k, v, lens], out)


def build_shared_with_nested_model():
    """Return a model that applies a layer before, within and after a nested model."""
    keras.utils.set_random_seed(0)
    shared, inner_input, x = layers.Dense(6), keras.Input((None, 6)), keras.Input((None, 6), name="x")
    inner = keras.Model(inner_input, layers.Dense(6, activation="tanh")(shared(inner_input)))
    attended = AdditiveAttention(4)(*[inner(shared(x))] * 3)
    return keras.Model(x, {"out": layers.Dense(3)(shared(attended * 2))})


def build_static_shapes():
    q = keras.Input((2, 4), batch_size=3, name="queries")
    k = keras.Input((5, 4), batch_size=3, name="keys")
    lens = keras.Input((), batch_size=3, dtype="int32", name="valid_lens")
    return keras.Model([q, k, lens], DotProductAttention()(q, k, k, lens))


def build_sequential():
    return keras.Sequential([keras.Input((7,), name="features"), layers.Dense(3, activation="relu", name="out")])


def build_input_passed_through():
    x = keras.Input((None, 3), name="x")
    return keras.Model({"x": x}, {"x": x, "doubled": 2 * x})


def build_one_hot():
    digit = keras.Input((), dtype="int32", name="digit")
    return keras.Model(digit, layers.Dense(2, name="out")(keras.ops.one_hot(digit, 5)))


@keras.saving.register_keras_serializable("tests")
class TwoArguments(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = AdditiveAttention(4)
        self.head = layers.Dense(3)

    def call(self, q, kv, valid_lens=None, training=None):
        context, weights = self.attention(q, kv, kv, valid_lens, return_attention_scores=True, training=training)
        return {"logits": self.head(context), "weights": weights}


@keras.saving.register_keras_serializable("tests")
class OneMapping(keras.Model):
    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = DotProductAttention()

    def call(self, inputs):
        out = self.attention(inputs["left"], inputs["right"], inputs["right"])
        return [out, keras.ops.sum(out, axis=1)]


def draw_two_argument_samples():
    rng = np.random.default_rng(0)
    return {
        "q": rng.standard_normal((2, 3, 6)).astype("float32"),
        "kv": rng.standard_normal((2, 5, 4)),
        "valid_lens": np.array([2, 5]),
    }


def draw_mapping_samples():
    rng = np.random.default_rng(0)
    return {name: rng.standard_normal((2, size, 4)).astype("float32") for name, size in (("left", 3), ("right", 5))}


EXPORTED = {
    "additive": ExportCase(build_additive),
    "dict inputs and outputs": ExportCase(build_dict_inputs_and_outputs),
    "list outputs of one layer": ExportCase(build_list_outputs_of_one_layer),
    "per-query lengths": ExportCase(build_per_query_lengths),
    "boolean and causal mask": ExportCase(build_boolean_and_causal_mask),
    "every score": ExportCase(build_all_scores, attention=5),
    "every normalizer, and windows": ExportCase(build_all_normalizers_and_windows),
    "multiple heads": ExportCase(build_multiple_heads),
    "keys computed once": ExportCase(build_precomputed_keys),
    "reshaped after dense": ExportCase(build_reshaped_after_dense, attention=0),
    "masked softmax alone": ExportCase(build_masked_softmax_alone, attention=0),
    "implicit mask and encoders": ExportCase(build_implicit_mask_and_encoders),
    "gelu, norm, dropout, conv": ExportCase(build_gelu_norm_dropout_conv),
    "compiled with XLA": ExportCase(build_compiled_with_xla),
    "shared layer": ExportCase(build_shared_layer),
    "nested model": ExportCase(build_nested_model),
    "static shapes": ExportCase(build_static_shapes),
    "sequential": ExportCase(build_sequential, attention=0),
    "input passed through": ExportCase(build_input_passed_through, attention=0),
    "one-hot integers": ExportCase(build_one_hot, lambda: {"digit": np.array([0, 4, 2], "int32")}, attention=0),
    "subclass with two arguments": ExportCase(TwoArguments, draw_two_argument_samples),
    "subclass with one mapping": ExportCase(OneMapping, draw_mapping_samples),
}
