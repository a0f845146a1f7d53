"""The textbook's layers in PyTorch, written anew; each function returns a state and what runs the layer."""

import torch
from torch import nn


def masked_softmax(scores, valid_lens):
    if valid_lens is not None:
        lengths = valid_lens.reshape(len(scores), -1, 1)
        scores = torch.where(torch.arange(scores.shape[-1]) < lengths, scores, -1e6)
    return torch.softmax(scores, -1)


class AdditiveAttention(nn.Module):
    def __init__(self, Dq, Dk, U):
        super().__init__()
        self.W_k = nn.Linear(Dk, U, bias=False)
        self.W_q = nn.Linear(Dq, U, bias=False)
        self.w_v = nn.Linear(U, 1, bias=False)

    def forward(self, queries, keys, values, valid_lens):
        features = torch.tanh(self.W_q(queries).unsqueeze(2) + self.W_k(keys).unsqueeze(1))
        return torch.bmm(masked_softmax(self.w_v(features).squeeze(-1), valid_lens), values)


class DotProductAttention(nn.Module):
    def forward(self, queries, keys, values, valid_lens):
        scores = torch.bmm(queries, keys.transpose(1, 2)) / queries.shape[-1] ** 0.5
        return torch.bmm(masked_softmax(scores, valid_lens), values)


class MultiHeadAttention(nn.Module):
    def __init__(self, Dq, Dk, Dv, hidden, heads, bias):
        super().__init__()
        self.heads, self.attention = heads, DotProductAttention()
        self.W_q = nn.Linear(Dq, hidden, bias=bias)
        self.W_k = nn.Linear(Dk, hidden, bias=bias)
        self.W_v = nn.Linear(Dv, hidden, bias=bias)
        self.W_o = nn.Linear(hidden, hidden, bias=bias)

    def split(self, inputs):
        return torch.cat(inputs.chunk(self.heads, -1))

    def forward(self, queries, keys, values, valid_lens):
        lengths = None if valid_lens is None else torch.cat([valid_lens] * self.heads)
        inputs = map(self.split, (self.W_q(queries), self.W_k(keys), self.W_v(values)))
        return self.W_o(torch.cat(self.attention(*inputs, lengths).chunk(self.heads), -1))


def state_of(module, random):
    """Give each parameter normal numbers, and return the state as arrays."""
    for parameter in module.parameters():
        parameter.data = torch.tensor(random.normal(size=parameter.shape) / 2, dtype=torch.float32)
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def _runs(module, random):
    def run(*inputs):
        with torch.no_grad():
            return module(*(None if each is None else torch.tensor(each) for each in inputs)).numpy()

    return state_of(module, random), run


def additive(random, Dq, Dk, U):
    return _runs(AdditiveAttention(Dq, Dk, U), random)


def dot_product(random):
    return _runs(DotProductAttention(), random)


def multi_head(random, *sizes):
    return _runs(MultiHeadAttention(*sizes), random)


def own_multi_head(random, Dq, Dk, Dv, heads, bias):
    """`torch.nn.MultiheadAttention`: one packed kernel where all sizes are one, and three where they are not."""
    module = nn.MultiheadAttention(Dq, heads, bias=bias, kdim=Dk, vdim=Dv, batch_first=True)

    def run(queries, keys, values, valid_lens):
        inputs = map(torch.tensor, (queries, keys, values))
        hidden = None if valid_lens is None else torch.arange(keys.shape[1]) >= torch.tensor(valid_lens)[:, None]
        with torch.no_grad():
            return module(*inputs, key_padding_mask=hidden, need_weights=False)[0].numpy()

    return state_of(module, random), run


def own_bilinear(random, Dq, Dk, bias):
    """Scores by `torch.nn.Bilinear`."""
    module = nn.Bilinear(Dq, Dk, 1, bias=bias)

    def run(queries, keys, values, valid_lens):
        queries, keys, values = map(torch.tensor, (queries, keys, values))
        pairs = (len(queries), queries.shape[1], keys.shape[1])
        with torch.no_grad():
            scores = module(
                queries[:, :, None].expand(*pairs, -1).contiguous(), keys[:, None].expand(*pairs, -1).contiguous()
            )
            lengths = None if valid_lens is None else torch.tensor(valid_lens)
            return torch.bmm(masked_softmax(scores.squeeze(-1), lengths), values).numpy()

    return state_of(module, random), run


def linear_bilinear(random, Dq, Dk):
    """Scores by a `torch.nn.Linear` from keys to queries."""
    module = nn.ModuleDict({"W": nn.Linear(Dk, Dq, bias=False)})

    def run(queries, keys, values, valid_lens):
        queries, keys, values = map(torch.tensor, (queries, keys, values))
        lengths = None if valid_lens is None else torch.tensor(valid_lens)
        with torch.no_grad():
            scores = torch.einsum("bqd,bkd->bqk", queries, module["W"](keys))
            return torch.bmm(masked_softmax(scores, lengths), values).numpy()

    return state_of(module, random), run


class Seq2SeqAttentionDecoder(nn.Module):
    def __init__(self, words, embed, hidden, layers):
        super().__init__()
        self.attention = AdditiveAttention(hidden, hidden, hidden)
        self.embedding = nn.Embedding(words, embed)
        self.rnn = nn.GRU(embed + hidden, hidden, layers)
        self.dense = nn.Linear(hidden, words)

    def forward(self, tokens, memory, hidden, valid_lens):
        outputs = []
        for x in self.embedding(tokens).transpose(0, 1):
            context = self.attention(hidden[-1].unsqueeze(1), memory, memory, valid_lens)
            x = torch.cat((context, x.unsqueeze(1)), -1)
            out, hidden = self.rnn(x.transpose(0, 1), hidden)
            outputs.append(out)
        return self.dense(torch.cat(outputs)).transpose(0, 1)


def decoder(random, *sizes):
    """The textbook's recurrent decoder: from tokens, the encoder's outputs, states (layers, B, H) and lengths."""
    return _runs(Seq2SeqAttentionDecoder(*sizes), random)
