"""Architectures with attention layers of keras_attn."""

from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention

from .blocks import LearnedToken, SinusoidalPositions, feed_forward
from .registry import ID, IDS, LOW_PRECISIONS, architecture


@architecture(precisions=LOW_PRECISIONS)
def aligned_translation(source=IDS, target=IDS, source_lens=ID):
    """Bahdanau et al., 2015: Neural Machine Translation by Jointly Learning to Align and Translate."""
    encoded, state = L.GRU(16, return_sequences=True, return_state=True)(L.Embedding(90, 12)(source))
    queries = L.GRU(16, return_sequences=True)(L.Embedding(80, 12)(target), initial_state=state)
    context, weights = AdditiveAttention(12)(queries, encoded, encoded, source_lens, return_attention_scores=True)
    words = L.Dense(80)(L.Concatenate()([queries, context]))
    return {"words": words, "alignment": weights}


@architecture(precisions=LOW_PRECISIONS)
def speller(features=(None, 12), letters=IDS):
    """Chan et al., 2016: Listen, Attend and Spell, with pairs of frames joined and lengths halved."""
    encoded = L.Conv1D(16, 2, strides=2, padding="same", activation="tanh")(features)
    encoded = L.Bidirectional(L.LSTM(8, return_sequences=True))(encoded)
    queries = L.LSTM(16, return_sequences=True)(L.Embedding(30, 8)(letters))
    context = DotProductAttention()(L.Dense(16)(queries), L.Dense(16)(encoded), encoded)
    return {"next": L.Dense(30)(L.Concatenate()([queries, context]))}


@architecture()
def interest_network(history=IDS, offered=ID, valid_lens=ID):
    """Zhou et al., 2018: Deep Interest Network, past choices weighted by the item on offer."""
    table = L.Embedding(150, 12)
    choices, item = table(history), table(offered)
    interest = AdditiveAttention(16)(ops.expand_dims(item, 1), choices, choices, valid_lens)[:, 0]
    x = L.PReLU()(L.Dense(16)(L.Concatenate()([interest, item, interest * item])))
    return {"click": L.Dense(1, activation="sigmoid")(x)}


@architecture()
def set_pooling(elements=(None, 6), valid_lens=ID):
    """Lee et al., 2019: Set Transformer, pooling by multi-head attention with a learned seed, over padded sets."""
    x = L.Dense(16, activation="relu")(elements)
    x = L.LayerNormalization()(x + MultiHeadAttention(DotProductAttention(), 4)(x, x, x, valid_lens))
    pooled = MultiHeadAttention(AdditiveAttention(6), 2)(LearnedToken()(x), x, x, valid_lens)
    return {"y": L.Dense(2)(pooled[:, 0])}


@architecture()
def causal_language_model(ids=IDS):
    """Radford et al., 2019: GPT-2, causal, with heads of additive and of dot-product attention."""
    x = SinusoidalPositions()(L.Embedding(100, 16)(ids))
    for score in (DotProductAttention(), AdditiveAttention(8)):
        y = L.LayerNormalization()(x)
        x = x + MultiHeadAttention(score, 2)(y, y, y, use_causal_mask=True)
        x = x + feed_forward(L.LayerNormalization()(x), 32)
    return {"next": L.Dense(100)(L.LayerNormalization()(x))}
