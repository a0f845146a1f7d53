"""Text: classification, tagging, translation and language models."""

import keras
from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from .blocks import Positions, SinusoidalPositions, feed_forward, post_norm_block, pre_norm_block, prepend_class_token
from .registry import IDS, LOW_PRECISIONS, TEXT, architecture


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
    encoded = post_norm_block(SinusoidalPositions()(L.Rescaling(24.0**0.5)(x)), 3, 48)
    y = SinusoidalPositions()(L.Rescaling(24.0**0.5)(y))
    y = L.LayerNormalization()(y + L.MultiHeadAttention(3, 8)(y, y, use_causal_mask=True))
    y = L.LayerNormalization()(y + L.MultiHeadAttention(3, 8)(y, encoded))
    y = L.LayerNormalization()(y + feed_forward(y, 48, "relu"))
    return {"words": L.Dense(130, activation="softmax")(y)}


@architecture(precisions=LOW_PRECISIONS)
def transformer_classifier(ids=IDS):
    """Keras examples, Text classification with Transformer (Vaswani et al., 2017)."""
    x = L.Embedding(200, 24)(ids)
    x = post_norm_block(Positions()(x), 2, 32)
    x = L.Dropout(0.1)(L.Dense(20, activation="relu")(L.GlobalAveragePooling1D()(x)))
    return {"classes": L.Dense(2, activation="softmax")(x)}


@architecture(precisions=LOW_PRECISIONS)
def bidirectional_lstm(ids=IDS):
    """Graves and Schmidhuber, 2005: Bidirectional LSTM, two stacked layers, as in the Keras example on IMDB."""
    x = L.Embedding(200, 16)(ids)
    x = L.Bidirectional(L.LSTM(12, return_sequences=True))(x)
    x = L.Bidirectional(L.LSTM(12))(x)
    return {"positive": L.Dense(1, activation="sigmoid")(x)}


WORDS = "the a of and this is was it film movie good bad great poor plot i you not very grün 世界".split()  # noqa: SIM905


@architecture()
def text_convolutions(text=TEXT):
    """Kim, 2014: Convolutional Neural Networks for Sentence Classification, from raw texts."""
    ids = L.TextVectorization(vocabulary=WORDS, output_sequence_length=30)(text)
    x = L.Embedding(len(WORDS) + 2, 16)(ids)
    pooled = [L.GlobalMaxPooling1D()(L.Conv1D(12, size, activation="relu")(x)) for size in (3, 4, 5)]
    return {"positive": L.Dense(1, activation="sigmoid")(L.Dropout(0.5)(L.Concatenate()(pooled)))}


@architecture()
def bag_of_pairs(text=TEXT):
    """Wang and Manning, 2012: Baselines and Bigrams, words and pairs of words with TF-IDF weights."""
    pairs = [f"{first} {second}" for first, second in zip(WORDS[::3], WORDS[1::3], strict=False)]
    weights = [0.5 + 0.1 * index for index in range(len(WORDS) + len(pairs))]
    vectorize = L.TextVectorization(
        vocabulary=[*WORDS, *pairs], idf_weights=weights, ngrams=2, output_mode="tf_idf", name="counted"
    )
    return {"positive": L.Dense(1, activation="sigmoid")(vectorize(text))}


@architecture()
def letters(text=TEXT):
    """Zhang et al., 2015: Character-level Convolutional Networks for Text Classification."""
    vectorize = L.TextVectorization(
        split="character", vocabulary=[*"abcdefghijklmnopqrstuvwxyzäö '-"], output_sequence_length=60
    )
    x = L.Embedding(34, 12)(vectorize(text))
    for size in (7, 3):
        x = L.MaxPooling1D(3)(L.Conv1D(16, size, activation="relu")(x))
    return {"language": L.Dense(4, activation="softmax")(L.Dense(16, activation="relu")(L.Flatten()(x)))}


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
    """Huang et al., 2015: Bidirectional LSTM-CRF Models for Sequence Tagging, only the scores and the best tags."""
    x = L.Bidirectional(L.LSTM(10, return_sequences=True))(L.Embedding(120, 12, mask_zero=True)(ids))
    scores = L.Dense(7)(x)
    return {"scores": scores, "tags": ops.argmax(scores, -1)}


@architecture()
def character_words(letters=(None, 8, "int32")):
    """Kim et al., 2016: Character-Aware Neural Language Models, convolution over letters, highway layer, LSTM."""
    x = L.TimeDistributed(L.Conv1D(12, 3, activation="tanh"))(L.Embedding(40, 6)(letters))
    x = ops.max(x, axis=2)
    gate = L.Dense(12, activation="sigmoid", bias_initializer=keras.initializers.Constant(-2.0))(x)
    x = gate * L.Dense(12, activation="relu")(x) + (1 - gate) * x
    return {"next": L.Dense(50)(L.LSTM(12, return_sequences=True)(x))}


@architecture()
def masked_language_model(ids=IDS):
    """Devlin et al., 2019: BERT with a class token and masked padding; predicts words and the class."""
    is_token = ops.not_equal(ids, 0)
    x = Positions()(prepend_class_token(L.Embedding(140, 24)(ids)))
    mask = ops.concatenate([ops.ones_like(is_token[:, :1]), is_token], 1)
    for _ in range(2):
        x = post_norm_block(x, 2, 48, "gelu", attention_mask=ops.expand_dims(mask, 1))
    pooled = L.Dense(24, activation="tanh")(x[:, 0])
    return {"words": L.Dense(140)(x[:, 1:]), "class": L.Dense(2)(pooled)}


@architecture()
def gated_linear_attention(ids=IDS):
    """Katharopoulos et al., 2020: Transformers are RNNs, linear attention, causal by cumulative sums."""
    x = L.Embedding(90, 16)(ids)
    q, k, v = ops.elu(L.Dense(8)(x)) + 1, ops.elu(L.Dense(8)(x)) + 1, L.Dense(8)(x)
    numerators = ops.cumsum(ops.expand_dims(k, -1) * ops.expand_dims(v, -2), axis=1)
    denominator = ops.sum(q * ops.cumsum(k, axis=1), -1, keepdims=True)
    y = ops.einsum("btd,btde->bte", q, numerators) / (denominator + 1e-6)
    return {"next": L.Dense(90)(L.LayerNormalization()(x + L.Dense(16)(y)))}
