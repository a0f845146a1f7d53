"""The textbook's layers in PyTorch; each function returns a state and a function that runs the layer."""

import torch
from textbook_numpy import build_bilinear_pooling, build_textbook_layers, masked_softmax
from torch import nn


def draw_state(module, random):
    """Draw normal parameters, and return the state as arrays."""
    for parameter in module.parameters():
        parameter.data = torch.tensor(random.normal(size=parameter.shape) / 2, dtype=torch.float32)
    return {name: tensor.numpy() for name, tensor in module.state_dict().items()}


def _build_runner(module):
    def run(*inputs):
        with torch.no_grad():
            return module(*(None if array is None else torch.tensor(array) for array in inputs)).numpy()

    return run


def _build_dense(bias, sizes):
    return nn.ModuleDict({name: nn.Linear(*size, bias=bias) for name, size in sizes.items()})


def _build_dense_layers(random, bias, **sizes):
    module = _build_dense(bias, sizes)
    return draw_state(module, random), {name: _build_runner(layer) for name, layer in module.items()}


build_additive, build_multi_head = build_textbook_layers(_build_dense_layers)


def build_own_multi_head(random, Dq, Dk, Dv, heads, bias):
    """Build `torch.nn.MultiheadAttention`, which has one packed kernel if all sizes are equal, and three if not."""
    module = nn.MultiheadAttention(Dq, heads, bias=bias, kdim=Dk, vdim=Dv, batch_first=True)

    def run(queries, keys, values, valid_lens):
        inputs = map(torch.tensor, (queries, keys, values))
        padding_mask = None if valid_lens is None else torch.arange(keys.shape[1]) >= torch.tensor(valid_lens)[:, None]
        with torch.no_grad():
            return module(*inputs, key_padding_mask=padding_mask, need_weights=False)[0].numpy()

    return draw_state(module, random), run


def build_own_bilinear(random, Dq, Dk, bias):
    module = nn.Bilinear(Dq, Dk, 1, bias=bias)
    return draw_state(module, random), build_bilinear_pooling(_build_runner(module))


class Seq2SeqAttentionDecoder(nn.Module):
    def __init__(self, words, embed, hidden, layers):
        super().__init__()
        self.attention = _build_dense(False, {"W_q": (hidden, hidden), "W_k": (hidden, hidden), "w_v": (hidden, 1)})
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


def build_decoder(random, *sizes):
    """Build the recurrent decoder, a function of tokens, encoder outputs, states (layers, B, H) and lengths."""
    module = Seq2SeqAttentionDecoder(*sizes)
    return draw_state(module, random), _build_runner(module)
