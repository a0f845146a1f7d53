"""Loops and branches, complex numbers and signals, recurrent layers, and losses."""

from functools import cache, partial

import keras
import numpy as np
from keras import layers, ops

from .grids import EMPTY, FLOATS, INFINITE, NAN, ONE, REALS, fixed, ordinary, rows
from .table import add

ONLY = ("float32",)
X = np.arange(12.0).reshape(4, 3) - 5


def indexed(*indices):
    """The same array, and each of these numbers."""
    return [fixed(X, np.int32(index)) for index in indices]


# Loops and branches
add("keras.ops.scan", lambda x: ops.scan(lambda c, row: (c + row, c * row), ops.zeros_like(x[0]), x), rows, REALS)
add("keras.ops.scan", lambda x: ops.scan(lambda c, row: (c + row, c), x[0], x, reverse=True), rows, REALS, "reverse")
add("keras.ops.scan", lambda x: ops.scan(lambda c, _: (c / 2, c), x[0], None, length=3), rows, FLOATS, "length")
for size in (1, 2, 5, 8):
    given = ordinary((2, size, 3))
    for how, options in {"": {}, ", reverse": {"reverse": True}}.items():
        scanned = partial(ops.associative_scan, lambda a, b: a + b, axis=1, **options)
        add("keras.ops.associative_scan", scanned, given, REALS, f"{size} steps{how}", known=True)
add(
    "keras.ops.while_loop",
    lambda x: ops.while_loop(lambda i, a: ops.sum(ops.abs(a)) < 1e3, lambda i, a: (i + 1, a * 2), (0, x), 5),
    rows,
    FLOATS,
)
add("keras.ops.fori_loop", lambda x: ops.fori_loop(-1, 3, lambda i, a: a * ops.cast(i, a.dtype) - x, x), rows, REALS)
add("keras.ops.cond", lambda x: ops.cond(ops.sum(x) > 0, lambda: x + x, lambda: x - 1), rows, REALS)
BRANCHES = [lambda x: x * 2, lambda x: x - 1, lambda x: -x]
for number in (-1, 0, 1, 2, 3, 2**31 - 1, -(2**31)):
    given = fixed(X, np.int32(number))
    add("keras.ops.switch", lambda x, index: ops.switch(index, BRANCHES, x), given, FLOATS, f"index {number}")
add("keras.ops.map", lambda x: ops.map(lambda row: (row - row[0], row > 0), x), rows, REALS)
add(
    "keras.ops.vectorized_map", lambda x: ops.vectorized_map(lambda row: row * ops.max(row), x), ordinary((4, 3)), REALS
)

# Complex numbers and signals
PAIR, SIGNAL = ordinary((2, 6, 8), (2, 6, 8)), ordinary((2, 40))
ANGLES = fixed(
    np.array([0.0, 0.0, -0.0, -0.0, 1, -1, 1, -1, 3]),
    np.array([0.0, -0.0, 0.0, -0.0, 0.0, 0.0, -0.0, -0.0, -4]),
    infinite=np.array([[np.inf, np.inf, -np.inf, -np.inf, 1, np.inf], [np.inf, -np.inf, np.inf, -np.inf, np.inf, 1]]),
    nan=np.array([[np.nan, 1], [0, np.nan]]),
)


def as_complex(real, imaginary):
    return ops.view_as_complex(ops.stack([real, imaginary], -1))


def apart(z):
    return ops.real(z), ops.imag(z)


def beside_the_largest(*parts):
    """Numbers to be compared to so much of the largest: what is small beside it is rounded as that is."""
    largest = ops.max(ops.stack([ops.max(ops.abs(part)) for part in parts]))
    return [part / largest + 2 for part in parts]


for name in ("fft", "fft2", "ifft2"):
    add(f"keras.ops.{name}", lambda *z, name=name: beside_the_largest(*getattr(ops, name)(z)), PAIR, ONLY)
for length in (None, 4, 7, 9, 16):
    of, how = {"fft_length": length}, f"length {length}"
    add("keras.ops.rfft", lambda x, of=of: beside_the_largest(*ops.rfft(x, **of)), SIGNAL, ONLY, how)
    add("keras.ops.irfft", lambda *z, of=of: beside_the_largest(ops.irfft(z, **of)), PAIR, ONLY, how)
for how, sizes, options in (
    ("", (16, 4, 16), {}),
    ("hamming, no centre", (9, 4, 12), {"window": "hamming", "center": False}),
):
    of = partial(ops.stft, sequence_length=sizes[0], sequence_stride=sizes[1], fft_length=sizes[2], **options)
    back = partial(ops.istft, sequence_length=sizes[0], sequence_stride=sizes[1], fft_length=sizes[2], **options)
    add("keras.ops.stft", lambda x, of=of: beside_the_largest(*of(x)), SIGNAL, ONLY, how)
    add("keras.ops.istft", lambda x, of=of, back=back: beside_the_largest(back(of(x))), SIGNAL, ONLY, how)
add("keras.ops.extract_sequences", lambda x: ops.extract_sequences(x, 8, 3), SIGNAL, FLOATS)
add("keras.ops.view_as_complex", lambda *z: apart(as_complex(*z)), ANGLES, ONLY)
add("keras.ops.polar", lambda *z: apart(ops.polar(*z)), ANGLES, ONLY, limit=1e-5)
add("keras.ops.view_as_real", lambda *z: ops.view_as_real(as_complex(*z) + as_complex(*z)), ANGLES, ONLY)
add("keras.ops.angle", lambda *z: ops.angle(as_complex(*z)), ANGLES, ONLY)
add("keras.ops.angle", ops.angle, rows, ONLY, "of real numbers")
for name in ("conj", "conjugate"):
    add(f"keras.ops.{name}", lambda *z, name=name: apart(getattr(ops, name)(as_complex(*z))), ANGLES, ONLY)
