"""The textbook's layers in Paddle, written anew; each function returns a state and what runs the layer."""

import numpy as np
import paddle
from paddle import nn
from paddle.nn import functional


def masked_softmax(scores, valid_lens):
    if valid_lens is not None:
        lengths = valid_lens.reshape([scores.shape[0], -1, 1])
        seen = paddle.arange(scores.shape[-1]) < lengths
        scores = paddle.where(seen, scores, paddle.full_like(scores, -1e6))
    return functional.softmax(scores, -1)


class AdditiveAttention(nn.Layer):
    def __init__(self, Dq, Dk, U):
        super().__init__()
        self.W_k = nn.Linear(Dk, U, bias_attr=False)
        self.W_q = nn.Linear(Dq, U, bias_attr=False)
        self.w_v = nn.Linear(U, 1, bias_attr=False)

    def forward(self, queries, keys, values, valid_lens):
        features = paddle.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
        return paddle.bmm(masked_softmax(self.w_v(features).squeeze(-1), valid_lens), values)


class DotProductAttention(nn.Layer):
    def forward(self, queries, keys, values, valid_lens):
        scores = paddle.bmm(queries, keys.transpose([0, 2, 1])) / queries.shape[-1] ** 0.5
        return paddle.bmm(masked_softmax(scores, valid_lens), values)


class MultiHeadAttention(nn.Layer):
    def __init__(self, Dq, Dk, Dv, hidden, heads, bias):
        super().__init__()
        self.heads, self.attention = heads, DotProductAttention()
        bias_attr = None if bias else False
        self.W_q = nn.Linear(Dq, hidden, bias_attr=bias_attr)
        self.W_k = nn.Linear(Dk, hidden, bias_attr=bias_attr)
        self.W_v = nn.Linear(Dv, hidden, bias_attr=bias_attr)
        self.W_o = nn.Linear(hidden, hidden, bias_attr=bias_attr)

    def split(self, inputs):
        return paddle.concat(inputs.chunk(self.heads, -1))

    def forward(self, queries, keys, values, valid_lens):
        lengths = None if valid_lens is None else paddle.concat([valid_lens] * self.heads)
        inputs = map(self.split, (self.W_q(queries), self.W_k(keys), self.W_v(values)))
        return self.W_o(paddle.concat(self.attention(*inputs, lengths).chunk(self.heads), -1))


def state_of(module, random):
    """Give each parameter normal numbers, and return the state as arrays."""
    for parameter in module.parameters():
        parameter.set_value((random.normal(size=parameter.shape) / 2).astype("float32"))
    return {name: np.asarray(tensor) for name, tensor in module.state_dict().items()}


def _tensors(*inputs):
    return [None if each is None else paddle.to_tensor(each) for each in inputs]


def _runs(module, random):
    def run(*inputs):
        with paddle.no_grad():
            return module(*_tensors(*inputs)).numpy()

    return state_of(module, random), run


def additive(random, Dq, Dk, U):
    return _runs(AdditiveAttention(Dq, Dk, U), random)


def dot_product(random):
    return _runs(DotProductAttention(), random)


def multi_head(random, *sizes):
    return _runs(MultiHeadAttention(*sizes), random)


def own_multi_head(random, Dq, Dk, Dv, heads, bias):
    """`paddle.nn.MultiHeadAttention`."""
    module = nn.MultiHeadAttention(Dq, heads, kdim=Dk, vdim=Dv, bias_attr=None if bias else False)

    def run(queries, keys, values, valid_lens):
        queries, keys, values = _tensors(queries, keys, values)
        seen = None
        if valid_lens is not None:
            seen = (paddle.arange(keys.shape[1]) < paddle.to_tensor(valid_lens).unsqueeze(-1)).unsqueeze([1, 2])
        with paddle.no_grad():
            return module(queries, keys, values, attn_mask=seen).numpy()

    return state_of(module, random), run


def own_bilinear(random, Dq, Dk, bias):
    """Scores by `paddle.nn.Bilinear`."""
    module = nn.Bilinear(Dq, Dk, 1, bias_attr=None if bias else False)

    def run(queries, keys, values, valid_lens):
        queries, keys, values, lengths = _tensors(queries, keys, values, valid_lens)
        pairs = [queries.shape[0], queries.shape[1], keys.shape[1]]
        first = queries.unsqueeze(2).expand([*pairs, Dq]).reshape([-1, Dq])
        second = keys.unsqueeze(1).expand([*pairs, Dk]).reshape([-1, Dk])
        with paddle.no_grad():
            scores = module(first, second).reshape(pairs)
            return paddle.bmm(masked_softmax(scores, lengths), values).numpy()

    return state_of(module, random), run
