"""Code points and bytes of texts in every script are those of TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
from traced_functions import Converted

from keras_attn_export import UnsupportedModelError

# the first and the last character of one, two, three and four bytes, and others on their sides
ENDS = ["\x01", "\x7f", "\x80", "\u07ff", "\u0800", "\ud7ff", "\ue000", "\uffff", "\U00010000", "\U0010ffff"]
TEXTS = np.array(["", "plain", "".join(ENDS), "Straße 你好 שלום नमस्ते 👩\u200d👧", " \t\n", "e\u0301"], object)


def code_points(x):
    return tf.strings.unicode_decode(x, "UTF-8").to_tensor(shape=[None, None])


def byte_values(x):
    found = tf.ragged.map_flat_values(tf.io.decode_raw, tf.strings.bytes_split(x), tf.uint8)
    return tf.cast(tf.squeeze(found, -1), tf.int32).to_tensor(shape=[None, None])


@pytest.mark.parametrize("function", [code_points, byte_values])
def test_code_points_and_bytes_equal_tensorflow(function):
    converted = Converted(function, x=TEXTS)
    converted.assert_same()
    converted.assert_same(x=TEXTS[1:2])
    rng = np.random.default_rng(0)
    codes = rng.choice([*range(1, 0xD800), *range(0xE000, 0x110000)], (100, 50))
    converted.assert_same(x=np.array(["".join(map(chr, row)) for row in codes], object))


def test_empty_texts_have_no_code_points():
    converted = Converted(code_points, x=TEXTS)
    for none in ([], [""]):
        assert converted.assert_same(x=np.array(none, object)).size == 0


def test_bytes_as_strings_are_refused():
    with pytest.raises(UnsupportedModelError, match="`StringSplit`"):
        Converted(lambda x: tf.strings.bytes_split(x).to_tensor(shape=[None, None]), x=TEXTS)
