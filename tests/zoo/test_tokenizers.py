"""KerasHub's tokenizers of word pieces, code points and bytes in the exported file; other tokenizers are refused."""

import io

import keras
import numpy as np
import onnxruntime as ort
import pytest
import tensorflow as tf
from converted_functions import ConvertedFunction

from keras_attn_export import UnsupportedModelError, export_model
from keras_attn_export._golden_cases.random_texts import EDGE_CASE_TEXTS

pytestmark = [pytest.mark.slow, pytest.mark.needs("keras_hub", "tensorflow_text")]

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
TEXTS = [  # edge cases, and names of languages in their own scripts
    *EDGE_CASE_TEXTS,
    "ქართული Հայերեն Ελληνικά Қазақша हिन्दी বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "ខ្មែរ ລາວ မြန်မာ አማርኛ 한국어 日本語 中文 Tiếng Việt",
    "\u1100\u1161\u11a8 \uac00\u11a8 \uffa1\uffc2 \u3131",  # Hangul jamo
    "a\u0301\u0323 a\u0323\u0301 \u1e69 s\u0307\u0323 \u0344 \u0f73 \u09c7\u09be \u0958 \u302e\uac00\u302f\u0301",
    "\u017f ϐ ς Ⅷ ㎏ ﬃ ½ ① ｶﾞ ﷺ \U0002f800 \u00ad \u2060 \ufe0f",
    "the\u0301 THE the## ##the [UNK] 不the𠀀",
    "é" * 50 + " " + "é" * 51,  # 100 bytes, the longest word that is split into pieces, and 102 bytes
]
VOCABULARY = "[PAD] [UNK] the ##the # ## a ##b ς \u03c3 ##\u03c3 不 中 é ##é हि ##न्दी".split()  # noqa: SIM905


def build_tokenizers():
    hub = pytest.importorskip("keras_hub").tokenizers
    letters = sorted({letter for text in TEXTS for letter in text.casefold() if not letter.isspace()})[::2]
    vocabulary = [*dict.fromkeys([*VOCABULARY, *letters, *(f"##{letter}" for letter in letters)])]
    return {
        "words": hub.WordPieceTokenizer(vocabulary, sequence_length=300),
        "lower": hub.WordPieceTokenizer(vocabulary, sequence_length=300, lowercase=True),
        "plain": hub.WordPieceTokenizer(vocabulary, sequence_length=300, lowercase=True, strip_accents=True),
        "uncut": hub.WordPieceTokenizer(vocabulary, sequence_length=300, split_on_cjk=False, oov_token="a"),
        "codes": hub.UnicodeCodepointTokenizer(sequence_length=350, lowercase=False, vocabulary_size=50000),
        "folded": hub.UnicodeCodepointTokenizer(sequence_length=350),
        **{form: hub.UnicodeCodepointTokenizer(sequence_length=350, normalization_form=form) for form in FORMS},
        "bytes": hub.ByteTokenizer(sequence_length=500, lowercase=False),
    }


NAMES = ("words", "lower", "plain", "uncut", "codes", "folded", *FORMS, "bytes")


def build_model(tokenizer, vocabulary_size):
    text = keras.Input((), dtype="string", name="text")
    ids = tokenizer(text)
    embedded = keras.layers.Embedding(vocabulary_size, 3)(ids)
    return keras.Model(text, {"ids": ids, "mean": keras.layers.GlobalAveragePooling1D()(embedded)})


@pytest.mark.parametrize("name", NAMES)
def test_token_ids_equal_tensorflow(name):
    tokenizer = build_tokenizers()[name]
    converted = ConvertedFunction(lambda x: tokenizer(x), x=np.array(TEXTS, object))
    ids = converted.assert_parity()
    assert len(np.unique(ids)) > 20
    np.testing.assert_array_equal(tokenizer(tf.constant(TEXTS)), ids)  # eager execution
    converted.assert_parity(x=np.array(TEXTS[:2] + TEXTS[-1:], object))


@pytest.mark.parametrize("name", ["plain", "bytes"])
def test_model_with_a_tokenizer_is_exported(name, tmp_path):
    bundle = export_model(build_model(build_tokenizers()[name], 1000), tmp_path / "bundle")
    assert bundle.report.passed
    assert "every text" in {row.case for row in bundle.report.rows}
    assert "tensorflow-text" in bundle.manifest["versions"]
    session = ort.InferenceSession(bundle.path / "model.onnx")
    (ids,) = session.run(["ids"], {"text": np.array(TEXTS, object)})
    np.testing.assert_array_equal(build_tokenizers()[name](tf.constant(TEXTS)), ids)


def build_refused_tokenizers():
    hub, words = pytest.importorskip("keras_hub").tokenizers, ["[UNK]", "[SEP]", "a"]
    pieces, model_file = {"a": 0, "b": 1, "ab": 2, "c": 3}, io.BytesIO()
    trainer = pytest.importorskip("sentencepiece").SentencePieceTrainer
    trainer.train(sentence_iterator=iter(["a b c"]), model_writer=model_file, vocab_size=6, model_type="word")
    return {
        "BytePairTokenizer": hub.BytePairTokenizer(pieces, ["a b"], sequence_length=4),
        "SentencePieceTokenizer": hub.SentencePieceTokenizer(model_file.getvalue(), sequence_length=4),
        "special_tokens_in_strings": hub.WordPieceTokenizer(
            words, sequence_length=4, special_tokens=words[:2], special_tokens_in_strings=True
        ),
        "sequence_length": hub.ByteTokenizer(),
    }


@pytest.mark.parametrize(
    "name", ["BytePairTokenizer", "SentencePieceTokenizer", "special_tokens_in_strings", "sequence_length"]
)
def test_refusal_of_tokenizer_names_class_or_option(name, tmp_path):
    with pytest.raises(UnsupportedModelError, match=rf"^Layer `\w+` .*{name}"):
        export_model(build_model(build_refused_tokenizers()[name], 8), tmp_path / "bundle")
