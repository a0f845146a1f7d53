"""Recurrent decoders, positions, caches, and whole loops of decoding, with the layers of keras_attn."""

import keras
from keras import layers as L  # noqa: N812 - these files consist of them
from keras import ops

import keras_attn as A  # noqa: N812
from keras_attn.decoding import beam, greedy

from .blocks import feed_forward
from .registry import ID, IDS, architecture

START, END = 0, 1


def read(ids, count, size):
    """What stands for each of some ids: by a convolution, as Keras runs recurrent encoders step by step."""
    return L.Conv1D(size, 3, padding="same", activation="tanh")(L.Embedding(count, 12)(ids))


@architecture()
def relative_position_encoder(ids=IDS, valid_lens=ID):
    """Raffel et al., 2020: T5, relative position biases by buckets of distances, shared by all blocks; no scale."""
    x = L.Embedding(100, 16)(ids)
    bias = A.RelativePositionBias(2, num_buckets=8, max_distance=20)(x, x)
    for _ in range(2):
        y = L.RMSNormalization()(x)
        x = x + A.MultiHeadAttention(A.DotProductAttention(scale=1.0), 2)(y, y, y, valid_lens, score_bias=bias)
        x = x + feed_forward(L.RMSNormalization()(x), 32, "relu")
    return {"encoded": L.RMSNormalization()(x)}


@architecture()
def linear_bias_language_model(ids=IDS):
    """Press et al., 2022: Train Short, Test Long (ALiBi), with biases linear in the distance."""
    x = L.Embedding(100, 18)(ids)
    bias = A.LinearBias(3)(x, x)
    for _ in range(2):
        y = L.LayerNormalization()(x)
        x = x + A.MultiHeadAttention(A.DotProductAttention(), 3)(y, y, y, score_bias=bias, use_causal_mask=True)
        x = x + feed_forward(L.LayerNormalization()(x), 32)
    return {"next": L.Dense(100)(x)}


class NormThenTurn(L.Layer):
    """Queries and keys normalized, with a scale for each, and turned by their positions."""

    def __init__(self, **options):
        super().__init__(**options)
        self.norms = {role: L.RMSNormalization(name=role) for role in ("queries", "keys")}
        self.turn = A.RotaryEmbedding()

    def build(self, heads_shape):
        for norm in self.norms.values():
            norm.build(heads_shape)

    def call(self, heads, role="queries", offset=0):
        normalized = self.norms[role](heads) if role in self.norms else heads
        return self.turn(normalized, role=role, offset=offset)


def rotary_heads(name=None):
    return A.MultiHeadAttention(A.DotProductAttention(), 4, num_kv_heads=2, process_heads=NormThenTurn(), name=name)


def gated(x, hidden):
    """The feed-forward part of Llama and its kin (Shazeer, 2020)."""
    return L.Dense(x.shape[-1])(L.Dense(hidden, activation="silu")(x) * L.Dense(hidden)(x))


@architecture()
def rotary_language_model(ids=IDS):
    """Yang et al., 2025: Qwen3, grouped-query attention, normalized queries and keys, rotary positions."""
    x = L.Embedding(100, 16)(ids)
    for _ in range(2):
        y = L.RMSNormalization()(x)
        x = x + rotary_heads()(y, y, y, use_causal_mask=True)
        x = x + gated(L.RMSNormalization()(x), 24)
    return {"next": L.Dense(100)(L.RMSNormalization()(x))}


@architecture()
def cached_step():
    """Pope et al., 2023: Efficiently Scaling Transformer Inference, one decoding step with a growing cache."""
    token = keras.Input((), dtype="int32", name="token")
    x, inputs, outputs = ops.expand_dims(L.Embedding(100, 16)(token), 1), [token], {}
    for n in range(2):
        past = {part: keras.Input((2, None, 4), name=f"{part}_{n}") for part in ("projected_keys", "projected_values")}
        attend, y = rotary_heads(), L.RMSNormalization()(x)
        attend.build(y.shape, y.shape, y.shape)
        present = attend.append(past, y, y)
        x = x + attend(y, present, use_causal_mask=True)
        x = x + gated(L.RMSNormalization()(x), 24)
        inputs += past.values()
        outputs |= {f"next_{part}_{n}": tensor for part, tensor in present.items()}
    return keras.Model(inputs, {"next": L.Dense(100)(x[:, 0]), **outputs})


