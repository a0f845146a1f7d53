"""Decoders and language models with layers of keras_attn: positions, caches, recurrent decoders, decoding loops."""

import keras
from keras import layers as L  # noqa: N812 - used in every line of the models
from keras import ops

import keras_attn as A  # noqa: N812
from keras_attn.decoding import beam, greedy

from .blocks import feed_forward
from .registry import ID, IDS, architecture

START, END = 0, 1


def encode(ids, count, size):
    """Return a vector for each id, of shape (B, T, size); a convolution, since Keras runs RNNs step by step."""
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


class NormalizedRotaryHeads(L.Layer):
    """RMS normalization of queries and of keys, each with its own scale, before rotary position embeddings."""

    def __init__(self, **options):
        super().__init__(**options)
        self.norms = {role: L.RMSNormalization(name=role) for role in ("queries", "keys")}
        self.rotary = A.RotaryEmbedding()

    def build(self, heads_shape):
        for norm in self.norms.values():
            norm.build(heads_shape)

    def call(self, heads, role="queries", offset=0):
        normalized = self.norms[role](heads) if role in self.norms else heads
        return self.rotary(normalized, role=role, offset=offset)


def build_rotary_attention():
    return A.MultiHeadAttention(A.DotProductAttention(), 4, num_kv_heads=2, process_heads=NormalizedRotaryHeads())


def gated_feed_forward(x, hidden):
    """Apply the gated feed-forward layers of Llama (SwiGLU; Shazeer, 2020)."""
    return L.Dense(x.shape[-1])(L.Dense(hidden, activation="silu")(x) * L.Dense(hidden)(x))


@architecture()
def rotary_language_model(ids=IDS):
    """Yang et al., 2025: Qwen3, grouped-query attention, normalized queries and keys, rotary positions."""
    x = L.Embedding(100, 16)(ids)
    for _ in range(2):
        y = L.RMSNormalization()(x)
        x = x + build_rotary_attention()(y, y, y, use_causal_mask=True)
        x = x + gated_feed_forward(L.RMSNormalization()(x), 24)
    return {"next": L.Dense(100)(L.RMSNormalization()(x))}


@architecture()
def cached_step():
    """Pope et al., 2023: Efficiently Scaling Transformer Inference, one decoding step with a growing cache."""
    token = keras.Input((), dtype="int32", name="token")
    x, inputs, outputs = ops.expand_dims(L.Embedding(100, 16)(token), 1), [token], {}
    for block in range(2):
        names = {name: f"{name}_{block}" for name in ("projected_keys", "projected_values")}
        past = {name: keras.Input((2, None, 4), name=input_name) for name, input_name in names.items()}
        attend, y = build_rotary_attention(), L.RMSNormalization()(x)
        attend.build(y.shape, y.shape, y.shape)
        present = attend.append(past, y, y)
        x = x + attend(y, present, use_causal_mask=True)
        x = x + gated_feed_forward(L.RMSNormalization()(x), 24)
        inputs += past.values()
        outputs |= {f"next_{names[name]}": tensor for name, tensor in present.items()}
    return keras.Model(inputs, {"next": L.Dense(100)(x[:, 0]), **outputs})


@architecture()
def annotating_decoder(source=IDS, target=(3, "int32"), source_lens=ID):
    """Bahdanau et al., 2015: Neural Machine Translation, a decoder that attends with its previous state."""
    memory = encode(source, 90, 16)
    decode = A.AttentionRNN(A.AttentionCell(L.GRUCell(16), A.AdditiveAttention(12)))
    states, weights = decode(L.Embedding(80, 12)(target), memory, source_lens, return_attention_scores=True)
    return {"words": L.Dense(80)(states), "alignment": weights}


@architecture()
def input_feeding_decoder(source=IDS, target=(3, "int32"), source_lens=ID, target_lens=ID):
    """Luong et al., 2015: Effective Approaches to Attention-based NMT, global attention with input feeding."""
    memory = encode(source, 90, 12)
    cell = L.StackedRNNCells([L.LSTMCell(12), L.LSTMCell(12)])
    decode = A.AttentionRNN(
        A.AttentionCell(cell, A.BilinearAttention(), when="after", attention_size=14, input_feeding=True)
    )
    states = decode(L.Embedding(80, 12)(target), memory, source_lens, input_lens=target_lens)
    return {"words": L.Dense(80)(states)}


@architecture()
def spectrogram_decoder(letters=IDS, frames=(3, 6), valid_lens=ID):
    """Shen et al., 2018: Tacotron 2, location-sensitive attention."""
    memory = encode(letters, 40, 12)
    inputs = L.Dense(8, activation="relu")(frames)
    attend = A.LocationSensitiveAttention(10, filters=4, kernel_size=7, cumulative=True)
    decode = A.AttentionRNN(A.AttentionCell(L.StackedRNNCells([L.LSTMCell(10), L.LSTMCell(10)]), attend))
    states, weights = decode(inputs, memory, valid_lens, return_attention_scores=True)
    return {"next": L.Dense(6)(states), "stop": L.Dense(1, activation="sigmoid")(states), "alignment": weights}


def build_encoder_and_step():
    """Build the encoder and one decoding step of Bahdanau's translation model, and the map of its states."""
    source = keras.Input((None,), dtype="int32", name="source")
    lens, token = (keras.Input((), dtype="int32", name=name) for name in ("source_lens", "token"))
    memory = encode(source, 90, 16)
    cell = A.AttentionCell(L.GRUCell(16), A.AdditiveAttention(12))
    cell.build((None, 12), None, memory.shape)
    state = L.Dense(16, activation="tanh")(ops.mean(memory, axis=1))
    encoder = keras.Model([source, lens], {**cell.precompute(memory), "state": state})
    inputs = {name: keras.Input(tensor.shape[1:], name=name) for name, tensor in encoder.output.items()}
    precomputed = {name: tensor for name, tensor in inputs.items() if name != "state"}
    (output, (next_state,)), weights = cell(
        L.Embedding(12, 12)(token), [inputs["state"]], precomputed, lens, return_attention_scores=True
    )
    outputs = {"logits": L.Dense(12)(output), "next_state": next_state, "weights": weights}
    return encoder, keras.Model([token, lens, *inputs.values()], outputs), {"next_state": "state"}


@architecture()
def greedy_translation():
    """Bahdanau et al., 2015: Neural Machine Translation, greedy decoding until every row has ended."""
    return greedy(*build_encoder_and_step(), start=START, end=END, max_length=3, outputs=["weights"])


@architecture()
def beam_translation():
    """Wu et al., 2016: Google's Neural Machine Translation System, beam search with its length penalty."""
    return beam(*build_encoder_and_step(), start=START, end=END, max_length=2, width=2, length_penalty=0.6)
