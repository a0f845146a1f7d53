"""Models with attention inside of TensorFlow's loops: decoders written without `keras_attn.decoding`."""

import keras
import numpy as np
import tensorflow as tf
from keras import layers

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention

D, STATE, TOKENS, LENGTH, END = 5, 6, 7, 5, 2


class LoopLayer(layers.Layer):
    """A GRU cell whose input is the context that its state attends to."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.attention = AdditiveAttention(8, name="attention")
        self.cell, self.head = layers.GRUCell(STATE, name="cell"), layers.Dense(TOKENS, name="head")
        self.table = layers.Embedding(TOKENS, STATE, name="table")

    def build(self, memory_shape, valid_lens_shape):
        self.attention.build((None, 1, STATE), memory_shape, memory_shape)
        self.cell.build((None, D))
        self.head.build((None, STATE))
        self.table.build(())

    def step(self, state, keys, memory, valid_lens):
        context, weights = self.attention(state[:, None], keys, memory, valid_lens, return_attention_scores=True)
        _, (state,) = self.cell(context[:, 0], [state])
        return state, weights[:, 0]


def compute_states(memory):
    return tf.zeros((tf.shape(memory)[0], STATE))


class GreedyLoop(LoopLayer):
    """Greedy decoding that stops once all rows have ended; the outputs always have `LENGTH` steps."""

    def call(self, memory, valid_lens):
        keys = self.attention.precompute(memory)
        arrays = [
            tf.TensorArray(kind, LENGTH, element_shape=shape)
            for kind, shape in ((tf.int32, [None]), ("float32", [None, TOKENS]), ("float32", [None, None]))
        ]

        def body(i, state, token, done, tokens, logits, steps):
            state, weights = self.step(state + self.table(token), keys, memory, valid_lens)
            scores = self.head(state)
            token = tf.where(done, END, tf.argmax(scores, -1, output_type=tf.int32))
            tokens, steps = tokens.write(i, token), steps.write(i, tf.where(done[:, None], 0.0, weights))
            logits = logits.write(i, tf.where(done[:, None], 0.0, scores))
            return i + 1, state, token, done | tf.equal(token, END), tokens, logits, steps

        def condition(i, state, token, done, *_):
            return (i < LENGTH) & ~tf.reduce_all(done)

        rows = tf.shape(memory)[0]
        first = (0, compute_states(memory), tf.ones((rows,), tf.int32), tf.zeros((rows,), tf.bool), *arrays)
        *_, tokens, logits, weights = tf.while_loop(condition, body, first)
        return {
            "tokens": tf.transpose(tokens.stack()),
            "logits": tf.transpose(logits.stack(), (1, 0, 2)),
            "weights": tf.transpose(weights.stack(), (1, 0, 2)),
        }


class NestedLoop(LoopLayer):
    """Nested loops with a growing number of steps, and branches that attend, inside and outside of the loops."""

    def call(self, memory, valid_lens):
        keys = self.attention.precompute(memory)

        def advance(state):
            return self.step(state, keys, memory, valid_lens)[0]

        def run_inner_loop(i, state):
            _, state = tf.while_loop(lambda j, _: j <= i, lambda j, state: (j + 1, advance(state)), (0, state))
            return i + 1, tf.cond(tf.equal(i, 1), lambda: advance(state) * 2.0, lambda: state / 2.0)

        _, state = tf.while_loop(lambda i, _: i < 3, run_inner_loop, (0, compute_states(memory)))
        return {"state": tf.cond(tf.reduce_sum(valid_lens) > 6, lambda: advance(state), lambda: advance(-state))}


class ShrinkingLoop(LoopLayer):
    """A loop with a growing cache, from which rows are removed once they have ended."""

    def call(self, memory, valid_lens):
        rows = tf.shape(memory)[0]

        def body(i, state, cache, active_rows, buffer):
            keys, values = (tf.gather(memory, active_rows) for _ in range(2))
            state, _ = self.step(state, keys, values, tf.gather(valid_lens, active_rows))
            cache = tf.concat([cache, state[:, None]], 1)
            summary = self.attention(state[:, None], cache[..., :D], cache[..., :D])[:, 0]
            buffer = tf.tensor_scatter_nd_update(buffer, active_rows[:, None], tf.concat([summary, summary[:, :1]], -1))
            is_active = tf.gather(valid_lens, active_rows) > i
            return i + 1, *(tf.boolean_mask(tensor, is_active) for tensor in (state, cache, active_rows)), buffer

        first = (0, compute_states(memory), tf.zeros((rows, 0, STATE)), tf.range(rows), compute_states(memory))
        shapes = ([], [None, STATE], [None, None, STATE], [None], [None, STATE])
        invariants = tuple(map(tf.TensorShape, shapes))
        loop = tf.while_loop(lambda *state: tf.size(state[3]) > 0, body, first, shape_invariants=invariants)
        return {"made": loop[-1]}


class BufferLoop(LoopLayer):
    """`keras.ops.while_loop`, and `keras.ops.slice_update` into a buffer."""

    def call(self, memory, valid_lens):
        ops = keras.ops

        def body(i, state, buffer):
            state, _ = self.step(state, memory, memory, valid_lens)
            return i + 1, state, ops.slice_update(buffer, (0, i, 0), state[:, None])

        rows = ops.shape(memory)[0]
        first = (0, ops.zeros((rows, STATE)), ops.zeros((rows, LENGTH, STATE)))
        return {"made": ops.while_loop(lambda i, *_: i < LENGTH, body, first)[2]}


class RefinementLoop(layers.Layer):
    """A loop over two attention layers: one of keras_attn with a causal mask, and one of Keras."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.ours = MultiHeadAttention(DotProductAttention(), 2, name="ours")
        self.stock = layers.MultiHeadAttention(2, 3, name="stock")

    def build(self, memory_shape, valid_lens_shape):
        self.ours.build(memory_shape, memory_shape, memory_shape)
        self.stock.build(memory_shape, memory_shape)

    def call(self, memory, valid_lens):
        def body(i, x):
            x = x + self.ours(x, x, x, valid_lens, use_causal_mask=True)
            return i + 1, x + self.stock(x, x)

        return {"x": tf.while_loop(lambda i, _: i < 3, body, (0, memory))[1]}


def build_loop_model(layer):
    """Build a model of one of these layers, with a memory of any length and its valid lengths."""
    size = 6 if layer is RefinementLoop else D
    memory, lens = keras.Input((None, size), name="memory"), keras.Input((), dtype="int32", name="valid_lens")
    keras.utils.set_random_seed(3)
    model = keras.Model([memory, lens], layer(name="loop")(memory, lens), name="looped")
    rng = np.random.default_rng(5)
    for weight in model.weights:
        if not weight.path.endswith("seed_generator_state"):
            weight.assign(weight + 0.3 * rng.standard_normal(weight.shape))
    return model


def draw_samples(model, rows=4, length=7):
    """Draw inputs of a loop model: row i has i + 1 valid positions."""
    size = model.input_shape[0][-1]
    memory = np.random.default_rng(1).standard_normal((rows, length, size)).astype("float32")
    return {"memory": memory, "valid_lens": np.arange(1, rows + 1, dtype="int32")}
