"""Recommendations, from ids of users and of what they chose."""

import keras
from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from .blocks import Positions, feed_forward, post_norm_block
from .registry import HALF, architecture


def user_and_item():
    return keras.Input((), dtype="int32", name="user"), keras.Input((), dtype="int32", name="item")


@architecture(precisions=HALF, seeded=True)
def two_towers():
    """Yi et al., 2019: Sampling-Bias-Corrected Neural Modeling, two towers and their product."""
    user, item = user_and_item()
    left = L.Dense(16)(L.Dense(24, activation="relu")(L.Embedding(300, 16)(user)))
    right = L.Dense(16)(L.Dense(24, activation="relu")(L.Embedding(500, 16)(item)))
    return keras.Model([user, item], {"score": L.Dot(-1, normalize=True)([left, right])})


@architecture(seeded=True)
def collaborative_filtering():
    """Koren et al., 2009: Matrix Factorization Techniques, with a bias for each user and item."""
    user, item = user_and_item()
    dot = L.Dot(-1)([L.Embedding(300, 16)(user), L.Embedding(500, 16)(item)])
    return keras.Model(
        [user, item], {"liked": ops.sigmoid(dot + L.Embedding(300, 1)(user) + L.Embedding(500, 1)(item))}
    )


@architecture()
def neural_collaborative_filtering():
    """He et al., 2017: Neural Collaborative Filtering (NeuMF)."""
    user, item = user_and_item()
    product = L.Embedding(300, 8)(user) * L.Embedding(500, 8)(item)
    x = L.Concatenate()([L.Embedding(300, 8)(user), L.Embedding(500, 8)(item)])
    for units in (16, 8):
        x = L.Dense(units, activation="relu")(x)
    return keras.Model([user, item], {"liked": L.Dense(1, activation="sigmoid")(L.Concatenate()([product, x]))})


@architecture(seeded=True)
def behavior_sequence():
    """Chen et al., 2019: Behavior Sequence Transformer, as in the Keras example on movies."""
    history = keras.Input((7,), dtype="int32", name="movies")
    ratings, target = keras.Input((7,), name="ratings"), keras.Input((), dtype="int32", name="target")
    table = L.Embedding(400, 16)
    seen = Positions(7)(table(history)) * ops.expand_dims(ratings, -1)
    x = L.Concatenate(axis=1)([seen, ops.expand_dims(table(target), 1)])
    x = L.Flatten()(post_norm_block(x, 2, 32, "leaky_relu"))
    for units in (24, 12):
        x = L.LeakyReLU()(L.BatchNormalization()(L.Dense(units)(x)))
    return keras.Model([history, ratings, target], {"rating": L.Dense(1)(x)})


@architecture()
def deep_learning_recommendation():
    """Naumov et al., 2019: DLRM, products of all pairs of vectors."""
    numbers = keras.Input((6,), name="numbers")
    categories = [keras.Input((), dtype="int32", name=f"category_{index}") for index in range(3)]
    vectors = [L.Dense(8, activation="relu")(L.Dense(16, activation="relu")(numbers))]
    vectors += [L.Embedding(50 + 10 * index, 8)(each) for index, each in enumerate(categories)]
    pairs = [L.Dot(-1)([a, b]) for index, a in enumerate(vectors) for b in vectors[:index]]
    x = L.Dense(16, activation="relu")(L.Concatenate()([vectors[0], *pairs]))
    return keras.Model([numbers, *categories], {"click": L.Dense(1, activation="sigmoid")(x)})


@architecture(seeded=True)
def self_attentive_recommendation():
    """Kang and McAuley, 2018: Self-Attentive Sequential Recommendation (SASRec), scores of all items."""
    history = keras.Input((None,), dtype="int32", name="history")
    table = L.Embedding(200, 16)
    x = Positions()(L.Rescaling(4.0)(table(history)))
    for _ in range(2):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(1, 16)(y, x, use_causal_mask=True)
        x = x + feed_forward(L.LayerNormalization()(x), 16, "relu")
    x = L.LayerNormalization()(x)[:, -1]
    return keras.Model(history, {"scores": ops.matmul(x, ops.transpose(table(ops.arange(200))))})


@architecture()
def factorization_machine():
    """Guo et al., 2017: DeepFM, pairs by the square of the sum less the sum of the squares."""
    fields = keras.Input((6,), dtype="int32", name="fields")
    vectors = L.Embedding(120, 8)(fields)
    pairs = 0.5 * ops.sum(ops.square(ops.sum(vectors, 1)) - ops.sum(ops.square(vectors), 1), -1, keepdims=True)
    deep = L.Dense(1)(L.Dense(16, activation="relu")(L.Flatten()(vectors)))
    return keras.Model(fields, {"click": ops.sigmoid(pairs + deep + ops.sum(L.Embedding(120, 1)(fields), 1))})


@architecture()
def session_gru():
    """Hidasi et al., 2016: Session-based Recommendations with Recurrent Neural Networks (GRU4Rec), the best ten."""
    session = keras.Input((None,), dtype="int32", name="session")
    x = L.GRU(16)(L.Embedding(150, 16, mask_zero=True)(session))
    scores = L.Dense(150)(x)
    values, items = ops.top_k(scores, 10)
    return keras.Model(session, {"scores": scores, "best": items, "best_scores": values})
