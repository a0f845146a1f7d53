"""What is said of KerasHub's tokenizers that no file can hold, and what is tried on one that a file can: by names."""

import keras
import pytest

from keras_attn_export import UnsupportedModelError
from keras_attn_export._model.lookups import words_of
from keras_attn_export._model.tokenizers import refuse_tokenizer


class Tokenizer(keras.layers.Layer):
    def __init__(self, sequence_length=8, special_tokens_in_strings=False):
        super().__init__(name="tokens")
        self.sequence_length, self.special_tokens_in_strings = sequence_length, special_tokens_in_strings

    def tokenize(self, inputs):
        raise NotImplementedError


class BytePairTokenizer(Tokenizer):
    pass


class SentencePieceTokenizer(Tokenizer):
    pass


class WordPieceTokenizer(Tokenizer):
    suffix_indicator = "##"

    def get_vocabulary(self):
        return ["[UNK]", "the", "##s", "##", "\x00"]


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (BytePairTokenizer(), "`BytePairTokenizer`.*numbers.*`WordPieceTokenizer`"),
        (SentencePieceTokenizer(), "`SentencePieceTokenizer`.*library"),
        (WordPieceTokenizer(None), "unequal lengths.*`sequence_length`"),
        (WordPieceTokenizer(8, True), "`special_tokens_in_strings`"),
    ],
)
def test_tokenizers_of_keras_hub_that_no_file_can_hold_are_refused(layer, said, monkeypatch):
    refuse_tokenizer(layer)  # a class of the same name in another package
    for kind in type(layer).__mro__[:2]:
        monkeypatch.setattr(kind, "__module__", "keras_hub.src.tokenizers")
    refuse_tokenizer(WordPieceTokenizer())
    with pytest.raises(UnsupportedModelError, match=f"^Layer `tokens` .*{said}"):
        refuse_tokenizer(layer)


def test_word_pieces_are_drawn_in_sentences():
    words = words_of([WordPieceTokenizer()])
    assert words.known == ("[UNK]", "the", "s")
    assert words.in_sentences
    assert not words.is_closed
