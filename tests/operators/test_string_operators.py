"""String operators in ONNX against TensorFlow: edits, splits, comparisons, code points and bytes of texts."""

import re
import string

import numpy as np
import pytest
import tensorflow as tf
from converted_functions import ConvertedFunction

from keras_attn_export import UnsupportedModelError
from keras_attn_export._golden_cases.random_texts import EDGE_CASE_TEXTS
from keras_attn_export._operators.text import character_classes

SCRIPTS = ["no\u00a0break e\u0301 ạ́", "你好, 世界!", "\U00020000a\U0002f800", "क्ष ।"]
EDITED = ["", "a,,b", ",", "<br />x<br /><br />", " . a", "aXbXX", "a http://x.y/é?z b", "12345.67"]
TEXTS = np.array([*EDGE_CASE_TEXTS, *SCRIPTS, *EDITED], object)

CHANGES = {
    "lower": lambda x: tf.strings.lower(x),
    "upper": lambda x: tf.strings.upper(x),
    "strip": lambda x: tf.strings.strip(x),
    "strip and lower": lambda x: tf.strings.lower(tf.strings.strip(x)),
    "join": lambda x: tf.strings.join(["[START]", x, "é"], separator=" "),
    "punctuation": lambda x: tf.strings.regex_replace(x, f"[{re.escape(string.punctuation)}]", ""),
    "one character": lambda x: tf.strings.regex_replace(x, "X", "é"),
    "around a character": lambda x: tf.strings.regex_replace(x, "[.,¿ß]", r" \0 "),
    "twice": lambda x: tf.strings.regex_replace(x, "[.,@]", r"<\0\0>"),
    "two in a row": lambda x: tf.strings.regex_replace(x, "[.,@]", r"\0\0"),
    "no match": lambda x: tf.strings.regex_replace(x, "[.,]", r"\\0\\"),
    "stripped around": lambda x: tf.strings.strip(tf.strings.regex_replace(x, "[.,]", r" \0 ")),
    "all but": lambda x: tf.strings.regex_replace(x, "[^ a-zäX]", "_"),
    "runs": lambda x: tf.strings.regex_replace(tf.strings.regex_replace(x, "[.]", ""), r"\s+", " "),
    "addresses": lambda x: tf.strings.regex_replace(x, r"https?://\S+|<[^>]*>", "@"),
    "some digits": lambda x: tf.strings.regex_replace(x, r"\d{2,3}[.]?", "#"),
    "letters of any script": lambda x: tf.strings.regex_replace(x, r"[\p{Lu}]|ß", "-"),
    "marks": lambda x: tf.strings.regex_replace(x, r"\p{Mn}|\p{P}", ""),
    "ideographs": lambda x: tf.strings.regex_replace(x, r"[\x{4E00}-\x{9FFF}]", r" \0 "),
    "a text": lambda x: tf.strings.regex_replace(tf.strings.lower(x), "<br />", " - "),
    "after a text": lambda x: tf.strings.regex_replace(tf.strings.regex_replace(x, "<br />", "A!"), "[!]", ""),
}


@pytest.mark.parametrize("change", CHANGES)
def test_text_operations_equal_tensorflow(change):
    converted = ConvertedFunction(CHANGES[change], x=TEXTS)
    output = converted.assert_parity()
    assert (output != TEXTS).any()
    converted.assert_parity(x=np.array([], object))
    converted.assert_parity(x=np.array([""], object))


@pytest.mark.parametrize("first", ["", "a"])
def test_texts_in_a_branch_equal_tensorflow(first):
    def edit_by_first_text(x):
        return tf.cond(x[0] == "", lambda: tf.strings.lower(x), lambda: tf.strings.join([x, "b"]))

    ConvertedFunction(edit_by_first_text, x=TEXTS).assert_parity(x=np.array([first, "Ä."], object))


def test_texts_of_an_empty_axis_equal_tensorflow():
    ConvertedFunction(lambda x: tf.strings.lower(x), x=TEXTS[None]).assert_parity(x=np.empty((2, 0), object))


SPLITS = {
    "words": lambda x: tf.strings.split(x).to_tensor("-"),
    "two words": lambda x: tf.strings.split(x).to_tensor("-", shape=[None, 2]),
    "one row": lambda x: tf.strings.split(x).to_tensor("-", shape=[1, None]),
    "forty rows": lambda x: tf.strings.split(x).to_tensor("-", shape=[40, None]),
    "characters of words": lambda x: tf.strings.unicode_split(tf.strings.split(x), "UTF-8").to_tensor("-"),
    "by a text": lambda x: tf.strings.split(x, sep=",").to_tensor("-"),
    "characters": lambda x: tf.strings.unicode_split(x, "UTF-8").to_tensor("-"),
    "rows of none": lambda x: tf.strings.split(tf.strings.strip(x[:0])).to_tensor("-"),
    "code points": lambda x: tf.strings.unicode_decode(x, "UTF-8").to_tensor(),
    "pairs": lambda x: tf.strings.ngrams(tf.strings.split(x), 2).to_tensor("-"),
    "one and three": lambda x: tf.strings.ngrams(tf.strings.split(x), (3, 1), separator="+").to_tensor("-"),
    "lengths": lambda x: tf.strings.split(x).row_lengths(),
}


@pytest.mark.parametrize("split", SPLITS)
def test_splits_equal_tensorflow(split):
    converted = ConvertedFunction(SPLITS[split], x=TEXTS)
    converted.assert_parity()
    converted.assert_parity(x=np.array(["a b"], object))
    converted.assert_parity(x=np.array(["", " "], object))


