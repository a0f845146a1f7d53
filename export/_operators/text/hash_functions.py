"""ONNX functions of TensorFlow's string hashes: FarmHash, SipHash, FingerprintCat64.

`Fingerprint` is FarmHash's `Fingerprint64` (Geoff Pike, https://github.com/google/farmhash), `farmhashna::Hash64`, and
keeps its letters; `KeyedHash` is SipHash-2-4 (Aumasson and Bernstein 2012), `Crossed` TensorFlow's `FingerprintCat64`.
All numbers are int64, of which onnxruntime keeps the lower 64 bits of products.
"""

from collections.abc import Callable, Sequence

import numpy as np
import onnx
from onnx import TensorProto

from ..._onnx.function_builder import build_function
from ..._onnx.lazy_values import Outputs, Value, branch, constant, op, repeated
from ..._onnx.traced_model import DOMAIN
from ..._onnx.traversal import all_nodes
from .utf8_bytes import Bytes, encode_characters, encode_texts, gather_words, rotate_right, shift_right, to_int64

K0, K1, K2 = (to_int64(each) for each in (0xC3A5C85C97CB3127, 0xB492B66FBE98F273, 0x9AE16A3B2F90404F))
CAT_MULTIPLIER = to_int64(0xC6A4A7935BD1E995)
SEED = 81
SIPHASH_START = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)  # of SipHash
Pair = tuple[Value, Value]


def hash_functions(model: onnx.ModelProto, opset: int) -> list[onnx.FunctionProto]:
    """Return the functions of this file that the nodes of a model call, at an opset."""
    return [_build_function(name, opset) for name in FUNCTIONS if name in _called_functions(model)]


def opset_of_hashes(model: onnx.ModelProto) -> int:
    """Return the lowest opset at which a model that calls them can be written; 0 for one that calls none."""
    return MIN_OPSET if not _called_functions(model).isdisjoint(FUNCTIONS) else 0


def _called_functions(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in all_nodes(model.graph) if node.domain == DOMAIN}


def _build_function(name: str, opset: int) -> onnx.FunctionProto:
    inputs, outputs, body = FUNCTIONS[name]
    arguments = {each: Value() for each in inputs}
    made = body(*arguments.values())
    return build_function(
        name, arguments, dict(zip(outputs, [made] if isinstance(made, Value) else made, strict=True)), opset
    )


def hash_bucket(hashed: Value, count: Value) -> Value:
    """Return hashes, as numbers from 0 to 2⁶⁴, modulo a count."""
    remainder = op.Mod(*(op.Cast(each, to=TensorProto.UINT64) for each in (hashed, count)))
    return op.Cast(remainder, to=TensorProto.INT64)


def combine_hashes(one: Value, other: Value) -> Value:
    """Return the hash of two hashes, `FingerprintCat64`."""
    found = (one ^ CAT_MULTIPLIER) ^ (_shift_mix(other * CAT_MULTIPLIER) * CAT_MULTIPLIER)
    return _shift_mix(_shift_mix(found * CAT_MULTIPLIER) * CAT_MULTIPLIER)


