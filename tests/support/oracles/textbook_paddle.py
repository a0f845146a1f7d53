"""The textbook's layers in Paddle; each function returns a state and a function that runs the layer."""

import numpy as np
import paddle
from paddle import nn
from textbook_numpy import build_bilinear_pooling, build_textbook_layers


def draw_state(module, random):
    """Draw normal parameters, and return the state as arrays."""
    for parameter in module.parameters():
        parameter.set_value((random.normal(size=parameter.shape) / 2).astype("float32"))
    return {name: np.asarray(tensor) for name, tensor in module.state_dict().items()}


def _build_runner(module):
    def run(*inputs):
        with paddle.no_grad():
            return module(*map(paddle.to_tensor, inputs)).numpy()

    return run


def _build_dense_layers(random, bias, **sizes):
    bias_attr = None if bias else False
    module = nn.LayerDict({name: nn.Linear(*size, bias_attr=bias_attr) for name, size in sizes.items()})
    return draw_state(module, random), {name: _build_runner(layer) for name, layer in module.items()}


build_additive, build_multi_head = build_textbook_layers(_build_dense_layers)


def build_own_multi_head(random, Dq, Dk, Dv, heads, bias):
    module = nn.MultiHeadAttention(Dq, heads, kdim=Dk, vdim=Dv, bias_attr=None if bias else False)

    def run(queries, keys, values, valid_lens):
        queries, keys, values = map(paddle.to_tensor, (queries, keys, values))
        mask = None
        if valid_lens is not None:
            mask = (paddle.arange(keys.shape[1]) < paddle.to_tensor(valid_lens).unsqueeze(-1)).unsqueeze([1, 2])
        with paddle.no_grad():
            return module(queries, keys, values, attn_mask=mask).numpy()

    return draw_state(module, random), run


def build_own_bilinear(random, Dq, Dk, bias):
    module = nn.Bilinear(Dq, Dk, 1, bias_attr=None if bias else False)
    return draw_state(module, random), build_bilinear_pooling(_build_runner(module))
