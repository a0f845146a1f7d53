"""ONNX functions of TensorFlow's string hashes: FarmHash, SipHash, FingerprintCat64.

`Fingerprint` is FarmHash's `Fingerprint64` (Geoff Pike, https://github.com/google/farmhash), `farmhashna::Hash64`, with
the source's names of variables; `KeyedHash` is SipHash-2-4 (Aumasson and Bernstein 2012), `Crossed` TensorFlow's
`FingerprintCat64`. Numbers are int64 instead of uint64: the low 64 bits of sums and products, which onnxruntime keeps,
are the same. If no shape is stated, values have the shape (texts, 1).
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from ..._onnx.function_builder import build_function
from ..._onnx.lazy_values import Outputs, Value, constant, for_loop, if_else, op
from .string_functions import called_functions
from .utf8_bytes import Bytes, encode_characters, encode_texts, gather_words, rotate_right, shift_right, to_int64

# Constants of `farmhash.cc` (`SEED` too), of TensorFlow's `FingerprintCat64`, and of SipHash ("somepseudorandomly...")
K0, K1, K2 = map(to_int64, (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
SEED = 81
CAT_MULTIPLIER = to_int64(0xC6A4A7935BD1E995)
SIPHASH_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)
# In onnxruntime 1.15 and 1.16, whose newest opset is 19, sessions with these functions fail
MIN_OPSET = 20
Pair = tuple[Value, Value]


def build_hash_functions(model: onnx.ModelProto, opset: int) -> list[onnx.FunctionProto]:
    """Return the functions of this file that the nodes of a model call, for an opset."""
    return [_build_function(name, opset) for name in FUNCTIONS if name in called_functions(model)]


def find_hash_opset(model: onnx.ModelProto) -> int:
    """Return the lowest opset for the hash functions that a model calls; 0 if there are no such calls."""
    return MIN_OPSET if not called_functions(model).isdisjoint(FUNCTIONS) else 0


def _build_function(name: str, opset: int) -> onnx.FunctionProto:
    input_names, output_names, body = FUNCTIONS[name]
    arguments = {input_name: Value() for input_name in input_names}
    outputs = body(*arguments.values())
    results = zip(output_names, [outputs] if isinstance(outputs, Value) else outputs, strict=True)
    return build_function(name, arguments, dict(results), opset)


def hash_bucket(hashes: Value, count: Value) -> Value:
    """Return hashes, as unsigned 64-bit integers of any shape, modulo a scalar count."""
    remainder = op.Mod(*(op.Cast(value, to=TensorProto.UINT64) for value in (hashes, count)))
    return op.Cast(remainder, to=TensorProto.INT64)


def combine_hashes(first: Value, second: Value) -> Value:
    """Return `FingerprintCat64` of two hashes, whose shapes broadcast."""
    mixed = (first ^ CAT_MULTIPLIER) ^ (_shift_mix(second * CAT_MULTIPLIER) * CAT_MULTIPLIER)
    return _shift_mix(_shift_mix(mixed * CAT_MULTIPLIER) * CAT_MULTIPLIER)


def fingerprint(characters: Value) -> Value:
    """Return `Fingerprint64` of texts, (texts,), from their characters, (texts, max characters)."""
    # `Hash64` has one formula for each class of lengths. All are computed for all texts, and the right one is selected:
    # offsets outside of a text are clipped to 0, or lead to zeros. Only the loop for more than 64 bytes is in an `If`.
    texts = encode_texts(characters)
    size = texts.lengths
    offsets = op.Max(size * [0, 0, 0, 0, 1, 1, 1, 1, 1, 1] + [0, 8, 16, 24, -32, -24, -16, -8, -4, -1], 0)
    *words, last_4_bytes, last_byte = gather_words(texts.words, offsets, 10)
    (middle,) = gather_words(texts.words, size // 2, 1)
    mul, first = size * 2 + K2, words[0]
    has_longer = op.Squeeze(texts.longest > 64)
    u, v, mul_of_longer = if_else(has_longer, _mix_longer(texts, first), (size, size, size), TensorProto.INT64)
    mixes_of_shorter = (
        (size <= 64, _mix_len_33_to_64(words, mul)),
        (size <= 32, _mix_len_17_to_32(words, mul)),
        (size <= 16, _mix_len_8_to_16(first, words[-1], mul)),
        (size < 8, (size + _low_bits(first, 32) * 8, _low_bits(last_4_bytes, 32))),
    )
    for is_short, (short_u, short_v) in mixes_of_shorter:
        u, v = op.Where(is_short, short_u, u), op.Where(is_short, short_v, v)
    hashes = _hash_len_16(u, v, op.Where(size <= 64, mul, mul_of_longer))
    return op.Reshape(op.Where(size < 4, _hash_len_0_to_3(size, first, middle, last_byte), hashes), [-1])


def _hash_len_0_to_3(size: Value, first: Value, middle: Value, last: Value) -> Value:
    y, z = _low_bits(first, 8) + _low_bits(middle, 8) * 256, size + _low_bits(last, 8) * 4
    return op.Where(op.Equal(size, 0), K2, _shift_mix((y * K2) ^ (z * K0)) * K2)


def _mix_len_8_to_16(first: Value, last: Value, mul: Value) -> Pair:
    """Return the arguments u and v of `HashLen16` for texts of 8 to 16 bytes."""
    a = first + K2
    return rotate_right(last, 37) * mul + a, (rotate_right(a, 25) + last) * mul


def _mix_len_17_to_32(words: Sequence[Value], mul: Value, factor: int = K1) -> Pair:
    """Return u and v for texts of 17 to 32 bytes, from the first two and the last two of `words`."""
    a, b, c, d = words[0] * factor, words[1], words[-1] * mul, words[-2] * K2
    return rotate_right(a + b, 43) + rotate_right(c, 30) + d, a + rotate_right(b + K2, 18) + c


def _mix_len_33_to_64(words: Sequence[Value], mul: Value) -> Pair:
    """Return u and v for texts of 33 to 64 bytes, from the first four and the last four words."""
    y, v = _mix_len_17_to_32(words, mul, K2)
    z = _hash_len_16(y, v, mul)
    e, f, g, h = words[2] * mul, words[3], (y + words[4]) * mul, (z + words[5]) * mul
    return rotate_right(e + f, 43) + rotate_right(g, 30) + h, e + rotate_right(f + words[0] * K2, 18) + g


def _mix_longer(texts: Bytes, first: Value) -> Outputs:
    """Return u, v and the multiplier of `HashLen16` for longer texts, by a `Loop` over blocks of 64 bytes."""
    zeros = texts.lengths * 0
    start_y = SEED * K1 + 113
    product = (start_y * K2 + 113) % 2**64
    start_z = (product ^ product >> 47) * K2
    loop_blocks = (texts.lengths - 1) // 64

    def step(index: Value, *state: Value) -> Outputs:
        words = _gather_block(texts, index * 64 + zeros)
        return _select_state(index < loop_blocks, _mix_block(state, words, constant(K1)), state)

    start = (first + to_int64(SEED * K2), zeros + to_int64(start_y), zeros + to_int64(start_z), *[zeros] * 4)
    x, y, z, v1, v2, w1, w2 = for_loop((texts.longest - 1) // 64, step, *start, rank=2)
    # The last 64 bytes, which overlap the last block of the loop, have a multiplier of their own
    mul = _low_bits(z, 8) * 2 + K1
    w1 = w1 + (texts.lengths - 1) - loop_blocks * 64
    v1 = v1 + w1
    last_block = _gather_block(texts, op.Max(texts.lengths - 64, 0))
    x, y, z, v1, v2, w1, w2 = _mix_block((x, y, z, v1, v2, w1 + v1, w2), last_block, mul, 9)
    u = _hash_len_16(v1, w1, mul) + _shift_mix(y) * K0 + z
    return u, _hash_len_16(v2, w2, mul) + x, mul


def _mix_block(state: Sequence[Value], words: Sequence[Value], mul: Value, factor: int = 1) -> Outputs:
    """Return the state (x, y, z, v1, v2, w1, w2) after a block of eight words."""
    x, y, z, v1, v2, w1, w2 = state
    x = (rotate_right(x + y + v1 + words[1], 37) * mul) ^ (w2 * factor)
    y = rotate_right(y + v2 + words[6], 42) * mul + v1 * factor + words[5]
    z = rotate_right(z + w1, 33) * mul
    v = _weak_hash_len_32(words[:4], v2 * mul, x + w1)
    w = _weak_hash_len_32(words[4:], z + w2, y + words[2])
    return (z, y, x, *v, *w)


def _weak_hash_len_32(words: Sequence[Value], a: Value, b: Value) -> Pair:
    """Return a 128-bit hash of four words and two seeds, as two int64."""
    w, x, y, z = words
    a = a + w
    b = rotate_right(b + a + z, 21)
    c = a + x + y
    return c + z, b + rotate_right(c, 44) + a


def _hash_len_16(u: Value, v: Value, mul: Value) -> Value:
    """Return a hash of two int64; `mul` depends on the length of the text."""
    return _shift_mix((v ^ _shift_mix((u ^ v) * mul)) * mul) * mul


def _shift_mix(value: Value) -> Value:
    return value ^ shift_right(value, 47)


def _low_bits(value: Value, bits: int) -> Value:
    return op.BitwiseAnd(value, 2**bits - 1)


def _gather_block(texts: Bytes, start: Value) -> list[Value]:
    """Return the eight words of the 64 bytes of each text that begin at `start`."""
    return gather_words(texts.words, start + np.arange(0, 64, 8), 8)


def _select_state(condition: Value, next_state: Sequence[Value], state: Sequence[Value]) -> Outputs:
    return tuple(op.Where(condition, *pair) for pair in zip(next_state, state, strict=True))


def keyed_hash(characters: Value, key: Value) -> Value:
    """Return SipHash-2-4 of texts, (texts,), from their characters, (texts, max characters), and a key (2,)."""
    texts = encode_texts(characters)
    zeros, size = texts.lengths * 0, texts.lengths
    keys = [op.Gather(key, index, axis=0) for index in (0, 1)]
    start_state = [zeros + (keys[index % 2] ^ to_int64(start)) for index, start in enumerate(SIPHASH_START)]

    def compress(index: Value, *state: Value) -> Outputs:
        (word,) = gather_words(texts.words, index * 8 + zeros, 1)
        # The last word, which may hold no byte of the text, has the length in its highest byte
        word = word + op.Where(op.Equal(size // 8, index), size * to_int64(2**56), 0)
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _sip_round(*_sip_round(v0, v1, v2, v3 ^ word))
        return _select_state(index <= size // 8, (v0 ^ word, v1, v2, v3), state)

    def finalize(index: Value, *state: Value) -> Outputs:
        return _sip_round(*state)

    v0, v1, v2, v3 = for_loop(texts.longest // 8 + 1, compress, *start_state, rank=2)
    v0, v1, v2, v3 = for_loop(constant([4]), finalize, v0, v1, v2 ^ 255, v3, rank=2)
    return op.Reshape(v0 ^ v1 ^ v2 ^ v3, [-1])


def _sip_round(v0: Value, v1: Value, v2: Value, v3: Value) -> tuple[Value, Value, Value, Value]:
    """Return the state after a SipRound; a rotation to the left by n bits is one to the right by 64 - n."""
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = rotate_right(v1, 51) ^ v0, rotate_right(v3, 48) ^ v2
    v0, v2 = rotate_right(v0, 32) + v3, v2 + v1
    v1, v3 = rotate_right(v1, 47) ^ v2, rotate_right(v3, 43) ^ v0
    return v0, v1, rotate_right(v2, 32), v3


# Function name: (input names, output names, body). The names are part of exported files
FUNCTIONS: dict[str, tuple[list[str], list[str], Callable[..., Value | Pair]]] = {
    "Bytes": (["characters"], ["codes", "sizes"], encode_characters),
    "Fingerprint": (["characters"], ["hash"], fingerprint),
    "KeyedHash": (["characters", "key"], ["hash"], keyed_hash),
    "Crossed": (["one", "other"], ["hash"], combine_hashes),
    "Bucket": (["hash_of_64_bits", "count"], ["hash"], hash_bucket),
}
