"""Text: classes, tags, translations and next words."""

import keras
from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from .blocks import Positions, Waves, feed_forward, post_norm_block, pre_norm_block, prepended
from .images import FourierMix
from .registry import HALF, IDS, architecture


@architecture()
def lstm_translation(source=(None, 20), target=(None, 24)):
    """Sutskever et al., 2014: Sequence to Sequence Learning, LSTM encoder and decoder over characters."""
    _, *state = L.LSTM(16, return_state=True)(source)
    decoded = L.LSTM(16, return_sequences=True)(target, initial_state=state)
    return {"characters": L.Dense(24, activation="softmax")(decoded)}


@architecture()
def gru_translation(source=IDS, target=IDS):
    """Cho et al., 2014: Learning Phrase Representations using RNN Encoder-Decoder, with padded sources."""
    state = L.Bidirectional(L.GRU(12), merge_mode="sum")(L.Embedding(80, 12, mask_zero=True)(source))
    decoded = L.GRU(12, return_sequences=True)(L.Embedding(90, 12)(target), initial_state=state)
    return {"words": L.Dense(90)(decoded)}


@architecture()
def transformer_translation(source=IDS, target=IDS):
    """Vaswani et al., 2017: Attention Is All You Need, encoder and decoder with teacher forcing."""
    x = L.Embedding(120, 24)(source)
    y = L.Embedding(130, 24)(target)
    seen = post_norm_block(Waves()(L.Rescaling(24.0**0.5)(x)), 3, 48)
    y = Waves()(L.Rescaling(24.0**0.5)(y))
    y = L.LayerNormalization()(y + L.MultiHeadAttention(3, 8)(y, y, use_causal_mask=True))
    y = L.LayerNormalization()(y + L.MultiHeadAttention(3, 8)(y, seen))
    y = L.LayerNormalization()(y + feed_forward(y, 48, "relu"))
    return {"words": L.Dense(130, activation="softmax")(y)}


@architecture(precisions=HALF)
def transformer_classifier(ids=IDS):
    """Keras examples, Text classification with Transformer (Vaswani et al., 2017)."""
    x = L.Embedding(200, 24)(ids)
    x = post_norm_block(Positions()(x), 2, 32)
    x = L.Dropout(0.1)(L.Dense(20, activation="relu")(L.GlobalAveragePooling1D()(x)))
    return {"classes": L.Dense(2, activation="softmax")(x)}


@architecture(precisions=HALF)
def bidirectional_lstm(ids=IDS):
    """Graves and Schmidhuber, 2005: Bidirectional LSTM, two on top of each other, as in the Keras example on IMDB."""
    x = L.Embedding(200, 16)(ids)
    x = L.Bidirectional(L.LSTM(12, return_sequences=True))(x)
    x = L.Bidirectional(L.LSTM(12))(x)
    return {"positive": L.Dense(1, activation="sigmoid")(x)}


@architecture()
def fourier_text(ids=IDS):
    """Lee-Thorp et al., 2022: FNet, Mixing Tokens with Fourier Transforms."""
    x = L.Embedding(150, 16)(ids)
    x = Positions()(x)
    for _ in range(2):
        x = L.LayerNormalization()(x + FourierMix()(x))
        x = L.LayerNormalization()(x + feed_forward(x, 32, "relu"))
    return {"positive": L.Dense(1, activation="sigmoid")(L.GlobalAveragePooling1D()(x))}


@architecture()
def convolutional_text(ids=IDS):
    """Kim, 2014: Convolutional Neural Networks for Sentence Classification."""
    x = L.Embedding(200, 16)(ids)
    pooled = [L.GlobalMaxPooling1D()(L.Conv1D(12, size, padding="same", activation="relu")(x)) for size in (3, 4, 5)]
    return {"classes": L.Dense(4, activation="softmax")(L.Dropout(0.5)(L.Concatenate()(pooled)))}


@architecture()
def bag_of_words(ids=IDS):
    """Joulin et al., 2017: Bag of Tricks for Efficient Text Classification (fastText), padding left out of the mean."""
    x = L.GlobalAveragePooling1D()(L.Embedding(300, 16, mask_zero=True)(ids))
    return {"classes": L.Dense(5, activation="softmax")(x)}


