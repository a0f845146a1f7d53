"""Decoders whose files get faults: loops, attention within them, positions, and caches that grow."""

import keras
from decoder_export_models import bias_of_pairs, bias_of_positions, step_of_a_growing_state, step_of_fixed_capacity
from decoding_models import END, START, attending
from keras import layers as L  # noqa: N812 - these files consist of them
from loop_models import Nested, looped
from proof_models import ProofModel

from keras_attn import AttentionCell, AttentionRNN, BilinearAttention, LocationSensitiveAttention
from keras_attn.decoding import greedy


def greedy_decoder():
    # with these weights rows end after 1, 2, 3 and 4 steps
    return greedy(*attending(33), start=START, end=END, max_length=4, outputs=["weights"])


def attention_in_loops():
    return looped(Nested)


def over_a_memory(cell):
    """A recurrent layer with a memory, and lengths of both."""
    # few steps, as Keras itself takes its time over each of a long loop
    x, memory = keras.Input((3, 2), name="x"), keras.Input((None, 5), name="memory")
    lens, steps = (keras.Input((), dtype="int32", name=name) for name in ("lens", "steps"))
    out, weights = AttentionRNN(cell, name="decode")(x, memory, lens, input_lens=steps, return_attention_scores=True)
    return keras.Model([x, memory, lens, steps], {"out": out, "weights": weights})


def luongs_decoder():
    cell = L.GRUCell(4, name="cell")
    attend = BilinearAttention(name="attend")
    return over_a_memory(AttentionCell(cell, attend, when="after", attention_size=3, input_feeding=True))


def location_sensitive():
    attend = LocationSensitiveAttention(4, filters=2, kernel_size=3, cumulative=True, name="attend")
    return over_a_memory(AttentionCell(L.LSTMCell(4, name="cell"), attend))


DECODERS = {
    each.build.__name__: each
    for each in (
        ProofModel(greedy_decoder),
        ProofModel(attention_in_loops, lowering="adaptive"),
        ProofModel(bias_of_pairs),
        ProofModel(bias_of_positions),
        ProofModel(luongs_decoder),
        ProofModel(location_sensitive),
        ProofModel(step_of_a_growing_state),
        ProofModel(step_of_fixed_capacity),
    )
}