for name in ("real", "imag"):
    add(f"keras.ops.{name}", lambda *z, name=name: getattr(ops, name)(as_complex(*z)), ANGLES, ONLY)
    add(f"keras.ops.{name}", getattr(ops, name), rows, ONLY, "of real numbers")

# Losses
SCORES = ordinary((3, 5))
TWO = ordinary((3, 5), (3, 5))
for how, of in {"": {}, "logits": {"from_logits": True}}.items():
    as_given = ops.softmax if not of else ops.relu
    add(
        "keras.ops.categorical_crossentropy",
        lambda a, b, of=of, as_given=as_given: ops.categorical_crossentropy(ops.softmax(a), as_given(b), **of),
        TWO,
        FLOATS,
        how,
        limit=1e-5,
    )
    add(
        "keras.ops.sparse_categorical_crossentropy",
        lambda a, of=of, as_given=as_given: ops.sparse_categorical_crossentropy([0, 4, 2], as_given(a), **of),
        SCORES,
        FLOATS,
        how,
        limit=1e-5,
    )
    as_share = ops.sigmoid if not of else ops.relu
    add(
        "keras.ops.binary_crossentropy",
        lambda a, b, of=of, as_share=as_share: ops.binary_crossentropy(ops.sigmoid(a), as_share(b), **of),
        TWO,
        FLOATS,
        how,
        limit=1e-5,
    )
STEPS = np.random.default_rng(0).standard_normal((2, 7, 4)).round(2)
STEPS = np.repeat(STEPS, 2, 1)
for strategy, operator in {"greedy": "CTCGreedyDecoder", "beam_search": "CTCBeamSearchDecoder"}.items():
    add(
        "keras.ops.ctc_decode",
        partial(ops.ctc_decode, strategy=strategy),
        fixed(STEPS, np.int32([14, 5])),
        ONLY,
        strategy,
        refused=f"Op `{operator}`",
    )
add(
    "keras.ops.ctc_loss",
    ops.ctc_loss,
    fixed(np.int32([[1, 2, 3], [1, 1, 0]]), STEPS, np.int32([3, 2]), np.int32([14, 5])),
    ONLY,
    known=True,
    refused="Op `Empty`",
)


# Recurrent layers
def sequences(*shape):
    """Sequences of normal draws, of these shapes of a step, one number of the second step not finite; one step."""

    def given(kind, dtype):
        x = np.random.default_rng(0).standard_normal((3, 5, *shape)).astype(dtype)
        x[1, 1].flat[0] = {NAN: np.nan, INFINITE: np.inf}.get(kind, 0)
        return None if kind == EMPTY else (x[:1, :1] if kind == ONE else x,)  # onnxruntime's LSTM ends the process then

    return given


HOLES = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0]], bool)


def layer(made, *shape, how="", is_operator=False):
    """Put a layer on the list, and the same with a mask: it is made when it is first called.

    Without a mask it may be one operator of ONNX, which bounds NaN as it does numbers.
    """

    @cache
    def built():
        keras.utils.set_random_seed(0)
        return made()

    name = f"keras.layers.{made.func.__name__}"

    def of_masked(x):
        return built()(x, mask=ops.slice(HOLES, (0, 0), ops.shape(x)[:2]))

    masked = f"{how}, masked" if how else "masked"
    deviates = () if not is_operator else (INFINITE, NAN) if "relu" in how else (NAN,)
    add(name, lambda x: built()(x), sequences(*shape), ONLY, how, limit=1e-4, deviates=deviates)
    add(name, of_masked, sequences(*shape), ONLY, masked, limit=1e-4)


EVERY_STEP = {"return_sequences": True, "return_state": True}
for each in (layers.SimpleRNN, layers.GRU, layers.LSTM):
    is_operator = each is layers.LSTM
    layer(partial(each, 3), 4, is_operator=is_operator)
    layer(partial(each, 3, **EVERY_STEP), 4, how="return_sequences and return_state", is_operator=is_operator)
    backwards = partial(each, 3, return_sequences=True, go_backwards=True, zero_output_for_mask=True)
    layer(backwards, 4, how="go_backwards", is_operator=is_operator)
    layer(partial(each, 3, use_bias=False, activation="relu"), 4, how="relu, no bias", is_operator=is_operator)
layer(partial(layers.GRU, 3, reset_after=False), 4, how="reset_after=False")
layer(partial(layers.LSTM, 3, recurrent_activation="hard_sigmoid"), 4, how="hard sigmoid")
for merge in ("concat", "sum", None):
    layer(partial(layers.Bidirectional, layers.GRU(3, **EVERY_STEP), merge_mode=merge), 4, how=f"merge_mode={merge}")
layer(partial(layers.Bidirectional, layers.LSTM(3)), 4, how="return_sequences=False", is_operator=True)
layer(partial(layers.RNN, [layers.GRUCell(3), layers.LSTMCell(2)], **EVERY_STEP), 4, how="two cells")
each_step = cache(lambda: layers.TimeDistributed(layers.Dense(3)))
# of unknown sizes Keras itself makes others in a graph
add("keras.layers.TimeDistributed", lambda x: each_step()(x), ordinary((3, 5, 4)), ONLY, known=True, limit=1e-5)
layer(partial(layers.ConvLSTM1D, 2, 3, padding="same", **EVERY_STEP), 6, 2)
layer(partial(layers.ConvLSTM2D, 2, 3), 5, 4, 2)
layer(partial(layers.ConvLSTM3D, 2, 2, padding="same"), 3, 3, 2, 2)
