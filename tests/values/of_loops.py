"""Loops and branches, complex numbers and signals, recurrent layers, and losses."""

from functools import cache, partial

import keras
import numpy as np
from keras import layers, ops

from .grids import EMPTY_AXIS, FLOAT32, FLOATS, INFINITIES, NAN, REALS, UNIT_AXES, feed, fill, make_rows
from .table import add

X = np.arange(12.0).reshape(4, 3) - 5


# Loops and branches; c is the carry
add("keras.ops.scan", lambda x: ops.scan(lambda c, row: (c + row, c * row), ops.zeros_like(x[0]), x), make_rows, REALS)
scan = partial(lambda function, x: ops.scan(function, x[0], x, reverse=True), lambda c, row: (c + row, c))
add("keras.ops.scan", scan, make_rows, REALS, "reverse")
add("keras.ops.scan", lambda x: ops.scan(lambda c, _: (c / 2, c), x[0], None, length=3), make_rows, FLOATS, "length")
for size in (1, 2, 5, 8):
    make_inputs = fill((2, size, 3))
    for variant, options in {"": {}, ", reverse": {"reverse": True}}.items():
        scan = partial(ops.associative_scan, lambda a, b: a + b, axis=1, **options)
        add("keras.ops.associative_scan", scan, make_inputs, REALS, f"{size} steps{variant}", is_static=True)
while_loop = partial(ops.while_loop, lambda i, a: ops.sum(ops.abs(a)) < 1e3, lambda i, a: (i + 1, a * 2))
add("keras.ops.while_loop", lambda x: while_loop((0, x), 5), make_rows, FLOATS)
fori_loop = partial(ops.fori_loop, -1, 3)
add("keras.ops.fori_loop", lambda x: fori_loop(lambda i, a: a * ops.cast(i, a.dtype) - x, x), make_rows, REALS)
add("keras.ops.cond", lambda x: ops.cond(ops.sum(x) > 0, lambda: x + x, lambda: x - 1), make_rows, REALS)
BRANCHES = [lambda x: x * 2, lambda x: x - 1, lambda x: -x]
for number in (-1, 0, 1, 2, 3, 2**31 - 1, -(2**31)):
    make_inputs = feed(X, np.int32(number))
    add("keras.ops.switch", lambda x, index: ops.switch(index, BRANCHES, x), make_inputs, FLOATS, f"index {number}")
add("keras.ops.map", lambda x: ops.map(lambda row: (row - row[0], row > 0), x), make_rows, REALS)
vectorized_map = partial(ops.vectorized_map, lambda row: row * ops.max(row))
add("keras.ops.vectorized_map", vectorized_map, fill((4, 3)), REALS)

# Complex numbers and signals
COMPLEX = fill((2, 6, 8), (2, 6, 8))  # real and imaginary parts
SIGNAL = fill((2, 40))
ANGLES = feed(
    np.array([0.0, 0.0, -0.0, -0.0, 1, -1, 1, -1, 3]),
    np.array([0.0, -0.0, 0.0, -0.0, 0.0, 0.0, -0.0, -0.0, -4]),
    infinite=np.array([[np.inf, np.inf, -np.inf, -np.inf, 1, np.inf], [np.inf, -np.inf, np.inf, -np.inf, np.inf, 1]]),
    nan=np.array([[np.nan, 1], [0, np.nan]]),
)


def to_complex(real, imaginary):
    return ops.view_as_complex(ops.stack([real, imaginary], -1))


def split_parts(z):
    return ops.real(z), ops.imag(z)


def scale_by_largest(*parts):
    """Divide the parts by their largest magnitude and add 2."""
    # A transform rounds all results relative to the largest, so that small ones have few digits of their own.
    largest = ops.max(ops.stack([ops.max(ops.abs(part)) for part in parts]))
    return [part / largest + 2 for part in parts]


for name in ("fft", "fft2", "ifft2"):
    add(f"keras.ops.{name}", lambda *z, name=name: scale_by_largest(*getattr(ops, name)(z)), COMPLEX, FLOAT32)