@architecture()
def annotating_decoder(source=IDS, target=(3, "int32"), source_lens=ID):
    """Bahdanau et al., 2015: Neural Machine Translation, a decoder that attends with its previous state."""
    seen = read(source, 90, 16)
    decode = A.AttentionRNN(A.AttentionCell(L.GRUCell(16), A.AdditiveAttention(12)))
    states, weights = decode(L.Embedding(80, 12)(target), seen, source_lens, return_attention_scores=True)
    return {"words": L.Dense(80)(states), "alignment": weights}


@architecture()
def input_feeding_decoder(source=IDS, target=(3, "int32"), source_lens=ID, target_lens=ID):
    """Luong et al., 2015: Effective Approaches to Attention-based NMT, global attention with input feeding."""
    seen = read(source, 90, 12)
    cell = L.StackedRNNCells([L.LSTMCell(12), L.LSTMCell(12)])
    decode = A.AttentionRNN(
        A.AttentionCell(cell, A.BilinearAttention(), when="after", attention_size=14, input_feeding=True)
    )
    states = decode(L.Embedding(80, 12)(target), seen, source_lens, input_lens=target_lens)
    return {"words": L.Dense(80)(states)}


@architecture()
def spectrogram_decoder(letters=IDS, frames=(3, 6), valid_lens=ID):
    """Shen et al., 2018: Tacotron 2, location-sensitive attention."""
    encoded = read(letters, 40, 12)
    before = L.Dense(8, activation="relu")(frames)
    attend = A.LocationSensitiveAttention(10, filters=4, kernel_size=7, cumulative=True)
    decode = A.AttentionRNN(A.AttentionCell(L.StackedRNNCells([L.LSTMCell(10), L.LSTMCell(10)]), attend))
    states, weights = decode(before, encoded, valid_lens, return_attention_scores=True)
    return {"next": L.Dense(6)(states), "stop": L.Dense(1, activation="sigmoid")(states), "alignment": weights}


def encoder_and_step():
    """The parts of Bahdanau's decoder: what is read once, and a step."""
    source = keras.Input((None,), dtype="int32", name="source")
    lens, token = (keras.Input((), dtype="int32", name=name) for name in ("source_lens", "token"))
    seen = read(source, 90, 16)
    cell = A.AttentionCell(L.GRUCell(16), A.AdditiveAttention(12))
    cell.build((None, 12), None, seen.shape)
    state = L.Dense(16, activation="tanh")(ops.mean(seen, axis=1))
    encoder = keras.Model([source, lens], {**cell.precompute(seen), "state": state})
    memory = {name: keras.Input(tensor.shape[1:], name=name) for name, tensor in encoder.output.items()}
    given = {name: tensor for name, tensor in memory.items() if name != "state"}
    (output, (after,)), weights = cell(
        L.Embedding(12, 12)(token), [memory["state"]], given, lens, return_attention_scores=True
    )
    outputs = {"logits": L.Dense(12)(output), "next_state": after, "weights": weights}
    return encoder, keras.Model([token, lens, *memory.values()], outputs), {"next_state": "state"}


@architecture()
def greedy_translation():
    """Bahdanau et al., 2015: Neural Machine Translation, greedy decoding until every row has ended."""
    return greedy(*encoder_and_step(), start=START, end=END, max_length=3, outputs=["weights"])


@architecture()
def beam_translation():
    """Wu et al., 2016: Google's Neural Machine Translation System, beam search with its length penalty."""
    return beam(*encoder_and_step(), start=START, end=END, max_length=2, width=2, length_penalty=0.6)
