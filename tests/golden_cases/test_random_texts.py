"""Strings and numbers drawn for preprocessing layers: vocabularies, bucket limits, statistics and categories."""

import keras
import numpy as np
import pytest
from keras import layers
from text_models import COLOURS, WORDS, build_text_model

from keras_attn_export._golden_cases.case_generation import generate_golden_cases
from keras_attn_export._golden_cases.input_generators import build_text_generator, choose_generators
from keras_attn_export._golden_cases.input_probes import find_preprocessing
from keras_attn_export._golden_cases.random_inputs import IdRange
from keras_attn_export._golden_cases.random_texts import EDGE_CASE_TEXTS, TextGenerator
from keras_attn_export._options import Options
from keras_attn_export._signature.signature import build_signature

RNG = np.random.default_rng(0)


def choose_generator(layer, *shape, dtype="float32"):
    """Return the generator of an input that a layer reads."""
    x = keras.Input(shape, dtype=dtype, name="x")
    return choose_generators(build_signature(keras.Model(x, layer(x))), {})["x"]


def test_preprocessing_layers_are_assigned_to_the_inputs_that_they_read():
    readers = find_preprocessing(build_signature(build_text_model()), {})
    assert {name: input_readers[0].name for name, input_readers in readers.items()} == {
        "text": "ids",
        "colour": "known",
    }
    words, colours = (build_text_generator(readers[name]) for name in ("text", "colour"))
    assert (words.vocabulary, words.is_split) == (tuple(WORDS), True)
    assert (colours.vocabulary, colours.is_split) == (tuple(COLOURS), False)


def test_closed_vocabulary_of_one_input_leaves_other_inputs_open():
    first, second = (keras.Input((1,), dtype="string", name=name) for name in "ab")
    closed = layers.StringLookup(vocabulary=["x"], num_oov_indices=0, name="closed")
    model = keras.Model([first, second], [closed(first), layers.StringLookup(vocabulary=["y"], name="open")(second)])
    readers = find_preprocessing(build_signature(model), {})
    names = {name: [layer.name for layer in input_readers] for name, input_readers in readers.items()}
    assert names == {"a": ["closed"], "b": ["open"]}
    generator = build_text_generator(readers["a"])
    assert generator.is_closed
    assert {*generator.draw((50,), RNG)} == {"x"} == {*generator.case_texts}


def test_words_are_drawn_with_edge_cases_upper_case_and_spaces():
    generator = TextGenerator(tuple("abcdefgh"), is_split=False)
    texts = generator.draw((4, 3), RNG)
    assert (texts.shape, texts.dtype) == ((4, 3), object)
    assert {*"abcdefgh", *EDGE_CASE_TEXTS[:4]} == {*texts.flat}
    assert {*EDGE_CASE_TEXTS, *"abcdefgh", "A", "a "} <= {*generator.case_texts}
    sentences = TextGenerator(tuple(WORDS), is_split=True).draw((200,), RNG)
    assert any("GRÜN" in text for text in sentences)
    assert any("\t" in text for text in sentences)


def test_floats_are_drawn_around_bucket_limits():
    layer = layers.Discretization(bin_boundaries=[100.0, 200.0, 300.0])
    floats = choose_generator(layer, 1).draw((400, 1), RNG)
    assert {100.0, 200.0, 300.0} <= {*floats.flat}
    assert len(np.unique(np.digitize(floats, [100.0, 200.0, 300.0]))) == 4


def test_floats_are_drawn_with_the_scale_of_a_normalization():
    layer = layers.Normalization(mean=[1e6, -5.0], variance=[1e8, 4.0])
    floats = choose_generator(layer, 2).draw((500, 2), RNG)
    np.testing.assert_allclose((floats.mean(0) - [1e6, -5]) / [1e4, 2], 0, atol=0.2)
    np.testing.assert_allclose(floats.std(0), [1e4, 2], rtol=0.1)


@pytest.mark.parametrize("num_oov_indices", [0, 1])
def test_integers_are_drawn_from_the_vocabulary(num_oov_indices):
    layer = layers.IntegerLookup(vocabulary=[5, 70], num_oov_indices=num_oov_indices)
    integers = {*choose_generator(layer, 1, dtype="int64").draw((300,), RNG)}
    assert integers == {5, 70} | ({71, 1070, -1, 0} if num_oov_indices else set())


def test_integers_of_a_category_encoding_are_classes():
    layer = layers.CategoryEncoding(7, output_mode="one_hot")
    assert choose_generator(layer, 1, dtype="int64").id_range == IdRange(0, 6)


def test_golden_cases_with_samples_have_edge_case_texts():
    x = keras.Input((1,), dtype="string", name="x")
    model = keras.Model(x, layers.StringLookup(vocabulary=["a", "b"])(x))
    samples = {"x": np.array([["b"], ["a"]], object)}
    cases = generate_golden_cases(build_signature(model, samples), Options()).cases
    assert cases[0].inputs["x"].tolist() == samples["x"].tolist()
    assert {*EDGE_CASE_TEXTS} <= {text for case in cases for text in case.inputs["x"].flat}
