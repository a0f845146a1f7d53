"""Attention layers of the textbook "Dive into Deep Learning" in Flax, and Flax's own multi-head attention.

Each public function builds a layer. It returns the state of the layer and a function that runs the layer.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from textbook_numpy import build_textbook_layers


def _build_layer(module, random, *input_sizes):
    inputs = [np.zeros((1, 2, size), "float32") for size in input_sizes]
    variables = jax.eval_shape(module.init, jax.random.key(0), *inputs)
    variables = jax.tree.map(lambda leaf: jnp.asarray(random.normal(size=leaf.shape) / 2, "float32"), variables)

    def run(*inputs):
        with jax.default_matmul_precision("highest"):
            return np.asarray(module.apply(variables, *inputs))

    return variables, run


def _build_dense_layers(random, use_bias, **sizes):
    """Build a dense layer for each name in `sizes`, from its pair of input size and output size."""
    layers = {name: _build_layer(nn.Dense(out, use_bias=use_bias), random, size) for name, (size, out) in sizes.items()}
    state = {"params": {name: variables["params"] for name, (variables, _) in layers.items()}}
    return state, {name: run for name, (_, run) in layers.items()}


build_additive, build_multi_head = build_textbook_layers(_build_dense_layers)


class FlaxMultiHead(nn.Module):
    heads: int
    hidden: int
    out: int
    use_bias: bool

    def setup(self):
        self.attention = nn.MultiHeadDotProductAttention(
            self.heads, qkv_features=self.hidden, out_features=self.out, use_bias=self.use_bias
        )

    def __call__(self, queries, keys, values, valid_lens=None):
        mask = None
        if valid_lens is not None:
            mask = (jnp.arange(keys.shape[1]) < valid_lens.reshape(len(keys), -1, 1))[:, None]
        return self.attention(queries, keys, values, mask=mask)


def build_own_multi_head(random, Dq, Dk, Dv, heads, hidden, out, use_bias):
    """Build Flax's own `MultiHeadDotProductAttention`. The names of its weights begin with `attention`."""
    return _build_layer(FlaxMultiHead(heads, hidden, out, use_bias), random, Dq, Dk, Dv)
