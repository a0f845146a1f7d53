"""Patterns of one character match what they do in TensorFlow, in every script."""

import numpy as np
import pytest
import tensorflow as tf
from traced_functions import Converted

from keras_attn_export._operators import alphabets

OF_ONE = ["a", "[a-z]", r"[\[-`]", r"\p{Mn}|\p{P}", r"(\s|[\x{4E00}-\x{9FFF}])", r"\.", r"[^\p{L}]"]
OF_MORE = ["", "ab", "a|bc", "a+", "a?", ".", "^a", r"\ba", r"(a)(b)", "(?i)a", r"\pL", "[a", "a||b"]
TEXTS = np.array(["", "a b", "no\u00a0break e\u0301 ạ́", "你好, 世界!", "\U00020000a\U0002f800", "क्ष ।"], object)


@pytest.mark.parametrize("pattern", OF_ONE)
def test_expression_of_a_set_matches_the_same_characters(pattern):
    assert alphabets.is_of_one(pattern)
    members = alphabets.matching(pattern)
    assert 0 < members.sum() < len(members)
    for each in (members, ~members):
        np.testing.assert_array_equal(alphabets.matching(alphabets.expression(each)), each)


@pytest.mark.parametrize("pattern", OF_MORE)
def test_patterns_of_several_characters_are_recognized(pattern):
    assert not alphabets.is_of_one(pattern)


def test_expression_of_the_empty_set_matches_nothing():
    none = np.zeros(len(alphabets.everyone()), bool)
    assert not alphabets.matching(alphabets.expression(none)).any()


@pytest.mark.parametrize(("pattern", "rewrite"), [(r"\p{Mn}", ""), (r"[\x{4E00}-\x{9FFF}]", r" \0 "), (r"\p{P}", "..")])
def test_characters_of_a_script_are_replaced(pattern, rewrite):
    converted = Converted(lambda x: tf.strings.regex_replace(x, pattern, rewrite), x=TEXTS)
    found = converted._session.run(["out"], {"x": TEXTS})[0]
    expected = tf.strings.regex_replace(TEXTS, pattern, rewrite).numpy()
    assert [*found] == [each.decode() for each in expected]
