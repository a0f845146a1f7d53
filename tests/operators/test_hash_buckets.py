"""Hashes of texts are those of TensorFlow, for every character and length."""

import numpy as np
import onnxruntime as ort
import pytest
import tensorflow as tf
from converted_functions import Converted

CHARACTERS = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
WORDS = ["", "a", "ü", "你好", "👩\u200d👧", "Straße 3", "x" * 40, "Don't, won't; 3.14 (x)!\t" * 4]
NUMBERS = np.array([[0, 7, -1], [-(2**63), 2**63 - 1, 10**15], [-805, 12345678, -(10**9)]])


def texts(*given):
    return np.array(given, object)


def drawn(characters, lengths):
    rng = np.random.default_rng(0)
    return texts(*("".join(rng.choice(characters, length)) for length in lengths))


def fast(x, count=2**63 - 1):
    return tf.strings.to_hash_bucket_fast(x, count)


def test_hashes_of_texts_of_every_length_equal_tensorflow():
    converted = Converted(fast, x=texts(*WORDS))
    converted.assert_same()
    converted.assert_same(x=drawn(CHARACTERS[:127], range(201)))
    converted.assert_same(x=drawn(["a", "é", "語", "🙂"], range(150)))
    for word in WORDS:  # alone, no other text is longer
        converted.assert_same(x=texts(word))


@pytest.mark.slow
def test_hashes_of_every_character_equal_tensorflow():
    together = ["".join(CHARACTERS[at : at + 200]) for at in range(0, len(CHARACTERS), 200)]
    converted = Converted(fast, x=texts(*together[:600]))
    for at in range(0, len(together), 600):
        converted.assert_same(x=texts(*together[at : at + 600]))


def test_zero_characters_are_hashed_and_invalid_utf8_refused():
    converted = Converted(fast, x=texts("a\0b", "\0", "\0\0\0\0"))
    converted.assert_same()
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="invalid utf8"):
        converted.assert_same(x=np.array([b"\xff"]))


@pytest.mark.parametrize("count", [1, 7, 2**40 + 1])
def test_hashes_of_any_shape_and_bucket_count_equal_tensorflow(count):
    converted = Converted(lambda x: fast(x, count), x=texts(WORDS[:3], WORDS[3:6]))
    for rows in (0, 1, 2):
        converted.assert_same(x=np.full((rows, 2), "", object))
        converted.assert_same(x=np.full((rows, 2), "word", object))
    converted.assert_same()


def test_hashes_of_edited_texts_equal_tensorflow():
    def lowered(x):
        return fast(tf.strings.strip(tf.strings.regex_replace(tf.strings.lower(x), "[.,]", "")))

    Converted(lowered, x=texts(" Hello, World. ", "...", "ÄÖÜ abc,")).assert_same()


def test_hashes_of_numbers_as_texts_equal_tensorflow():
    Converted(lambda x: fast(tf.as_string(x)), x=NUMBERS).assert_same()


@pytest.mark.parametrize("key", [(0, 0), (3, 2**62 + 5), (-7, 1)])
def test_hashes_with_a_key_equal_tensorflow(key):
    converted = Converted(lambda x: tf.strings.to_hash_bucket_strong(x, 2**63 - 1, key), x=texts(*WORDS))
    converted.assert_same()
    converted.assert_same(x=drawn(CHARACTERS[:127], range(70)))


CROSSED = {
    "pairs": ((texts(*"abc")[:, None], texts("", "ü", "你" * 30)[:, None]), {"num_buckets": 11}),
    "of all in a row": ((texts(["a", "b"], ["c", "d"]), texts(["e", "f", "g"], ["h", "i", "j"])), {"num_buckets": 99}),
    "texts and numbers": ((NUMBERS, texts(*"abc")[:, None]), {"num_buckets": 2**31}),
    "three": ((NUMBERS[:, :1], NUMBERS[:, 1:], NUMBERS.astype("int32")), {"num_buckets": 0}),
    "another key": ((NUMBERS, NUMBERS), {"num_buckets": 1000, "hash_key": 2**62 + 3}),
}


@pytest.mark.parametrize(("columns", "options"), CROSSED.values(), ids=CROSSED)
def test_crossed_columns_equal_tensorflow(columns, options):
    def crossed(**given):
        found = tf.sparse.cross_hashed(list(given.values()), **options)
        return tf.concat([found.values, tf.reshape(found.indices, [-1]), found.dense_shape], 0)

    Converted(crossed, **{f"x{number}": column for number, column in enumerate(columns)}).assert_same()
