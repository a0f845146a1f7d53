"""KerasHub's tokenizers in a file: of word pieces, code points and bytes, in every script; the others are refused.

`EDGE_CASE_TEXTS` and the names of the world's languages in themselves are what they are tried on.
"""

import io

import keras
import numpy as np
import onnxruntime as ort
import pytest
import tensorflow as tf
from converted_functions import Converted

from keras_attn_export import UnsupportedModelError, export_model
from keras_attn_export._golden_cases.random_texts import EDGE_CASE_TEXTS

pytestmark = [pytest.mark.slow, pytest.mark.needs("keras_hub", "tensorflow_text")]

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
TEXTS = [
    *EDGE_CASE_TEXTS,
    "ქართული Հայերեն Ελληνικά Қазақша हिन्दी বাংলা தமிழ் తెలుగు ಕನ್ನಡ മലയാളം සිංහල",
    "ខ្មែរ ລາວ မြန်မာ አማርኛ 한국어 日本語 中文 Tiếng Việt",
    "\u1100\u1161\u11a8 \uac00\u11a8 \uffa1\uffc2 \u3131",  # Hangul in parts
    "a\u0301\u0323 a\u0323\u0301 \u1e69 s\u0307\u0323 \u0344 \u0f73 \u09c7\u09be \u0958 \u302e\uac00\u302f\u0301",
    "\u017f ϐ ς Ⅷ ㎏ ﬃ ½ ① ｶﾞ ﷺ \U0002f800 \u00ad \u2060 \ufe0f",
    "the\u0301 THE the## ##the [UNK] 不the𠀀",
    "é" * 50 + " " + "é" * 51,  # as long as a word may be, and longer
]
VOCABULARY = "[PAD] [UNK] the ##the # ## a ##b ς \u03c3 ##\u03c3 不 中 é ##é हि ##न्दी".split()  # noqa: SIM905


def tokenizers():
    hub = pytest.importorskip("keras_hub").tokenizers
    letters = sorted({each for text in TEXTS for each in text.casefold() if not each.isspace()})[::2]
    vocabulary = [*dict.fromkeys([*VOCABULARY, *letters, *(f"##{each}" for each in letters)])]
    return {
        "words": hub.WordPieceTokenizer(vocabulary, sequence_length=300),
        "lower": hub.WordPieceTokenizer(vocabulary, sequence_length=300, lowercase=True),
        "plain": hub.WordPieceTokenizer(vocabulary, sequence_length=300, lowercase=True, strip_accents=True),
        "uncut": hub.WordPieceTokenizer(vocabulary, sequence_length=300, split_on_cjk=False, oov_token="a"),
        "codes": hub.UnicodeCodepointTokenizer(sequence_length=350, lowercase=False, vocabulary_size=50000),
        "folded": hub.UnicodeCodepointTokenizer(sequence_length=350),
        **{each: hub.UnicodeCodepointTokenizer(sequence_length=350, normalization_form=each) for each in FORMS},
        "bytes": hub.ByteTokenizer(sequence_length=500, lowercase=False),
    }


NAMES = ("words", "lower", "plain", "uncut", "codes", "folded", *FORMS, "bytes")


def model_of(tokenizer, size):
    text = keras.Input((), dtype="string", name="text")
    ids = tokenizer(text)
    embedded = keras.layers.Embedding(size, 3)(ids)
    return keras.Model(text, {"ids": ids, "mean": keras.layers.GlobalAveragePooling1D()(embedded)})


@pytest.mark.parametrize("name", NAMES)
def test_token_ids_equal_tensorflow(name):
    tokenizer = tokenizers()[name]
    converted = Converted(lambda x: tokenizer(x), x=np.array(TEXTS, object))
    found = converted.assert_same()
    assert len(np.unique(found)) > 20
    np.testing.assert_array_equal(tokenizer(tf.constant(TEXTS)), found)  # nor does Keras give others without a graph
    converted.assert_same(x=np.array(TEXTS[:2] + TEXTS[-1:], object))


@pytest.mark.parametrize("name", ["plain", "bytes"])
def test_model_with_a_tokenizer_is_exported(name, tmp_path):
    bundle = export_model(model_of(tokenizers()[name], 1000), tmp_path / "bundle")
    assert bundle.report.passed
    assert "every text" in {row.case for row in bundle.report.rows}
    assert "tensorflow-text" in bundle.manifest["versions"]
    session = ort.InferenceSession(bundle.path / "model.onnx")
    (ids,) = session.run(["ids"], {"text": np.array(TEXTS, object)})
    np.testing.assert_array_equal(tokenizers()[name](tf.constant(TEXTS)), ids)


def refused():
    hub, names = pytest.importorskip("keras_hub").tokenizers, ["[UNK]", "[SEP]", "a"]
    pieces = {each: number for number, each in enumerate(["a", "b", "ab", "c"])}
    trained = io.BytesIO()
    sentences = pytest.importorskip("sentencepiece").SentencePieceTrainer
    sentences.train(sentence_iterator=iter(["a b c"]), model_writer=trained, vocab_size=6, model_type="word")
    return {
        "BytePairTokenizer": hub.BytePairTokenizer(pieces, ["a b"], sequence_length=4),
        "SentencePieceTokenizer": hub.SentencePieceTokenizer(trained.getvalue(), sequence_length=4),
        "special_tokens_in_strings": hub.WordPieceTokenizer(
            names, sequence_length=4, special_tokens=names[:2], special_tokens_in_strings=True
        ),
        "sequence_length": hub.ByteTokenizer(),
    }


@pytest.mark.parametrize(
    "said", ["BytePairTokenizer", "SentencePieceTokenizer", "special_tokens_in_strings", "sequence_length"]
)
def test_other_tokenizers_are_refused_by_name(said, tmp_path):
    with pytest.raises(UnsupportedModelError, match=rf"^Layer `\w+` .*{said}"):
        export_model(model_of(refused()[said], 8), tmp_path / "bundle")
