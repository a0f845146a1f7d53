"""UTF-8 bytes of strings, recovered by inverting onnxruntime's `MurmurHash3`.

ONNX has no operator that returns the bytes of a string. `MurmurHash3` (x86, 32 bits) of up to four bytes is invertible:
each of its steps has an inverse modulo 2³², and two seeds distinguish four bytes from fewer. So every character is
decoded without a table. Source of the hash and of its constants: Austin Appleby, https://github.com/aappleby/smhasher.
"""

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from ..._onnx.lazy_values import Value, concat_shape, constant, contrib, multi_output, op

INT64, UINT64 = TensorProto.INT64, TensorProto.UINT64
LOW_32_BITS = 2**32 - 1
SLICE_END = 2**31 - 1

# Length markers of UTF-8 for characters of 1 to 4 bytes, the first byte lowest: a character has n bytes if its bits
# under the n-th mask equal the n-th marker (0xxxxxxx; 110xxxxx 10xxxxxx; ...).
_LENGTH_MASKS = [0xFFFFFF80, 0xFFFFC0E0, 0xFFC0C0F0, 0xC0C0C0F8]
_LENGTH_MARKERS = [0x00000000, 0x000080C0, 0x008080E0, 0x808080F0]

# Zero bytes around each text: 3 for the continuation bytes of its first character; 7 for the slices below (1 + 2 + 4),
# and 70 so that the hash functions may read the eight words of a block from the start of a short text.
_PADDING_BEFORE, _PADDING_AFTER = 3, 77


class Bytes(NamedTuple):
    """Texts as bytes.

    Attributes:
        words: For each byte, the 8 bytes that begin there, little-endian, zeros after the end: int64, (texts, number
            of bytes of the longest text + 70).
        lengths: The number of bytes of each text: (texts, 1).
        longest: The maximum of `lengths`, 0 without texts: (1,).
    """

    words: Value
    lengths: Value
    longest: Value


def encode_texts(characters: Value) -> Bytes:
    """Return the UTF-8 bytes of texts from their characters, (texts, max characters); empty strings are skipped."""
    codes, sizes = encode_characters(characters)
    lengths = op.ReduceSum(sizes, [1], keepdims=1)
    longest = op.ReduceMax(op.Concat([0], op.Reshape(lengths, [-1]), axis=0), [0], keepdims=1)
    starts = op.CumSum(sizes, 1, exclusive=1) + _PADDING_BEFORE
    zeros = op.Expand(0, concat_shape(op.Shape(sizes, end=1), longest + (_PADDING_BEFORE + _PADDING_AFTER)))
    scattered = op.ScatterElements(zeros, starts, codes, axis=1, reduction="add")
    packed = _slice_bytes(scattered, 3)
    # The code of a character is at its first byte. Its n-th continuation byte is the code shifted by 8 n bits
    for count in (1, 2, 3):
        packed = packed + shift_right(_slice_bytes(scattered, 3 - count, -count), 8 * count)
    words = op.BitwiseAnd(packed, 255)
    # Join neighbours in three steps: words of 2, 4 and 8 bytes
    for count in (1, 2, 4):
        words = _slice_bytes(words, 0, -count) + _slice_bytes(words, count) * (1 << 8 * count)
    return Bytes(words, lengths, longest)


def gather_words(words: Value, offsets: Value, count: int) -> list[Value]:
    """Return `Bytes.words` at byte offsets of each text, (texts, count): `count` tensors (texts, 1)."""
    values = op.GatherElements(words, offsets, axis=1)
    return [*multi_output("Split", [True] * count, values, axis=1, num_outputs=count)]


def shift_right(value: Value, count: int) -> Value:
    """Shift int64 of any shape to the right; zeros are shifted in."""
    return op.Cast(op.BitShift(_to_uint64(value), _shift_count(count), direction="RIGHT"), to=INT64)