def fingerprint(characters: Value) -> Value:
    """Return the hashes of texts, (texts,), from their characters, (texts, most)."""
    texts = encode_texts(characters)
    size = texts.lengths
    places = op.Max(size * [0, 0, 0, 0, 1, 1, 1, 1, 1, 1] + [0, 8, 16, 24, -32, -24, -16, -8, -4, -1], 0)
    *words, last4, last = gather_words(texts.words, places, 10)
    (middle,) = gather_words(texts.words, size // 2, 1)
    mul, first = size * 2 + K2, words[0]
    are_long = op.Squeeze(texts.longest > 64)
    u, v, mul_of_65 = branch(are_long, _mix_longer(texts, first), (size, size, size), TensorProto.INT64)
    ways = (
        (size <= 64, _mix_len_33_to_64(words, mul)),
        (size <= 32, _mix_len_17_to_32(words, mul)),
        (size <= 16, _mix_len_8_to_16(first, words[-1], mul)),
        (size < 8, (size + _low_bits(first, 32) * 8, _low_bits(last4, 32))),
    )
    for is_short, (short_u, short_v) in ways:
        u, v = op.Where(is_short, short_u, u), op.Where(is_short, short_v, v)
    found = _hash_len_16(u, v, op.Where(size <= 64, mul, mul_of_65))
    return op.Reshape(op.Where(size < 4, _hash_len_0_to_3(size, first, middle, last), found), [-1])


def _hash_len_0_to_3(size: Value, first: Value, middle: Value, last: Value) -> Value:
    """Return the hashes of texts of up to three bytes."""
    y, z = _low_bits(first, 8) + _low_bits(middle, 8) * 256, size + _low_bits(last, 8) * 4
    return op.Where(op.Equal(size, 0), K2, _shift_mix((y * K2) ^ (z * K0)) * K2)


def _mix_len_8_to_16(first: Value, last: Value, mul: Value) -> Pair:
    """Return what the hashes of texts of 8 bytes to 16 are made of."""
    a = first + K2
    return rotate_right(last, 37) * mul + a, (rotate_right(a, 25) + last) * mul


def _mix_len_17_to_32(words: Sequence[Value], mul: Value, factor: int = K1) -> Pair:
    """Return the same of 17 bytes to 32, of whose words the first two count and the last two."""
    a, b, c, d = words[0] * factor, words[1], words[-1] * mul, words[-2] * K2
    return rotate_right(a + b, 43) + rotate_right(c, 30) + d, a + rotate_right(b + K2, 18) + c


def _mix_len_33_to_64(words: Sequence[Value], mul: Value) -> Pair:
    """Return the same of 33 bytes to 64, from the first four words and the last four."""
    y, behind_it = _mix_len_17_to_32(words, mul, K2)
    z = _hash_len_16(y, behind_it, mul)
    e, f, g, h = words[2] * mul, words[3], (y + words[4]) * mul, (z + words[5]) * mul
    return rotate_right(e + f, 43) + rotate_right(g, 30) + h, e + rotate_right(f + words[0] * K2, 18) + g


def _mix_longer(texts: Bytes, first: Value) -> Outputs:
    """Return the same of more bytes, 64 after the other, and what is multiplied with."""
    none = texts.lengths * 0
    first_y = SEED * K1 + 113
    product = (first_y * K2 + 113) % 2**64
    first_z = (product ^ product >> 47) * K2
    before_last = (texts.lengths - 1) // 64

    def step(number: Value, *state: Value) -> Outputs:
        words = _gather_block(texts, number * 64 + none)
        return _select_state(number < before_last, _mix_block(state, words, constant(K1)), state)

    begun = (first + to_int64(SEED * K2), none + to_int64(first_y), none + to_int64(first_z), none, none, none, none)
    x, y, z, v1, v2, w1, w2 = repeated((texts.longest - 1) // 64, step, *begun, rank=2)
    mul = _low_bits(z, 8) * 2 + K1
    w1 = w1 + (texts.lengths - 1) - before_last * 64
    v1 = v1 + w1
    last = _gather_block(texts, op.Max(texts.lengths - 64, 0))
    x, y, z, v1, v2, w1, w2 = _mix_block((x, y, z, v1, v2, w1 + v1, w2), last, mul, 9)
    u = _hash_len_16(v1, w1, mul) + _shift_mix(y) * K0 + z
    return u, _hash_len_16(v2, w2, mul) + x, mul


def _mix_block(state: Sequence[Value], words: Sequence[Value], mul: Value, times: int = 1) -> Outputs:
    """Return the state after 64 bytes."""
    x, y, z, v1, v2, w1, w2 = state
    x = (rotate_right(x + y + v1 + words[1], 37) * mul) ^ (w2 * times)
    y = rotate_right(y + v2 + words[6], 42) * mul + v1 * times + words[5]
    z = rotate_right(z + w1, 33) * mul
    v = _weak_hash_len_32(words[:4], v2 * mul, x + w1)
    w = _weak_hash_len_32(words[4:], z + w2, y + words[2])
    return (z, y, x, *v, *w)


def _weak_hash_len_32(words: Sequence[Value], a: Value, b: Value) -> Pair:
    w, x, y, z = words
    a = a + w
    b = rotate_right(b + a + z, 21)
    c = a + x + y
    return c + z, b + rotate_right(c, 44) + a


def _hash_len_16(u: Value, v: Value, mul: Value) -> Value:
    return _shift_mix((v ^ _shift_mix((u ^ v) * mul)) * mul) * mul


def _shift_mix(value: Value) -> Value:
    return value ^ shift_right(value, 47)


def _low_bits(value: Value, bits: int) -> Value:
    return op.BitwiseAnd(value, 2**bits - 1)


def _gather_block(texts: Bytes, begin: Value) -> list[Value]:
    return gather_words(texts.words, begin + np.arange(0, 64, 8), 8)


def _select_state(condition: Value, those: Sequence[Value], others: Sequence[Value]) -> Outputs:
    return tuple(op.Where(condition, *each) for each in zip(those, others, strict=True))


def keyed_hash(characters: Value, key: Value) -> Value:
    """Return the hashes of texts, (texts,), with a key of two numbers, from their characters, (texts, most)."""
    texts = encode_texts(characters)
    none, size = texts.lengths * 0, texts.lengths
    keys = [op.Gather(key, number, axis=0) for number in (0, 1)]
    begun = [none + (keys[number % 2] ^ to_int64(start)) for number, start in enumerate(SIPHASH_START)]

    def step(number: Value, *state: Value) -> Outputs:
        (word,) = gather_words(texts.words, number * 8 + none, 1)
        word = word + op.Where(op.Equal(size // 8, number), size * to_int64(2**56), 0)
        v0, v1, v2, v3 = state
        v0, v1, v2, v3 = _sip_round(*_sip_round(v0, v1, v2, v3 ^ word))
        return _select_state(number <= size // 8, (v0 ^ word, v1, v2, v3), state)

    def end(number: Value, *state: Value) -> Outputs:
        return _sip_round(*state)

    v0, v1, v2, v3 = repeated(texts.longest // 8 + 1, step, *begun, rank=2)
    v0, v1, v2, v3 = repeated(constant([4]), end, v0, v1, v2 ^ 255, v3, rank=2)
    return op.Reshape(v0 ^ v1 ^ v2 ^ v3, [-1])


def _sip_round(v0: Value, v1: Value, v2: Value, v3: Value) -> tuple[Value, Value, Value, Value]:
    v0, v2 = v0 + v1, v2 + v3
    v1, v3 = rotate_right(v1, 51) ^ v0, rotate_right(v3, 48) ^ v2
    v0, v2 = rotate_right(v0, 32) + v3, v2 + v1
    v1, v3 = rotate_right(v1, 47) ^ v2, rotate_right(v3, 43) ^ v0
    return v0, v1, rotate_right(v2, 32), v3


FUNCTIONS: dict[str, tuple[list[str], list[str], Callable[..., Value | Pair]]] = {
    "Bytes": (["characters"], ["codes", "sizes"], encode_characters),
    "Fingerprint": (["characters"], ["hash"], fingerprint),
    "KeyedHash": (["characters", "key"], ["hash"], keyed_hash),
    "Crossed": (["one", "other"], ["hash"], combine_hashes),
    "Bucket": (["hash_of_64_bits", "count"], ["hash"], hash_bucket),
}
MIN_OPSET = 20  # that of the first onnxruntime that was seen to give them: 1.15 and 1.16 fail
