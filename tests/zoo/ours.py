"""Architectures with the layers of keras_attn."""

import keras
from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention

from .blocks import Waves, conv_block, feed_forward
from .registry import HALF, architecture


def lengths(name="valid_lens"):
    return keras.Input((), dtype="int32", name=name)


@architecture(auto=True, precisions=HALF, seeded=True)
def aligned_translation():
    """Bahdanau et al., 2015: Neural Machine Translation by Jointly Learning to Align and Translate."""
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    lens = lengths("source_lens")
    seen, state = L.GRU(16, return_sequences=True, return_state=True)(L.Embedding(90, 12)(source))
    asked = L.GRU(16, return_sequences=True)(L.Embedding(80, 12)(target), initial_state=state)
    context, weights = AdditiveAttention(12)(asked, seen, seen, lens, return_attention_scores=True)
    words = L.Dense(80)(L.Concatenate()([asked, context]))
    return keras.Model([source, target, lens], {"words": words, "alignment": weights})


@architecture(auto=True, seeded=True)
def transformer_with_lengths():
    """Vaswani et al., 2017: Attention Is All You Need, padding told by lengths."""
    source, target = (keras.Input((None,), dtype="int32", name=name) for name in ("source", "target"))
    lens = lengths("source_lens")
    x = Waves()(L.Embedding(100, 16)(source))
    x = L.LayerNormalization()(x + MultiHeadAttention(DotProductAttention(), 2)(x, x, x, lens))
    x = L.LayerNormalization()(x + feed_forward(x, 32, "relu"))
    y = Waves()(L.Embedding(110, 16)(target))
    y = L.LayerNormalization()(y + MultiHeadAttention(DotProductAttention(), 2)(y, y, y, use_causal_mask=True))
    y = L.LayerNormalization()(y + MultiHeadAttention(DotProductAttention(), 2)(y, x, x, lens))
    return keras.Model([source, target, lens], {"words": L.Dense(110)(L.LayerNormalization()(y + feed_forward(y, 32)))})


@architecture(auto=True)
def show_attend_and_tell():
    """Xu et al., 2015: Show, Attend and Tell, soft attention over the places of an image."""
    image, caption = keras.Input((24, 24, 3), name="image"), keras.Input((None,), dtype="int32", name="caption")
    places = L.Reshape((36, 16))(conv_block(conv_block(image, 8, strides=2), 16, strides=2))
    start = [L.Dense(16, activation="tanh")(ops.mean(places, axis=1)) for _ in range(2)]
    states = L.LSTM(16, return_sequences=True)(L.Embedding(70, 12)(caption), initial_state=start)
    seen, weights = AdditiveAttention(12)(states, places, places, return_attention_scores=True)
    words = L.Dense(70)(ops.tanh(states + L.Dense(16, activation="sigmoid")(states) * seen))
    return keras.Model([image, caption], {"words": words, "places": weights})


class Seed(L.Layer):
    """One learned query for each sample."""

    def build(self, input_shape):
        self.query = self.add_weight((1, 1, input_shape[-1]), initializer="random_normal", name="query")

    def call(self, x):
        return ops.broadcast_to(self.query, (ops.shape(x)[0], 1, x.shape[-1]))


@architecture(auto=True, seeded=True)
def attentive_classifier():
    """Yang et al., 2016: Hierarchical Attention Networks, the words of a sentence weighed by a learned query."""
    ids, lens = keras.Input((None,), dtype="int32", name="ids"), lengths()
    x = L.Bidirectional(L.GRU(8, return_sequences=True))(L.Embedding(120, 12)(ids))
    pooled, weights = AdditiveAttention(10)(Seed()(x), x, x, lens, return_attention_scores=True)
    outputs = {"classes": L.Dense(4, activation="softmax")(pooled[:, 0]), "weights": weights[:, 0]}
    return keras.Model([ids, lens], outputs)


@architecture(auto=True, precisions=HALF)
def speller():
    """Chan et al., 2016: Listen, Attend and Spell, frames joined two by two, lengths halved as they are."""
    features, letters = keras.Input((None, 12), name="features"), keras.Input((None,), dtype="int32", name="letters")
    heard = L.Conv1D(16, 2, strides=2, padding="same", activation="tanh")(features)
    heard = L.Bidirectional(L.LSTM(8, return_sequences=True))(heard)
    asked = L.LSTM(16, return_sequences=True)(L.Embedding(30, 8)(letters))
    context = DotProductAttention()(L.Dense(16)(asked), L.Dense(16)(heard), heard)
    return keras.Model([features, letters], {"next": L.Dense(30)(L.Concatenate()([asked, context]))})


@architecture(auto=True)
def interest_network():
    """Zhou et al., 2018: Deep Interest Network, what was chosen before weighed by what is offered."""
    history, offered = (
        keras.Input((None,), dtype="int32", name="history"),
        keras.Input((), dtype="int32", name="offered"),
    )
    lens, table = lengths(), L.Embedding(150, 12)
    seen, item = table(history), table(offered)
    interest = AdditiveAttention(16)(ops.expand_dims(item, 1), seen, seen, lens)[:, 0]
    x = L.PReLU()(L.Dense(16)(L.Concatenate()([interest, item, interest * item])))
    return keras.Model([history, offered, lens], {"click": L.Dense(1, activation="sigmoid")(x)})


@architecture(auto=True)
def matching_network():
    """Vinyals et al., 2016: Matching Networks for One Shot Learning, labels of the examples that are alike."""
    examples, labels = keras.Input((None, 8), name="examples"), keras.Input((None, 5), name="labels")
    queries, embed = keras.Input((None, 8), name="queries"), L.Dense(12, activation="tanh")
    classes = DotProductAttention(scale=1.0)(embed(queries), embed(examples), labels)
    return keras.Model([queries, examples, labels], {"classes": classes})


@architecture(auto=True)
def set_pooling():
    """Lee et al., 2019: Set Transformer, pooling by multi-head attention with a learned seed, over padded sets."""
    elements, lens = keras.Input((None, 6), name="elements"), lengths()
    x = L.Dense(16, activation="relu")(elements)
    x = L.LayerNormalization()(x + MultiHeadAttention(DotProductAttention(), 4)(x, x, x, lens))
    pooled = MultiHeadAttention(AdditiveAttention(6), 2)(Seed()(x), x, x, lens)
    return keras.Model([elements, lens], {"y": L.Dense(2)(pooled[:, 0])})


@architecture(auto=True)
def kernel_regression():
    """Nadaraya, 1964, and Watson, 1964: regression by weights that are attention over the training points."""
    queries, keys, values = (keras.Input((None, size), name=name) for name, size in (("x", 2), ("seen", 2), ("y", 1)))
    lens = lengths()
    features = L.Dense(8, activation="tanh")
    out, weights = DotProductAttention()(features(queries), features(keys), values, lens, return_attention_scores=True)
    return keras.Model([queries, keys, values, lens], {"regression": out, "weights": weights})


@architecture(auto=True, seeded=True)
def causal_language_model():
    """Radford et al., 2019: GPT-2, heads of additive and of dot-product attention, the past alone seen."""
    ids = keras.Input((None,), dtype="int32", name="ids")
    x = Waves()(L.Embedding(100, 16)(ids))
    for score in (DotProductAttention(), AdditiveAttention(8)):
        y = L.LayerNormalization()(x)
        x = x + MultiHeadAttention(score, 2)(y, y, y, use_causal_mask=True)
        x = x + feed_forward(L.LayerNormalization()(x), 32)
    return keras.Model(ids, {"next": L.Dense(100)(L.LayerNormalization()(x))})
