"""The textbook's layers and those of TensorFlow Addons as formulas, for frameworks that can no longer be installed.

MXNet stores a dense kernel as (out, in) and calls it `weight`. The names, shapes and scores of Addons are those of
tensorflow_addons/seq2seq/attention_wrapper.py and tensorflow_addons/layers/multihead_attention.py at its version 0.23.
"""

import numpy as np


def masked_softmax(scores, valid_lens, fill=-1e6):
    """Softmax of scores (B, Tq, Tk), where those beyond a length are `fill`."""
    if valid_lens is not None:
        lengths = np.asarray(valid_lens).reshape(len(scores), -1, 1)
        scores = np.where(np.arange(scores.shape[-1]) < lengths, scores, fill)
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def additive(random, Dq, Dk, U):
    W_q, W_k, w_v = random.normal(size=(U, Dq)), random.normal(size=(U, Dk)), random.normal(size=(1, U))

    def run(queries, keys, values, valid_lens):
        features = np.tanh((queries @ W_q.T)[:, :, None] + (keys @ W_k.T)[:, None])
        return masked_softmax((features @ w_v.T)[..., 0], valid_lens) @ values

    return {"W_q.weight": W_q, "W_k.weight": W_k, "w_v.weight": w_v}, run


def dot_product(random):
    def run(queries, keys, values, valid_lens):
        scores = queries @ np.swapaxes(keys, 1, 2) / np.sqrt(queries.shape[-1])
        return masked_softmax(scores, valid_lens) @ values

    return {}, run


def multi_head(random, Dq, Dk, Dv, hidden, heads, bias):
    sizes = {"W_q": (hidden, Dq), "W_k": (hidden, Dk), "W_v": (hidden, Dv), "W_o": (hidden, hidden)}
    state = {f"{name}.weight": random.normal(size=size) / 2 for name, size in sizes.items()}
    if bias:
        state |= {f"{name}.bias": random.normal(size=hidden) for name in sizes}

    def dense(name, inputs):
        return inputs @ state[f"{name}.weight"].T + state.get(f"{name}.bias", 0)

    def split(inputs):
        batch, length, _ = inputs.shape
        return inputs.reshape(batch, length, heads, -1).transpose(0, 2, 1, 3).reshape(batch * heads, length, -1)

    def run(queries, keys, values, valid_lens):
        lengths = None if valid_lens is None else np.repeat(valid_lens, heads, axis=0)
        _, pool = dot_product(random)
        pooled = pool(*map(split, (dense("W_q", queries), dense("W_k", keys), dense("W_v", values))), lengths)
        batch, length, _ = queries.shape
        return dense("W_o", pooled.reshape(batch, heads, length, -1).transpose(0, 2, 1, 3).reshape(batch, length, -1))

    return state, run


def bahdanau(random, Dq, Dk, U, normalize):
    """`tfa.seq2seq.BahdanauAttention`, one query after the other as an `AttentionWrapper` calls it."""
    W_q, W_k, v = random.normal(size=(Dq, U)), random.normal(size=(Dk, U)), random.normal(size=U)
    state = {"query_layer/kernel:0": W_q, "memory_layer/kernel:0": W_k, "attention_v:0": v}
    shift = 0.0
    if normalize:
        scale, shift = np.array(1.7), random.normal(size=U)
        state |= {"attention_g:0": scale, "attention_b:0": shift}
        v = scale * v / np.sqrt(np.sum(v**2))

    def run(queries, keys, values, valid_lens):
        scores = [np.sum(v * np.tanh(keys @ W_k + (query @ W_q)[:, None] + shift), -1) for query in _steps(queries)]
        return masked_softmax(np.stack(scores, 1), valid_lens, np.finfo("float32").min) @ values

    return state, run


def luong(random, Dq, Dk, scaled):
    """`tfa.seq2seq.LuongAttention`, whose number of units must be the size of a query."""
    kernel, scale = random.normal(size=(Dk, Dq)), np.array(0.6 if scaled else 1.0)
    state = {"memory_layer/kernel:0": kernel, **({"attention_g:0": scale} if scaled else {})}

    def run(queries, keys, values, valid_lens):
        scores = [scale * np.sum(query[:, None] * (keys @ kernel), -1) for query in _steps(queries)]
        return masked_softmax(np.stack(scores, 1), valid_lens, np.finfo("float32").min) @ values

    return state, run


def _steps(queries):
    return np.swapaxes(queries, 0, 1)


def addons_multi_head(random, Dq, Dk, Dv, heads, head_size, Do, bias):
    """`tfa.layers.MultiHeadAttention`."""
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
        weights = np.stack([masked_softmax(s, valid_lens, -1e10) for s in np.swapaxes(scores, 0, 1)], 1)
        pooled = np.einsum("bhqt,bhtv->bqhv", weights, values)
        return np.einsum("bqhv,hvo->bqo", pooled, state["projection_kernel:0"]) + state.get("projection_bias:0", 0)

    return state, run