for length in (None, 4, 7, 9, 16):
    rfft, irfft = partial(ops.rfft, fft_length=length), partial(ops.irfft, fft_length=length)
    add("keras.ops.rfft", lambda x, rfft=rfft: scale_by_largest(*rfft(x)), SIGNAL, FLOAT32, f"length {length}")
    add("keras.ops.irfft", lambda *z, irfft=irfft: scale_by_largest(irfft(z)), COMPLEX, FLOAT32, f"length {length}")
hamming = {"window": "hamming", "center": False}
for variant, length, fft_length, options in (("", 16, 16, {}), ("hamming, no centre", 9, 12, hamming)):
    options = {"sequence_length": length, "sequence_stride": 4, "fft_length": fft_length, **options}
    stft, istft = partial(ops.stft, **options), partial(ops.istft, **options)
    add("keras.ops.stft", lambda x, f=stft: scale_by_largest(*f(x)), SIGNAL, FLOAT32, variant)
    add("keras.ops.istft", lambda x, f=stft, g=istft: scale_by_largest(g(f(x))), SIGNAL, FLOAT32, variant)
add("keras.ops.extract_sequences", lambda x: ops.extract_sequences(x, 8, 3), SIGNAL, FLOATS)
add("keras.ops.view_as_complex", lambda *z: split_parts(to_complex(*z)), ANGLES, FLOAT32)
add("keras.ops.polar", lambda *z: split_parts(ops.polar(*z)), ANGLES, FLOAT32, limit=1e-5)
add("keras.ops.view_as_real", lambda *z: ops.view_as_real(to_complex(*z) + to_complex(*z)), ANGLES, FLOAT32)
add("keras.ops.angle", lambda *z: ops.angle(to_complex(*z)), ANGLES, FLOAT32)
add("keras.ops.angle", ops.angle, make_rows, FLOAT32, "of real numbers")
for name in ("conj", "conjugate"):
    add(f"keras.ops.{name}", lambda *z, name=name: split_parts(getattr(ops, name)(to_complex(*z))), ANGLES, FLOAT32)
for name in ("real", "imag"):
    add(f"keras.ops.{name}", lambda *z, name=name: getattr(ops, name)(to_complex(*z)), ANGLES, FLOAT32)
    add(f"keras.ops.{name}", getattr(ops, name), make_rows, FLOAT32, "of real numbers")


# Losses, of probabilities or of logits
def compute_loss(loss, activate_target, activate_output, target, output):
    return loss(activate_target(target), activate_output(output))


for variant, options in {"": {}, "logits": {"from_logits": True}}.items():
    for name, activate in {"categorical": ops.softmax, "binary": ops.sigmoid}.items():
        loss = partial(getattr(ops, f"{name}_crossentropy"), **options)
        function = partial(compute_loss, loss, activate, ops.relu if options else activate)
        add(f"keras.ops.{name}_crossentropy", function, fill((3, 5), (3, 5)), FLOATS, variant, limit=1e-5)
    loss = partial(ops.sparse_categorical_crossentropy, [0, 4, 2], **options)
    function = partial(lambda loss, activate, x: loss(activate(x)), loss, ops.relu if options else ops.softmax)
    add("keras.ops.sparse_categorical_crossentropy", function, fill((3, 5)), FLOATS, variant, limit=1e-5)
SCORES = np.repeat(np.random.default_rng(0).standard_normal((2, 7, 4)).round(2), 2, 1)  # of shape (2, 14, 4)
LENGTHS = np.int32([14, 5])
for strategy, operator in {"greedy": "CTCGreedyDecoder", "beam_search": "CTCBeamSearchDecoder"}.items():
    decode, refusal = partial(ops.ctc_decode, strategy=strategy), f"Op `{operator}`"
    add("keras.ops.ctc_decode", decode, feed(SCORES, LENGTHS), FLOAT32, strategy, refusal=refusal)
