"""UTF-8 bytes of strings, recovered by inverting onnxruntime's `MurmurHash3`.

onnxruntime's `MurmurHash3` of up to four bytes can be turned back: each of its steps has an inverse modulo 2³², and two
seeds tell four bytes from fewer. So every character is known, without a table. The hash, and where the constants are
from: Austin Appleby, https://github.com/aappleby/smhasher.
"""

from typing import NamedTuple

import numpy as np
from onnx import TensorProto

from ..._onnx.lazy_values import Value, constant, contrib, op, outputs_of, vector

INT64, UINT64 = TensorProto.INT64, TensorProto.UINT64
LOW_32_BITS = 2**32 - 1
SLICE_END = 2**31 - 1

# of the leading byte and those behind it, the bits that tell how long a character is, from one byte to four
_MASKS = [0xFFFFFF80, 0xFFFFC0E0, 0xFFC0C0F0, 0xC0C0C0F8]
_MARKS = [0x00000000, 0x000080C0, 0x008080E0, 0x808080F0]
_PADDING_BEFORE, _PADDING_AFTER = 3, 77  # places of which no text needs more, around the bytes of each


class Bytes(NamedTuple):
    """Texts as bytes.

    Attributes:
        words: For each byte it and the seven behind it, the first the lowest, zeros behind the last: int64, (texts,
            70 more than the longest text has bytes).
        lengths: How many bytes each text has: (texts, 1).
        longest: The largest of these, (1,), and 0 where there is no text.
    """

    words: Value
    lengths: Value
    longest: Value


def encode_texts(characters: Value) -> Bytes:
    """Return the bytes of texts.

    Args:
        characters: (texts, most characters), between and behind which empty strings may stand.
    """
    codes, sizes = encode_characters(characters)
    lengths = op.ReduceSum(sizes, [1], keepdims=1)
    longest = op.ReduceMax(op.Concat([0], op.Reshape(lengths, [-1]), axis=0), [0], keepdims=1)
    begins = op.CumSum(sizes, 1, exclusive=1) + _PADDING_BEFORE
    empty = op.Expand(0, vector(op.Shape(sizes, end=1), longest + (_PADDING_BEFORE + _PADDING_AFTER)))
    placed = op.ScatterElements(empty, begins, codes, axis=1, reduction="add")
    found = _slice_bytes(placed, 3)
    for count in (1, 2, 3):  # a character fills the places behind that in which it begins
        found = found + shift_right(_slice_bytes(placed, 3 - count, -count), 8 * count)
    words = op.BitwiseAnd(found, 255)
    for count in (1, 2, 4):
        words = _slice_bytes(words, 0, -count) + _slice_bytes(words, count) * (1 << 8 * count)
    return Bytes(words, lengths, longest)


def gather_words(words: Value, places: Value, count: int) -> list[Value]:
    """Return the words at some places of each text, (texts, 1) each.

    Args:
        words: Those of `Bytes`.
        places: (texts, count).
        count: How many they are.
    """
    found = op.GatherElements(words, places, axis=1)
    return [*outputs_of("Split", [True] * count, found, axis=1, num_outputs=count)]


def shift_right(value: Value, count: int) -> Value:
    """Return int64 shifted to the right, zeros coming in."""
    return op.Cast(op.BitShift(_to_uint64(value), _shift_count(count), direction="RIGHT"), to=INT64)


def rotate_right(value: Value, count: int) -> Value:
    """Return int64 rotated to the right."""
    bits = _to_uint64(value)
    low, high = (
        op.BitShift(bits, _shift_count(each), direction=direction)
        for each, direction in ((count, "RIGHT"), (64 - count, "LEFT"))
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
    return op.Slice(values, [start], [end], [1])


def encode_characters(characters: Value) -> tuple[Value, Value]:
    """Return the bytes of each character as one number, the first the lowest, and how many bytes they are."""
    one, other = (_invert_finalizer(_hash(characters, seed)) for seed in (0, 1))
    of_block = _rotate_right_32(_multiply_32(op.BitwiseAnd(one ^ 4, LOW_32_BITS) - 0xE6546B64, _invert_32(5)), 13)
    wanted = op.Concat(
        op.Unsqueeze(one, [2]) ^ [1, 2, 3], op.Unsqueeze(of_block, [2]), axis=2
    )  # as if it had one byte, two, three, four
    codes = _multiply_32(_rotate_right_32(_multiply_32(wanted, _invert_32(0x1B873593)), 15), _invert_32(0xCC9E2D51))
    # the seeds differ in bit 0, and so do the hashes of less than a block; a block has bit 19 there
    is_tail = op.Equal(op.Unsqueeze(op.BitwiseAnd(one ^ other, 1), [2]), [1, 1, 1, 0])
    fits = op.Cast(op.Equal(op.BitwiseAnd(codes, _MASKS), _MARKS) & is_tail, to=INT64)
    return op.ReduceSum(codes * fits, [2], keepdims=0), op.ReduceSum(fits * [1, 2, 3, 4], [2], keepdims=0)


def _hash(characters: Value, seed: int) -> Value:
    return op.Cast(contrib.MurmurHash3(characters, seed=seed, positive=1), to=INT64)


def _invert_finalizer(value: Value) -> Value:
    """Return what the last part of the hash was made of."""
    value = value ^ shift_right(value, 16)
    value = _multiply_32(value, _invert_32(0xC2B2AE35))
    value = value ^ shift_right(value, 13) ^ shift_right(value, 26)
    value = _multiply_32(value, _invert_32(0x85EBCA6B))
    return value ^ shift_right(value, 16)


def _multiply_32(value: Value, number: int) -> Value:
    return op.BitwiseAnd(value * number, LOW_32_BITS)


def _rotate_right_32(value: Value, count: int) -> Value:
    return op.BitwiseOr(shift_right(value, count), _multiply_32(value, 1 << (32 - count)))


def _invert_32(odd: int) -> int:
    return pow(odd, -1, 2**32)
