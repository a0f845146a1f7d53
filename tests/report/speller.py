"""A small model of letters with attention weights, for tests of pages."""

import keras
import numpy as np

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention
from keras_attn_export import export_model

VOCABULARY = ["", "<unk>", *"abcdefg"]
LABELS = {"letters": VOCABULARY, "spelt": VOCABULARY}


def build_speller():
    """Return a model of letters: two heads of attention, and logits of a letter at each position."""
    letters = keras.Input((None,), dtype="int32", name="letters")
    lens = keras.Input((), dtype="int32", name="lens")
    initializer = keras.initializers.RandomNormal(stddev=2.0)  # the attention weights of a row differ
    x = keras.layers.Embedding(len(VOCABULARY), 8, initializer, name="embed")(letters)
    heads = MultiHeadAttention(DotProductAttention(), num_heads=2, name="heads")
    y, weights = heads(x, x, x, lens, return_attention_scores=True)
    context, look_weights = AdditiveAttention(4, name="look")(y, x, x, lens, return_attention_scores=True)
    scores = keras.layers.Dense(len(VOCABULARY), name="spelt")(context)
    return keras.Model([letters, lens], {"spelt": scores, "weights": weights, "looks": look_weights}, name="speller")


def export_speller(folder, **options):
    """Export the speller with two samples, the first of them padded."""
    keras.utils.set_random_seed(3)
    samples = {"letters": np.array([[2, 3, 4, 5, 0], [6, 7, 8, 2, 3]], "int32"), "lens": np.array([4, 5], "int32")}
    return export_model(build_speller(), folder, sample_inputs=samples, **options)
