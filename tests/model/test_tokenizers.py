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


class GPT2Tokenizer(BytePairTokenizer):
    pass


class SentencePieceTokenizer(Tokenizer):
    pass


class WordPieceTokenizer(Tokenizer):
    suffix_indicator = "##"

    def get_vocabulary(self):
        return ["[UNK]", "the", "##s", "##", "\x00"]


OURS = (Tokenizer, BytePairTokenizer, GPT2Tokenizer, SentencePieceTokenizer, WordPieceTokenizer)


@pytest.fixture
def of_hub(monkeypatch):
    for each in OURS:
        monkeypatch.setattr(each, "__module__", "keras_hub.src.tokenizers")


@pytest.mark.parametrize(
    ("layer", "said"),
    [
        (GPT2Tokenizer(), "`BytePairTokenizer`.*numbers.*`WordPieceTokenizer`"),
        (SentencePieceTokenizer(), "`SentencePieceTokenizer`.*library"),
        (WordPieceTokenizer(None), "unequal lengths.*`sequence_length`"),
        (WordPieceTokenizer(8, True), "`special_tokens_in_strings`"),
    ],
)
@pytest.mark.usefixtures("of_hub")
def test_those_that_no_file_can_hold_are_refused(layer, said):
    with pytest.raises(UnsupportedModelError, match=f"^Layer `tokens` .*{said}"):
        refuse_tokenizer(layer)


@pytest.mark.usefixtures("of_hub")
def test_others_are_not():
    refuse_tokenizer(WordPieceTokenizer())
    refuse_tokenizer(keras.layers.Dense(1))


def test_layers_of_the_same_names_that_are_not_of_hub_are_not():
    refuse_tokenizer(GPT2Tokenizer())


def test_pieces_are_tried_in_sentences():
    words = words_of([WordPieceTokenizer()])
    assert words.known == ("[UNK]", "the", "s")
    assert words.in_sentences
    assert not words.is_closed
