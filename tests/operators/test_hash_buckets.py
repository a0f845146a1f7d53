"""Hash buckets of strings in ONNX against TensorFlow: every character, every length and crossed columns."""

import numpy as np
import onnxruntime as ort
import pytest
import tensorflow as tf
from converted_functions import ConvertedFunction

CHARACTERS = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
WORDS = ["", "a", "ü", "你好", "👩\u200d👧", "Straße 3", "x" * 40, "Don't, won't; 3.14 (x)!\t" * 4]
NUMBERS = np.array([[0, 7, -1], [-(2**63), 2**63 - 1, 10**15], [-805, 12345678, -(10**9)]])


def to_array(*texts):
    return np.array(texts, object)


def draw_texts(characters, lengths):
    rng = np.random.default_rng(0)
    return to_array(*("".join(rng.choice(characters, length)) for length in lengths))


def hash_fast(x, count=2**63 - 1):
    return tf.strings.to_hash_bucket_fast(x, count)


def test_hashes_of_texts_of_every_length_equal_tensorflow():
    converted = ConvertedFunction(hash_fast, x=to_array(*WORDS))
    converted.assert_parity()
    converted.assert_parity(x=draw_texts(CHARACTERS[:127], range(201)))
    converted.assert_parity(x=draw_texts(["a", "é", "語", "🙂"], range(150)))
    for word in WORDS:  # one text at a time: a batch is padded to its longest text
        converted.assert_parity(x=to_array(word))


@pytest.mark.slow
def test_hashes_of_every_character_equal_tensorflow():
    texts = ["".join(CHARACTERS[start : start + 200]) for start in range(0, len(CHARACTERS), 200)]
    converted = ConvertedFunction(hash_fast, x=to_array(*texts[:600]))
    for start in range(0, len(texts), 600):
        converted.assert_parity(x=to_array(*texts[start : start + 600]))


def test_null_characters_are_hashed_and_invalid_utf8_is_refused():
    converted = ConvertedFunction(hash_fast, x=to_array("a\0b", "\0", "\0\0\0\0"))
    converted.assert_parity()
    with pytest.raises(ort.capi.onnxruntime_pybind11_state.InvalidArgument, match="invalid utf8"):
        converted.assert_parity(x=np.array([b"\xff"]))


@pytest.mark.parametrize("count", [1, 7, 2**40 + 1])
def test_hashes_of_any_shape_and_bucket_count_equal_tensorflow(count):
    converted = ConvertedFunction(lambda x: hash_fast(x, count), x=to_array(WORDS[:3], WORDS[3:6]))
    for rows in (0, 1, 2):
        converted.assert_parity(x=np.full((rows, 2), "", object))
        converted.assert_parity(x=np.full((rows, 2), "word", object))
    converted.assert_parity()


def test_hashes_of_normalized_texts_equal_tensorflow():
    def hash_normalized(x):
        return hash_fast(tf.strings.strip(tf.strings.regex_replace(tf.strings.lower(x), "[.,]", "")))

    ConvertedFunction(hash_normalized, x=to_array(" Hello, World. ", "...", "ÄÖÜ abc,")).assert_parity()


def test_hashes_of_numbers_as_texts_equal_tensorflow():
    ConvertedFunction(lambda x: hash_fast(tf.as_string(x)), x=NUMBERS).assert_parity()


@pytest.mark.parametrize("key", [(0, 0), (3, 2**62 + 5), (-7, 1)])
def test_hashes_with_a_key_equal_tensorflow(key):
    converted = ConvertedFunction(lambda x: tf.strings.to_hash_bucket_strong(x, 2**63 - 1, key), x=to_array(*WORDS))
    converted.assert_parity()
    converted.assert_parity(x=draw_texts(CHARACTERS[:127], range(70)))


CROSSES = {
    "pairs": ((to_array(*"abc")[:, None], to_array("", "ü", "你" * 30)[:, None]), {"num_buckets": 11}),
    "by row": ((to_array(["a", "b"], ["c", "d"]), to_array(["e", "f", "g"], ["h", "i", "j"])), {"num_buckets": 99}),
    "texts and numbers": ((NUMBERS, to_array(*"abc")[:, None]), {"num_buckets": 2**31}),
    "three": ((NUMBERS[:, :1], NUMBERS[:, 1:], NUMBERS.astype("int32")), {"num_buckets": 0}),
    "another key": ((NUMBERS, NUMBERS), {"num_buckets": 1000, "hash_key": 2**62 + 3}),
}


@pytest.mark.parametrize(("columns", "options"), CROSSES.values(), ids=CROSSES)
def test_crossed_columns_equal_tensorflow(columns, options):
    def cross(**columns):
        crossed = tf.sparse.cross_hashed(list(columns.values()), **options)
        return tf.concat([crossed.values, tf.reshape(crossed.indices, [-1]), crossed.dense_shape], 0)

    ConvertedFunction(cross, **{f"x{number}": column for number, column in enumerate(columns)}).assert_parity()
