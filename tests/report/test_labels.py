"""Labels of ids and classes: validation and joined texts."""

import pytest
from handwritten_bundles import build_manifest

from keras_attn_export import InputError
from keras_attn_export._format.manifest import Spec
from keras_attn_export._report.labels import join_words, validate_labels

MANIFEST = build_manifest(
    [Spec("tokens", "int32", ("batch", "tokens_length")), Spec("single", "int32", ())],
    [Spec("answer", "float32", ("batch", 3, 2))],
)


def test_labels_are_lists_and_strings_are_their_characters():
    labels = {"tokens": ("", "the"), "answer": "-+"}
    assert validate_labels(MANIFEST, labels) == {"tokens": ["", "the"], "answer": ["-", "+"]}
    assert validate_labels(MANIFEST, None) == {}


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        (["a"], "must be a mapping"),
        ({"toks": ["a"]}, r"must name inputs or outputs of the model, \['tokens', .*Received: 'toks'"),
        ({"tokens": 3}, "must be strings, one for each id. Received: int"),
        ({"tokens": ["a", 3]}, "must be strings"),
        ({"answer": ["a", "b", "c"]}, "scores with one class per label. Received: 3 labels for float32"),
        ({"single": "ab"}, r"Received: 2 labels for int32 of shape \(\)"),
    ],
)
def test_wrong_labels_are_refused(labels, message):
    with pytest.raises(InputError, match=message):
        validate_labels(MANIFEST, labels)


@pytest.mark.parametrize(
    ("words", "labels", "text"),
    [
        (["a", "b", ""], ["", "a", "b"], "ab"),
        (["<s>", "a", "[MASK]"], ["<s>", "[MASK]", "a"], "<s>a[MASK]"),
        (["the", "cat", "", ""], ["", "the", "cat"], "the cat"),
        (["a text", "b"], None, "a text, b"),
    ],
)
def test_characters_are_joined_without_blanks(words, labels, text):
    assert join_words(words, labels) == text
