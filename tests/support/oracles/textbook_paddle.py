"""The textbook's layers of Paddle; each function returns a state and what runs the layer."""

import numpy as np
import paddle
from paddle import nn
from textbook_numpy import masked_softmax, textbook_of


def state_of(module, random):
    """Give each parameter normal numbers, and return the state as arrays."""
    for parameter in module.parameters():
        parameter.set_value((random.normal(size=parameter.shape) / 2).astype("float32"))
    return {name: np.asarray(tensor) for name, tensor in module.state_dict().items()}


def _run(module):
    def run(inputs):
        with paddle.no_grad():
            return module(paddle.to_tensor(inputs)).numpy()

    return run


def _dense(random, bias, **sizes):
    bias_attr = None if bias else False
    module = nn.LayerDict({name: nn.Linear(*size, bias_attr=bias_attr) for name, size in sizes.items()})
    return state_of(module, random), {name: _run(layer) for name, layer in module.items()}


additive, dot_product, multi_head = textbook_of(_dense)


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

    def run(queries, keys, values, valid_lens):
        queries, keys = map(paddle.to_tensor, (queries, keys))
        pairs = [queries.shape[0], queries.shape[1], keys.shape[1]]
        first = queries.unsqueeze(2).expand([*pairs, Dq]).reshape([-1, Dq])
        second = keys.unsqueeze(1).expand([*pairs, Dk]).reshape([-1, Dk])
        with paddle.no_grad():
            scores = module(first, second).reshape(pairs).numpy()
        return masked_softmax(scores, valid_lens) @ values

    return state_of(module, random), run
