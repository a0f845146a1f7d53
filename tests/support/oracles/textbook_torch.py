"""The textbook's layers of PyTorch; each function returns a state and what runs the layer."""

import torch
from textbook_numpy import masked_softmax, pooled_by_bilinear, textbook_of
from torch import nn


def state_of(module, random):
    """Give each parameter normal numbers, and return the state as arrays."""
    for parameter in module.parameters():
        parameter.data = torch.tensor(random.normal(size=parameter.shape) / 2, dtype=torch.float32)
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def _run(module):
    def run(*inputs):
        with torch.no_grad():
            return module(*(None if each is None else torch.tensor(each) for each in inputs)).numpy()

    return run


def _linear(bias, sizes):
    return nn.ModuleDict({name: nn.Linear(*size, bias=bias) for name, size in sizes.items()})


def _dense(random, bias, **sizes):
    module = _linear(bias, sizes)
    return state_of(module, random), {name: _run(layer) for name, layer in module.items()}


additive, multi_head = textbook_of(_dense)


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
    module = nn.Bilinear(Dq, Dk, 1, bias=bias)
    return state_of(module, random), pooled_by_bilinear(_run(module))


class Seq2SeqAttentionDecoder(nn.Module):
    def __init__(self, words, embed, hidden, layers):
        super().__init__()
        self.attention = _linear(False, {"W_q": (hidden, hidden), "W_k": (hidden, hidden), "w_v": (hidden, 1)})
        self.embedding = nn.Embedding(words, embed)
        self.rnn = nn.GRU(embed + hidden, hidden, layers)
        self.dense = nn.Linear(hidden, words)

    def forward(self, tokens, memory, hidden, valid_lens):
        outputs, project = [], self.attention
        for x in self.embedding(tokens).transpose(0, 1):
            features = torch.tanh(project["W_q"](hidden[-1]).unsqueeze(1) + project["W_k"](memory))
            weights = masked_softmax(project["w_v"](features).transpose(1, 2).numpy(), valid_lens)
            x = torch.cat((torch.tensor(weights) @ memory, x.unsqueeze(1)), -1)
            out, hidden = self.rnn(x.transpose(0, 1), hidden)
            outputs.append(out)
        return self.dense(torch.cat(outputs)).transpose(0, 1)


def decoder(random, *sizes):
    """The textbook's recurrent decoder: from tokens, the encoder's outputs, states (layers, B, H) and lengths."""
    module = Seq2SeqAttentionDecoder(*sizes)
    return state_of(module, random), _run(module)
