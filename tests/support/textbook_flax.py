"""The textbook's layers in Flax, written anew; each function returns a state and what runs the layer."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn


def masked_softmax(scores, valid_lens):
    if valid_lens is not None:
        lengths = valid_lens.reshape(len(scores), -1, 1)
        scores = jnp.where(jnp.arange(scores.shape[-1]) < lengths, scores, -1e6)
    return nn.softmax(scores, -1)


class AdditiveAttention(nn.Module):
    U: int

    def setup(self):
        self.W_k = nn.Dense(self.U, use_bias=False)
        self.W_q = nn.Dense(self.U, use_bias=False)
        self.w_v = nn.Dense(1, use_bias=False)

    def __call__(self, queries, keys, values, valid_lens):
        features = nn.tanh(self.W_q(queries)[:, :, None] + self.W_k(keys)[:, None])
        return masked_softmax(self.w_v(features)[..., 0], valid_lens) @ values


class DotProductAttention(nn.Module):
    def __call__(self, queries, keys, values, valid_lens):
        scores = queries @ keys.swapaxes(1, 2) / queries.shape[-1] ** 0.5
        return masked_softmax(scores, valid_lens) @ values


class MultiHeadAttention(nn.Module):
    hidden: int
    heads: int
    bias: bool

    def setup(self):
        self.attention = DotProductAttention()
        self.W_q, self.W_k, self.W_v, self.W_o = (nn.Dense(self.hidden, use_bias=self.bias) for _ in range(4))

    def __call__(self, queries, keys, values, valid_lens):
        def split(inputs):
            return jnp.concatenate(jnp.split(inputs, self.heads, -1))

        lengths = None if valid_lens is None else jnp.concatenate([valid_lens] * self.heads)
        pooled = self.attention(*map(split, (self.W_q(queries), self.W_k(keys), self.W_v(values))), lengths)
        return self.W_o(jnp.concatenate(jnp.split(pooled, self.heads), -1))


def _runs(module, random, *sizes):
    inputs = [np.zeros((1, 2, size), "float32") for size in sizes]
    variables = jax.eval_shape(module.init, jax.random.key(0), *inputs, None)
    variables = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape) / 2, "float32"), variables)

    def run(*inputs):
        with jax.default_matmul_precision("highest"):
            return np.asarray(module.apply(variables, *inputs))

    return variables, run


def additive(random, Dq, Dk, U):
    return _runs(AdditiveAttention(U), random, Dq, Dk, 1)


def dot_product(random):
    return _runs(DotProductAttention(), random, 1, 1, 1)


def multi_head(random, Dq, Dk, Dv, hidden, heads, bias):
    return _runs(MultiHeadAttention(hidden, heads, bias), random, Dq, Dk, Dv)


class OwnMultiHead(nn.Module):
    heads: int
    hidden: int
    out: int
    bias: bool

    def setup(self):
        self.own = nn.MultiHeadDotProductAttention(
            self.heads, qkv_features=self.hidden, out_features=self.out, use_bias=self.bias
        )

    def __call__(self, queries, keys, values, valid_lens):
        mask = None
        if valid_lens is not None:
            mask = (jnp.arange(keys.shape[1]) < valid_lens.reshape(len(keys), -1, 1))[:, None]
        return self.own(queries, keys, values, mask=mask)


def own_multi_head(random, Dq, Dk, Dv, heads, hidden, out, bias):
    """`flax.linen.MultiHeadDotProductAttention`, with `own` before its names."""
    return _runs(OwnMultiHead(heads, hidden, out, bias), random, Dq, Dk, Dv)
