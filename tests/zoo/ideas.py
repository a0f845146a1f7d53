"""Architectures of no one field: sets, experts, latents, memories."""

from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from .registry import HALF, IDS, architecture


@architecture(precisions=HALF)
def mixture_of_experts(x=(8,)):
    """Jacobs et al., 1991: Adaptive Mixtures of Local Experts, all of them weighed."""
    gates = L.Dense(4, activation="softmax")(x)
    hidden = L.EinsumDense("bd,edh->beh", output_shape=(4, 12), bias_axes="eh", activation="relu")(x)
    experts = L.EinsumDense("beh,eho->beo", output_shape=(4, 3), bias_axes="eo")(hidden)
    return {"y": ops.einsum("be,beo->bo", gates, experts), "gates": gates}


@architecture()
def switch_transformer(ids=IDS):
    """Fedus et al., 2022: Switch Transformers, each word to the one expert with the highest gate, all computed."""
    x = L.Embedding(120, 16)(ids)
    x = L.LayerNormalization()(x + L.MultiHeadAttention(2, 8)(x, x))
    gates = L.Dense(4, activation="softmax")(x)
    chosen = ops.one_hot(ops.argmax(gates, -1), 4) * gates
    hidden = L.EinsumDense("btd,edh->bteh", output_shape=(None, 4, 24), bias_axes="eh", activation="relu")(x)
    experts = L.EinsumDense("bteh,ehd->bted", output_shape=(None, 4, 16), bias_axes="ed")(hidden)
    x = L.LayerNormalization()(x + ops.einsum("bte,bted->btd", chosen, experts))
    return {"classes": L.Dense(2, activation="softmax")(L.GlobalAveragePooling1D()(x))}


@architecture()
def gated_linear_attention(ids=IDS):
    """Katharopoulos et al., 2020: Transformers are RNNs, attention linear in the length, causal by running sums."""
    x = L.Embedding(90, 16)(ids)
    q, k, v = ops.elu(L.Dense(8)(x)) + 1, ops.elu(L.Dense(8)(x)) + 1, L.Dense(8)(x)
    sums = ops.cumsum(ops.expand_dims(k, -1) * ops.expand_dims(v, -2), axis=1)
    total = ops.sum(q * ops.cumsum(k, axis=1), -1, keepdims=True)
    y = ops.einsum("btd,btde->bte", q, sums) / (total + 1e-6)
    return {"next": L.Dense(90)(L.LayerNormalization()(x + L.Dense(16)(y)))}