def rotate_right(value: Value, count: int) -> Value:
    """Rotate int64 of any shape to the right."""
    bits = _to_uint64(value)
    low, high = (
        op.BitShift(bits, _shift_count(shift), direction=direction)
        for shift, direction in ((count, "RIGHT"), (64 - count, "LEFT"))
    )
    return op.Cast(op.BitwiseOr(low, high), to=INT64)


def to_int64(number: int) -> int:
    """Return the int64 with the bits of a number modulo 2⁶⁴."""
    return (number + 2**63) % 2**64 - 2**63


def _to_uint64(value: Value) -> Value:
    return op.Cast(value, to=UINT64)


def _shift_count(count: int) -> Value:
    return constant(np.array(count, np.uint64))


def _slice_bytes(values: Value, start: int, end: int = SLICE_END) -> Value:
    """Return columns `start` to `end` of values (texts, bytes)."""
    return op.Slice(values, [start], [end], [1])


def encode_characters(characters: Value) -> tuple[Value, Value]:
    """Return the UTF-8 bytes of characters as one little-endian number each, and their counts; 0 for empty strings."""
    # h = finalizer(tail or block ^ length): with seed s, fewer than four bytes have the state s ^ mix(bytes) ^ length,
    # four bytes the state (rotate_left(s ^ mix(bytes), 13) * 5 + 0xE6546B64) ^ 4, where mix(k) is k * C1, rotated to
    # the left by 15, * C2. All steps are undone for each of the four possible lengths, and the length whose UTF-8
    # markers fit is selected.
    state, state_of_seed_1 = (_invert_finalizer(_hash(characters, seed)) for seed in (0, 1))
    block = _rotate_right_32(_multiply_32(op.BitwiseAnd(state ^ 4, LOW_32_BITS) - 0xE6546B64, _invert_32(5)), 13)
    mixed = op.Concat(op.Unsqueeze(state, [2]) ^ [1, 2, 3], op.Unsqueeze(block, [2]), axis=2)
    codes = _multiply_32(_rotate_right_32(_multiply_32(mixed, _invert_32(0x1B873593)), 15), _invert_32(0xCC9E2D51))
    # The seeds differ in bit 0, and so do the states of fewer than four bytes; for four bytes this bit is rotated to 13
    # and multiplied by 5, so that bit 0 is equal.
    is_tail = op.Equal(op.Unsqueeze(op.BitwiseAnd(state ^ state_of_seed_1, 1), [2]), [1, 1, 1, 0])
    fits = op.Cast(op.Equal(op.BitwiseAnd(codes, _LENGTH_MASKS), _LENGTH_MARKERS) & is_tail, to=INT64)
    return op.ReduceSum(codes * fits, [2], keepdims=0), op.ReduceSum(fits * [1, 2, 3, 4], [2], keepdims=0)


def _hash(characters: Value, seed: int) -> Value:
    return op.Cast(contrib.MurmurHash3(characters, seed=seed, positive=1), to=INT64)


def _invert_finalizer(value: Value) -> Value:
    """Return the state of `MurmurHash3` before its finalizer, from the hash: unsigned 32 bits in int64, same shape."""
    value = value ^ shift_right(value, 16)
    value = _multiply_32(value, _invert_32(0xC2B2AE35))
    value = value ^ shift_right(value, 13) ^ shift_right(value, 26)
    value = _multiply_32(value, _invert_32(0x85EBCA6B))
    return value ^ shift_right(value, 16)


def _multiply_32(value: Value, number: int) -> Value:
    """Return a product modulo 2³²; int64 keeps the low bits of a product that overflows."""
    return op.BitwiseAnd(value * number, LOW_32_BITS)


def _rotate_right_32(value: Value, count: int) -> Value:
    return op.BitwiseOr(shift_right(value, count), _multiply_32(value, 1 << (32 - count)))


def _invert_32(odd: int) -> int:
    return pow(odd, -1, 2**32)
