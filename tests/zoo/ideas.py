"""Architectures of no one field: sets, experts, latents, memories."""

from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from .registry import HALF, IDS, architecture


@architecture()
def multiple_instances(bag=(None, 12)):
    """Ilse et al., 2018: Attention-based Deep Multiple Instance Learning, gated, eq. 9."""
    x = L.Dense(16, activation="relu")(bag)
    gated = L.Dense(8, activation="tanh", use_bias=False)(x) * L.Dense(8, activation="sigmoid", use_bias=False)(x)
    weights = ops.softmax(L.Dense(1, use_bias=False)(gated), axis=1)
    pooled = ops.sum(weights * x, axis=1)
    return {"classes": L.Dense(2, activation="softmax")(pooled), "weights": ops.squeeze(weights, -1)}


@architecture(precisions=HALF)
def mixture_of_experts(x=(8,)):
    """Jacobs et al., 1991: Adaptive Mixtures of Local Experts, all of them weighed."""
    gates = L.Dense(4, activation="softmax")(x)
    hidden = L.EinsumDense("bd,edh->beh", output_shape=(4, 12), bias_axes="eh", activation="relu")(x)
    experts = L.EinsumDense("beh,eho->beo", output_shape=(4, 3), bias_axes="eo")(hidden)
    return {"y": ops.einsum("be,beo->bo", gates, experts), "gates": gates}


@architecture()
def gated_linear_attention(ids=IDS):
    """Katharopoulos et al., 2020: Transformers are RNNs, attention linear in the length, causal by running sums."""
    x = L.Embedding(90, 16)(ids)
    q, k, v = ops.elu(L.Dense(8)(x)) + 1, ops.elu(L.Dense(8)(x)) + 1, L.Dense(8)(x)
    sums = ops.cumsum(ops.expand_dims(k, -1) * ops.expand_dims(v, -2), axis=1)
    total = ops.sum(q * ops.cumsum(k, axis=1), -1, keepdims=True)
    y = ops.einsum("btd,btde->bte", q, sums) / (total + 1e-6)
    return {"next": L.Dense(90)(L.LayerNormalization()(x + L.Dense(16)(y)))}
