"""The textbook's layers in Flax; each function returns a state and a function that runs the layer."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from textbook_numpy import build_textbook_layers


def _build_layer(module, random, *sizes):
    inputs = [np.zeros((1, 2, size), "float32") for size in sizes]
    variables = jax.eval_shape(module.init, jax.random.key(0), *inputs)
    variables = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape) / 2, "float32"), variables)

    def run(*inputs):
        with jax.default_matmul_precision("highest"):
            return np.asarray(module.apply(variables, *inputs))

    return variables, run


def _dense(random, bias, **sizes):
    layers = {name: _build_layer(nn.Dense(out, use_bias=bias), random, size) for name, (size, out) in sizes.items()}
    state = {"params": {name: variables["params"] for name, (variables, _) in layers.items()}}
    return state, {name: run for name, (_, run) in layers.items()}


additive, multi_head = build_textbook_layers(_dense)


class OwnMultiHead(nn.Module):
    heads: int
    hidden: int
    out: int
    bias: bool

    def setup(self):
        self.own = nn.MultiHeadDotProductAttention(
            self.heads, qkv_features=self.hidden, out_features=self.out, use_bias=self.bias
        )

    def __call__(self, queries, keys, values, valid_lens=None):
        mask = None
        if valid_lens is not None:
            mask = (jnp.arange(keys.shape[1]) < valid_lens.reshape(len(keys), -1, 1))[:, None]
        return self.own(queries, keys, values, mask=mask)


def own_multi_head(random, Dq, Dk, Dv, heads, hidden, out, bias):
    """Build `flax.linen.MultiHeadDotProductAttention`, with the prefix `own` of its names."""
    return _build_layer(OwnMultiHead(heads, hidden, out, bias), random, Dq, Dk, Dv)