@architecture()
def miniature_gpt(ids=IDS):
    """Radford et al., 2018: Improving Language Understanding by Generative Pre-Training."""
    x = L.Embedding(150, 24)(ids)
    x = Positions()(x)
    for _ in range(2):
        x = pre_norm_block(x, 3, 48, use_causal_mask=True)
    return {"next": L.Dense(150)(x)}


@architecture()
def entity_tagger(ids=IDS):
    """Huang et al., 2015: Bidirectional LSTM-CRF Models for Sequence Tagging, the scores and the best tags alone."""
    x = L.Bidirectional(L.LSTM(10, return_sequences=True))(L.Embedding(120, 12, mask_zero=True)(ids))
    scores = L.Dense(7)(x)
    return {"scores": scores, "tags": ops.argmax(scores, -1)}


@architecture()
def character_language_model(ids=IDS):
    """Karpathy, 2015: Character-level text generation, two GRU layers with their states as outputs."""
    x = L.Embedding(60, 12)(ids)
    x, first = L.GRU(16, return_sequences=True, return_state=True)(x)
    x, second = L.GRU(16, return_sequences=True, return_state=True)(x)
    return {"next": L.Dense(60)(x), "first": first, "second": second}


@architecture()
def character_words(letters=(None, 8, "int32")):
    """Kim et al., 2016: Character-Aware Neural Language Models, convolution over letters, a highway, an LSTM."""
    x = L.TimeDistributed(L.Conv1D(12, 3, activation="tanh"))(L.Embedding(40, 6)(letters))
    x = ops.max(x, axis=2)
    gate = L.Dense(12, activation="sigmoid", bias_initializer=keras.initializers.Constant(-2.0))(x)
    x = gate * L.Dense(12, activation="relu")(x) + (1 - gate) * x
    return {"next": L.Dense(50)(L.LSTM(12, return_sequences=True)(x))}


@architecture()
def masked_language_model(ids=IDS):
    """Devlin et al., 2019: BERT, a class token, padding masked, the words and the class."""
    real = ops.not_equal(ids, 0)
    x = Positions()(prepended(L.Embedding(140, 24)(ids)))
    seen = ops.concatenate([ops.ones_like(real[:, :1]), real], 1)
    for _ in range(2):
        x = post_norm_block(x, 2, 48, "gelu", attention_mask=ops.expand_dims(seen, 1))
    pooled = L.Dense(24, activation="tanh")(x[:, 0])
    return {"words": L.Dense(140)(x[:, 1:]), "class": L.Dense(2)(pooled)}


@architecture()
def story_memory(story=IDS, question=(4, "int32")):
    """Sukhbaatar et al., 2015: End-To-End Memory Networks, as in the Keras example on bAbI."""
    asked = L.Embedding(50, 12)(question)
    match = L.Softmax()(L.Dot(2)([L.Embedding(50, 12)(story), asked]))
    response = ops.swapaxes(match, 1, 2) @ L.Embedding(50, 12)(story)
    answer = L.LSTM(16)(L.Concatenate()([response, asked]))
    return {"answer": L.Dense(50, activation="softmax")(answer)}


@architecture()
def question_answering(passage=IDS, question=IDS):
    """Seo et al., 2017: Bidirectional Attention Flow, spans in a passage."""
    table, encode = L.Embedding(100, 12), L.Bidirectional(L.LSTM(8, return_sequences=True))
    p, q = encode(table(passage)), encode(table(question))
    scores = ops.matmul(L.Dense(16)(p), ops.swapaxes(q, 1, 2))
    attended = ops.matmul(ops.softmax(scores), q)
    back = ops.matmul(ops.expand_dims(ops.softmax(ops.max(scores, -1)), 1), p)
    x = L.Bidirectional(L.LSTM(8, return_sequences=True))(L.Concatenate()([p, attended, p * attended, p * back]))
    return {end: ops.squeeze(L.Dense(1)(x), -1) for end in ("start", "end")}
