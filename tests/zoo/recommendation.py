"""Recommendation from ids of users and of chosen items."""

from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

from .blocks import Positions, feed_forward
from .registry import ID, IDS, LOW_PRECISIONS, architecture


@architecture(precisions=LOW_PRECISIONS)
def two_towers(user=ID, item=ID):
    """Yi et al., 2019: Sampling-Bias-Corrected Neural Modeling, two towers and their product."""
    user_vector = L.Dense(16)(L.Dense(24, activation="relu")(L.Embedding(300, 16)(user)))
    item_vector = L.Dense(16)(L.Dense(24, activation="relu")(L.Embedding(500, 16)(item)))
    return {"score": L.Dot(-1, normalize=True)([user_vector, item_vector])}


@architecture()
def deep_learning_recommendation(numbers=(6,), category_0=ID, category_1=ID, category_2=ID):
    """Naumov et al., 2019: DLRM, products of all pairs of vectors."""
    vectors = [L.Dense(8, activation="relu")(L.Dense(16, activation="relu")(numbers))]
    vectors += [L.Embedding(50, 8)(category_0), L.Embedding(60, 8)(category_1), L.Embedding(70, 8)(category_2)]
    products = [L.Dot(-1)([a, b]) for index, a in enumerate(vectors) for b in vectors[:index]]
    x = L.Dense(16, activation="relu")(L.Concatenate()([vectors[0], *products]))
    return {"click": L.Dense(1, activation="sigmoid")(x)}


@architecture()
def self_attentive_recommendation(history=IDS):
    """Kang and McAuley, 2018: Self-Attentive Sequential Recommendation (SASRec), scores of all items."""
    table = L.Embedding(200, 16)
    x = Positions()(L.Rescaling(4.0)(table(history)))
    for _ in range(2):
        y = L.LayerNormalization()(x)
        x = x + L.MultiHeadAttention(1, 16)(y, x, use_causal_mask=True)
        x = x + feed_forward(L.LayerNormalization()(x), 16, "relu")
    x = L.LayerNormalization()(x)[:, -1]
    return {"scores": ops.matmul(x, ops.transpose(table(ops.arange(200))))}


@architecture()
def session_gru(session=IDS):
    """Hidasi et al., 2016: Session-based Recommendations with Recurrent Neural Networks (GRU4Rec), ten best items."""
    x = L.GRU(16)(L.Embedding(150, 16, mask_zero=True)(session))
    scores = L.Dense(150)(x)
    values, items = ops.top_k(scores, 10)
    return {"scores": scores, "best": items, "best_scores": values}
