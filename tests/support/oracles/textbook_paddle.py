"""The textbook's layers of Paddle; each function returns a state and what runs the layer."""

import numpy as np
import paddle
from paddle import nn
from textbook_numpy import pooled_by_bilinear, textbook_of


def state_of(module, random):
    """Give each parameter normal numbers, and return the state as arrays."""
    for parameter in module.parameters():
        parameter.set_value((random.normal(size=parameter.shape) / 2).astype("float32"))
    return {name: np.asarray(tensor) for name, tensor in module.state_dict().items()}


def _run(module):
    def run(*inputs):
        with paddle.no_grad():
            return module(*map(paddle.to_tensor, inputs)).numpy()

    return run


def _dense(random, bias, **sizes):
    bias_attr = None if bias else False
    module = nn.LayerDict({name: nn.Linear(*size, bias_attr=bias_attr) for name, size in sizes.items()})
    return state_of(module, random), {name: _run(layer) for name, layer in module.items()}


additive, multi_head = textbook_of(_dense)


def own_multi_head(random, Dq, Dk, Dv, heads, bias):
    module = nn.MultiHeadAttention(Dq, heads, kdim=Dk, vdim=Dv, bias_attr=None if bias else False)

    def run(queries, keys, values, valid_lens):
        queries, keys, values = map(paddle.to_tensor, (queries, keys, values))
        seen = None
        if valid_lens is not None:
            seen = (paddle.arange(keys.shape[1]) < paddle.to_tensor(valid_lens).unsqueeze(-1)).unsqueeze([1, 2])
        with paddle.no_grad():
            return module(queries, keys, values, attn_mask=seen).numpy()

    return state_of(module, random), run


def own_bilinear(random, Dq, Dk, bias):
    module = nn.Bilinear(Dq, Dk, 1, bias_attr=None if bias else False)
    return state_of(module, random), pooled_by_bilinear(_run(module))
