"""The textbook's layers and those of TensorFlow Addons in NumPy, for frameworks that can no longer be installed.

The textbook's layers use dense layers of a framework. MXNet stores a dense kernel as (out, in), named `weight`.
The names, shapes and scores of Addons are those of tensorflow_addons/seq2seq/attention_wrapper.py and
tensorflow_addons/layers/multihead_attention.py at its version 0.23.
"""

import numpy as np


def masked_softmax(scores, valid_lens, fill=-1e6):
    """Return the softmax of scores (B, Tq, Tk), with `fill` as the score of padding."""
    if valid_lens is not None:
        lengths = np.asarray(valid_lens).reshape(len(scores), -1, 1)
        scores = np.where(np.arange(scores.shape[-1]) < lengths, scores, fill)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def build_textbook_layers(dense):
    """Build the textbook's layers from the dense layers of a framework, as functions of a generator and sizes.

    Args:
        dense: Function of a generator, a flag for biases, and sizes (in, out) by name. It returns a state, and the
            dense layers by name as functions of arrays.
    """

    def build_additive(random, Dq, Dk, U):
        state, layers = dense(random, False, W_q=(Dq, U), W_k=(Dk, U), w_v=(U, 1))

        def run(queries, keys, values, valid_lens):
            features = np.tanh(layers["W_q"](queries)[:, :, None] + layers["W_k"](keys)[:, None])
            return masked_softmax(layers["w_v"](features)[..., 0], valid_lens) @ values

        return state, run

    def build_multi_head(random, Dq, Dk, Dv, hidden, heads):
        sizes = {name: (size, hidden) for name, size in (("W_q", Dq), ("W_k", Dk), ("W_v", Dv), ("W_o", hidden))}
        state, layers = dense(random, True, **sizes)

        def run(queries, keys, values, valid_lens):
            projected = (layers[name](array) for name, array in (("W_q", queries), ("W_k", keys), ("W_v", values)))
            lengths = None if valid_lens is None else np.concatenate([valid_lens] * heads)
            pooled = pool_by_products(*(np.concatenate(np.split(array, heads, -1)) for array in projected), lengths)
            return layers["W_o"](np.concatenate(np.split(pooled, heads), -1))

        return state, run

    return build_additive, build_multi_head


def build_dot_product(random):
    return {}, pool_by_products


def build_bilinear_pooling(score):
    """Return a function that pools with `nn.Bilinear` as `score`, a function of rows of queries and of keys."""

    def run(queries, keys, values, valid_lens):
        (_, Tq, Dq), (_, Tk, Dk) = queries.shape, keys.shape
        rows = np.repeat(queries, Tk, axis=1).reshape(-1, Dq), np.tile(keys, (1, Tq, 1)).reshape(-1, Dk)
        return masked_softmax(score(*rows).reshape(-1, Tq, Tk), valid_lens) @ values

    return run


def pool_by_products(queries, keys, values, valid_lens):
    scores = queries @ np.swapaxes(keys, 1, 2) / queries.shape[-1] ** 0.5
    return masked_softmax(scores, valid_lens) @ values


def _build_dense_layers(random, bias, **sizes):
    state = {f"{name}.weight": random.normal(size=size[::-1]) / 2 for name, size in sizes.items()}
    if bias:
        state |= {f"{name}.bias": random.normal(size=size[1]) for name, size in sizes.items()}
    layers = {
        name: lambda inputs, name=name: inputs @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)
        for name in sizes
    }
    return state, layers


build_additive, build_multi_head = build_textbook_layers(_build_dense_layers)


def build_bahdanau(random, Dq, Dk, U, normalize):
    """Build `tfa.seq2seq.BahdanauAttention`, called with single queries as by an `AttentionWrapper`."""
    W_q, W_k, v = random.normal(size=(Dq, U)), random.normal(size=(Dk, U)), random.normal(size=U)
    state = {"query_layer/kernel:0": W_q, "memory_layer/kernel:0": W_k, "attention_v:0": v}
    shift = 0.0
    if normalize:
        scale, shift = np.array(1.7), random.normal(size=U)
        state |= {"attention_g:0": scale, "attention_b:0": shift}
        v = scale * v / np.sqrt(np.sum(v**2))

    def run(queries, keys, values, valid_lens):
        scores = [np.sum(v * np.tanh(keys @ W_k + (query @ W_q)[:, None] + shift), -1) for query in _split(queries)]
        return masked_softmax(np.stack(scores, 1), valid_lens, np.finfo("float32").min) @ values

    return state, run


def build_luong(random, Dq, Dk, scaled):
    """Build `tfa.seq2seq.LuongAttention`, whose number of units must be the size of a query."""
    kernel, scale = random.normal(size=(Dk, Dq)), np.array(0.6 if scaled else 1.0)
    state = {"memory_layer/kernel:0": kernel, **({"attention_g:0": scale} if scaled else {})}

    def run(queries, keys, values, valid_lens):
        scores = [scale * np.sum(query[:, None] * (keys @ kernel), -1) for query in _split(queries)]
        return masked_softmax(np.stack(scores, 1), valid_lens, np.finfo("float32").min) @ values

    return state, run


def _split(queries):
    return np.swapaxes(queries, 0, 1)


def build_addons_multi_head(random, Dq, Dk, Dv, heads, head_size, Do, bias):
    """Build `tfa.layers.MultiHeadAttention`."""
    state = {
        "query_kernel:0": random.normal(size=(heads, Dq, head_size)) / 2,
        "key_kernel:0": random.normal(size=(heads, Dk, head_size)) / 2,
        "value_kernel:0": random.normal(size=(heads, Dv, head_size)) / 2,
        "projection_kernel:0": random.normal(size=(heads, head_size, Do)) / 2,
    }
    if bias:
        state["projection_bias:0"] = random.normal(size=Do)

    def run(queries, keys, values, valid_lens):
        queries = np.einsum("btd,hdk->bhtk", queries, state["query_kernel:0"]) / np.sqrt(head_size)
        keys = np.einsum("btd,hdk->bhtk", keys, state["key_kernel:0"])
        values = np.einsum("btd,hdk->bhtk", values, state["value_kernel:0"])
        scores = np.einsum("bhqk,bhtk->bhqt", queries, keys)
        weights = np.stack([masked_softmax(head, valid_lens, -1e10) for head in np.swapaxes(scores, 0, 1)], 1)
        pooled = np.einsum("bhqt,bhtv->bqhv", weights, values)
        return np.einsum("bqhv,hvo->bqo", pooled, state["projection_kernel:0"]) + state.get("projection_bias:0", 0)

    return state, run