make_inputs = feed(np.int32([[1, 2, 3], [1, 1, 0]]), SCORES, np.int32([3, 2]), LENGTHS)
add("keras.ops.ctc_loss", ops.ctc_loss, make_inputs, FLOAT32, is_static=True, refusal="Op `While`")


# Recurrent layers
def draw_sequences(*shape):
    """Return an input maker of random sequences of shape (3, 5, *shape), with one infinity or NaN in the second step.

    There are no empty sequences: onnxruntime's LSTM terminates the process.
    """

    def make_inputs(kind, dtype):
        x = np.random.default_rng(0).standard_normal((3, 5, *shape)).astype(dtype)
        x[1, 1].flat[0] = {NAN: np.nan, INFINITIES: np.inf}.get(kind, 0)
        return None if kind == EMPTY_AXIS else (x[:1, :1] if kind == UNIT_AXES else x,)

    return make_inputs


MASK = np.array([[1, 1, 1, 0, 0], [0, 1, 0, 0, 1], [0, 0, 0, 0, 0]], bool)


def add_recurrent(build, *shape, variant="", is_operator=False):
    """Add cases for a layer without and with a mask; `build` is a partial call of its class.

    `is_operator`: without a mask the layer becomes one ONNX operator, and onnxruntime clips the inputs of its gates.
    """

    @cache
    def build_once():
        keras.utils.set_random_seed(0)
        return build()

    name = f"keras.layers.{build.func.__name__}"

    def call_with_mask(x):
        return build_once()(x, mask=ops.slice(MASK, (0, 0), ops.shape(x)[:2]))

    masked_variant = f"{variant}, masked" if variant else "masked"
    deviations = () if not is_operator else (INFINITIES, NAN) if "relu" in variant else (NAN,)
    add(name, lambda x: build_once()(x), draw_sequences(*shape), FLOAT32, variant, limit=1e-4, deviations=deviations)
    add(name, call_with_mask, draw_sequences(*shape), FLOAT32, masked_variant, limit=1e-4)


EVERY_STEP = {"return_sequences": True, "return_state": True}
for layer_type in (layers.SimpleRNN, layers.GRU, layers.LSTM):
    for variant, options in {
        "": {},
        "return_sequences and return_state": EVERY_STEP,
        "go_backwards": {"return_sequences": True, "go_backwards": True, "zero_output_for_mask": True},
        "relu, no bias": {"use_bias": False, "activation": "relu"},
    }.items():
        add_recurrent(partial(layer_type, 3, **options), 4, variant=variant, is_operator=layer_type is layers.LSTM)
add_recurrent(partial(layers.GRU, 3, reset_after=False), 4, variant="reset_after=False")
add_recurrent(partial(layers.LSTM, 3, recurrent_activation="hard_sigmoid"), 4, variant="hard sigmoid")
for mode in ("concat", "sum", None):
    build = partial(layers.Bidirectional, layers.GRU(3, **EVERY_STEP), merge_mode=mode)
    add_recurrent(build, 4, variant=f"merge_mode={mode}")
add_recurrent(partial(layers.Bidirectional, layers.LSTM(3)), 4, variant="return_sequences=False", is_operator=True)
add_recurrent(partial(layers.RNN, [layers.GRUCell(3), layers.LSTMCell(2)], **EVERY_STEP), 4, variant="two cells")
build_once = cache(lambda: layers.TimeDistributed(layers.Dense(3)))
# With unknown sizes Keras itself returns other sizes in a graph than in eager mode.
add("keras.layers.TimeDistributed", lambda x: build_once()(x), fill((3, 5, 4)), FLOAT32, is_static=True, limit=1e-5)
add_recurrent(partial(layers.ConvLSTM1D, 2, 3, padding="same", **EVERY_STEP), 6, 2)
add_recurrent(partial(layers.ConvLSTM2D, 2, 3), 5, 4, 2)
add_recurrent(partial(layers.ConvLSTM3D, 2, 2, padding="same"), 3, 3, 2, 2)