GATHERS = {
    "rows": lambda x: tf.gather(x, [1, 0, 1]),
    "rows of rows": lambda x: tf.gather(x, [[1], [0]]),
    "one row": lambda x: tf.gather(x, 1),
    "in the middle": lambda x: tf.gather(x, [[2, 0]], axis=-2),
    "of a mask": lambda x: tf.boolean_mask(x, [False, True]),
    "own rows": lambda x: tf.gather(x, [[2], [0]], batch_dims=1),
}


@pytest.mark.parametrize("gather", GATHERS)
def test_gathered_strings_equal_tensorflow(gather):
    ConvertedFunction(GATHERS[gather], x=np.array([*"abcdefghijkl"], object).reshape(2, 3, 2)).assert_parity()


@pytest.mark.parametrize("compare", [tf.equal, tf.not_equal])
def test_comparisons_of_strings_equal_tensorflow(compare):
    ConvertedFunction(lambda x: compare(x, [["a"]]), x=np.array(["a", "b"], object)).assert_parity()
    words = np.array([["ab", "a"], ["", "abc"]], object)
    for function, y in ((lambda x: compare(x, "ab"), {}), (compare, {"y": np.array(["ab", "abc"], object)})):
        assert {*ConvertedFunction(function, x=words, **y).assert_parity().flat} == {True, False}


# The first match may be empty or shorter than the longest match, or Python and RE2 parse the pattern differently.
UNSUPPORTED_PATTERNS = ("a|ab", "[ab]*b", "a*?b", "(ab)?a", "a*", "^a", r"\ba", "(?i)a", "[[:punct:]]", "[a-ÿ]+")


@pytest.mark.parametrize(
    ("function", "op"),
    [
        (lambda x: tf.strings.regex_replace(x, "a(b)", r"\1"), "StaticRegexReplace"),
        *(
            (lambda x, pattern=pattern: tf.strings.regex_replace(x, pattern, "-"), "StaticRegexReplace")
            for pattern in UNSUPPORTED_PATTERNS
        ),
        (
            lambda x: tf.strings.unicode_encode(
                tf.reshape(tf.strings.unicode_decode(x, "UTF-8").flat_values[:4], [2, 2]), "UTF-8"
            ),
            "UnicodeEncode",
        ),
        (lambda x: tf.strings.split(x, maxsplit=1).to_tensor(), "StringSplitV2"),
        (lambda x: tf.strings.unicode_decode(x, "UTF-16-BE").to_tensor(), "UnicodeDecode"),
    ],
)
def test_string_operation_without_an_operator_is_refused(function, op):
    with pytest.raises(UnsupportedModelError, match=op):
        ConvertedFunction(function, x=TEXTS)


SINGLE_CHARACTER_PATTERNS = ["a", "[a-z]", r"[\[-`]", r"\p{Mn}|\p{P}", r"(\s|[\x{4E00}-\x{9FFF}])", r"\.", r"[^\p{L}]"]


@pytest.mark.parametrize("pattern", SINGLE_CHARACTER_PATTERNS)
def test_formatted_character_class_matches_the_same_characters(pattern):
    assert character_classes.is_single_character_pattern(pattern)
    members = character_classes.match_characters(pattern)
    assert 0 < members.sum() < len(members)
    for is_member in (members, ~members):
        matched = character_classes.match_characters(character_classes.format_class(is_member))
        np.testing.assert_array_equal(matched, is_member)


def test_formatted_empty_class_matches_no_character():
    is_member = np.zeros(len(character_classes.all_characters()), bool)
    assert not character_classes.match_characters(character_classes.format_class(is_member)).any()


# The first and last characters of one, two, three and four bytes in UTF-8, and both sides of the surrogates.
BYTE_LIMITS = "\x01\x7f\x80\u07ff\u0800\ud7ff\ue000\uffff\U00010000\U0010ffff"
UNICODE_TEXTS = np.array(["", "plain", BYTE_LIMITS, "Straße 你好 שלום नमस्ते 👩\u200d👧", " \t\n", "e\u0301"], object)


def decode_code_points(x):
    return tf.strings.unicode_decode(x, "UTF-8").to_tensor(shape=[None, None])


def decode_bytes(x):
    values = tf.ragged.map_flat_values(tf.io.decode_raw, tf.strings.bytes_split(x), tf.uint8)
    return tf.cast(tf.squeeze(values, -1), tf.int32).to_tensor(shape=[None, None])


@pytest.mark.parametrize("function", [decode_code_points, decode_bytes])
def test_code_points_and_bytes_equal_tensorflow(function):
    converted = ConvertedFunction(function, x=UNICODE_TEXTS)
    converted.assert_parity()
    converted.assert_parity(x=UNICODE_TEXTS[1:2])
    rng = np.random.default_rng(0)
    codes = rng.choice([*range(1, 0xD800), *range(0xE000, 0x110000)], (100, 50))
    converted.assert_parity(x=np.array(["".join(map(chr, row)) for row in codes], object))


def test_empty_texts_have_no_code_points():
    converted = ConvertedFunction(decode_code_points, x=UNICODE_TEXTS)
    for texts in ([], [""]):
        assert converted.assert_parity(x=np.array(texts, object)).size == 0


def test_bytes_as_strings_are_refused():
    with pytest.raises(UnsupportedModelError, match="`StringSplit`"):
        ConvertedFunction(lambda x: tf.strings.bytes_split(x).to_tensor(shape=[None, None]), x=UNICODE_TEXTS)
