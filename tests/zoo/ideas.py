"""Architectures of no one field: sets, experts, latents, memories."""

from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

from .blocks import Learned, Positions, feed_forward, prepended
from .registry import HALF, IDS, architecture


@architecture()
def multiple_instances(bag=(None, 12)):
    """Ilse et al., 2018: Attention-based Deep Multiple Instance Learning, gated, eq. 9."""
    x = L.Dense(16, activation="relu")(bag)
    gated = L.Dense(8, activation="tanh", use_bias=False)(x) * L.Dense(8, activation="sigmoid", use_bias=False)(x)
    weights = ops.softmax(L.Dense(1, use_bias=False)(gated), axis=1)
    pooled = ops.sum(weights * x, axis=1)
    return {"classes": L.Dense(2, activation="softmax")(pooled), "weights": ops.squeeze(weights, -1)}


@architecture()
def perceiver(inputs=(None, 10)):
    """Jaegle et al., 2021: Perceiver, few latents that look at many inputs."""
    x = Positions(512)(L.Dense(16)(inputs))
    latents = Learned(6)(x)
    for _ in range(2):
        y = L.LayerNormalization()(latents)
        latents = latents + L.MultiHeadAttention(1, 16)(y, L.LayerNormalization()(x))
        latents = latents + feed_forward(L.LayerNormalization()(latents), 32)
        y = L.LayerNormalization()(latents)
        latents = latents + L.MultiHeadAttention(2, 8)(y, y)
    return {"classes": L.Dense(5)(L.GlobalAveragePooling1D()(latents))}


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
def deep_sets(elements=(None, 5)):
    """Zaheer et al., 2017: Deep Sets, a sum of what each element gives."""
    x = ops.sum(L.Dense(16, activation="elu")(L.Dense(16, activation="elu")(elements)), axis=1)
    return {"y": L.Dense(1)(L.Dense(12, activation="elu")(x))}


@architecture()
def set_transformer(elements=(None, 5)):
    """Lee et al., 2019: Set Transformer, induced attention and pooling by seeds."""
    x = L.Dense(16)(elements)
    points = L.MultiHeadAttention(2, 8)(Learned(4)(x), x)
    x = L.LayerNormalization()(x + L.MultiHeadAttention(2, 8)(x, points))
    pooled = L.MultiHeadAttention(2, 8)(Learned(2)(x), x)
    return {"modes": L.Dense(3)(pooled)}


class HyperDense(L.Layer):
    """A dense layer whose weights another network makes, for each sample (Ha et al., 2017)."""

    def call(self, x, weights):
        return ops.squeeze(ops.matmul(ops.expand_dims(x, 1), ops.reshape(weights, (-1, x.shape[-1], 4))), 1)


@architecture()
def hyper_network(x=(6,), context=(3,)):
    """Ha et al., 2017: HyperNetworks, weights made from the input."""
    weights = L.Dense(24)(L.Dense(12, activation="tanh")(context))
    return {"y": ops.tanh(HyperDense()(x, weights))}


@architecture()
def distilled_vision(image=(24, 24, 3)):
    """Touvron et al., 2021: DeiT, a class token and a token that learns from a teacher."""
    x = Positions(18)(prepended(L.Reshape((16, 16))(L.Conv2D(16, 6, strides=6)(image)), 2))
    y = L.LayerNormalization()(x)
    x = x + L.MultiHeadAttention(2, 8)(y, y)
    x = L.LayerNormalization()(x + feed_forward(L.LayerNormalization()(x), 32))
    return {"class": L.Dense(10)(x[:, 0]), "teacher": L.Dense(10)(x[:, 1])}


@architecture()
def gated_linear_attention(ids=IDS):
    """Katharopoulos et al., 2020: Transformers are RNNs, attention linear in the length, causal by running sums."""
    x = L.Embedding(90, 16)(ids)
    q, k, v = ops.elu(L.Dense(8)(x)) + 1, ops.elu(L.Dense(8)(x)) + 1, L.Dense(8)(x)
    sums = ops.cumsum(ops.expand_dims(k, -1) * ops.expand_dims(v, -2), axis=1)
    total = ops.sum(q * ops.cumsum(k, axis=1), -1, keepdims=True)
    y = ops.einsum("btd,btde->bte", q, sums) / (total + 1e-6)
    return {"next": L.Dense(90)(L.LayerNormalization()(x + L.Dense(16)(y)))}


@architecture()
def actor_and_critic(frames=(36, 36, 4)):
    """Mnih et al., 2016: Asynchronous Methods for Deep Reinforcement Learning, the actor and the critic."""
    x = L.Conv2D(8, 8, strides=4, activation="relu")(frames)
    x = L.Dense(32, activation="relu")(L.Flatten()(L.Conv2D(12, 4, strides=2, activation="relu")(x)))
    return {"policy": L.Dense(4, activation="softmax")(x), "value": L.Dense(1)(x)}
