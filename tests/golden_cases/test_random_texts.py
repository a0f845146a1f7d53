"""Strings are drawn from what looks them up, and numbers where a preprocessing layer is made for some of them."""

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


def generator(layer, *shape, dtype="float32"):
    """The generator of an input that goes through other operators on its way, and to a layer as it is."""
    x = keras.Input(shape, dtype=dtype, name="x")
    return choose_generators(build_signature(keras.Model(x, layer(x))), {})["x"]


def test_each_input_is_read_by_its_own_layers():
    found = find_preprocessing(build_signature(build_text_model()), {})
    assert {name: of_it[0].name for name, of_it in found.items()} == {
        "text": "ids",
        "colour": "known",
    }
    assert (build_text_generator(found["text"]).vocabulary, build_text_generator(found["text"]).is_split) == (
        tuple(WORDS),
        True,
    )
    assert (build_text_generator(found["colour"]).vocabulary, build_text_generator(found["colour"]).is_split) == (
        tuple(COLOURS),
        False,
    )


def test_closed_vocabulary_of_one_input_leaves_others_open():
    first, second = (keras.Input((1,), dtype="string", name=name) for name in "ab")
    closed = layers.StringLookup(vocabulary=["x"], num_oov_indices=0, name="closed")
    model = keras.Model([first, second], [closed(first), layers.StringLookup(vocabulary=["y"], name="open")(second)])
    found = find_preprocessing(build_signature(model), {})
    assert {name: [layer.name for layer in of_it] for name, of_it in found.items()} == {"a": ["closed"], "b": ["open"]}
    assert build_text_generator(found["a"]).is_closed
    assert (
        {*build_text_generator(found["a"]).draw((50,), RNG)} == {"x"} == {*build_text_generator(found["a"]).case_texts}
    )


def test_words_are_drawn_with_odd_strings_cases_and_spaces():
    words = TextGenerator(tuple("abcdefgh"), is_split=False)
    drawn = words.draw((4, 3), RNG)
    assert (drawn.shape, drawn.dtype) == ((4, 3), object)
    assert {*"abcdefgh", *EDGE_CASE_TEXTS[:4]} == {*drawn.flat}
    assert {*EDGE_CASE_TEXTS, *"abcdefgh", "A", "a "} <= {*words.case_texts}
    sentences = TextGenerator(tuple(WORDS), is_split=True).draw((200,), RNG)
    assert any("GRÜN" in text for text in sentences)
    assert any("\t" in text for text in sentences)


def test_floats_are_drawn_around_bucket_limits():
    drawn = generator(layers.Discretization(bin_boundaries=[100.0, 200.0, 300.0]), 1).draw((400, 1), RNG)
    assert {100.0, 200.0, 300.0} <= {*drawn.flat}
    assert len(np.unique(np.digitize(drawn, [100.0, 200.0, 300.0]))) == 4


def test_floats_are_drawn_with_the_scale_of_a_normalization():
    drawn = generator(layers.Normalization(mean=[1e6, -5.0], variance=[1e8, 4.0]), 2).draw((500, 2), RNG)
    np.testing.assert_allclose((drawn.mean(0) - [1e6, -5]) / [1e4, 2], 0, atol=0.2)
    np.testing.assert_allclose(drawn.std(0), [1e4, 2], rtol=0.1)


@pytest.mark.parametrize("unknown", [0, 1])
def test_integers_are_drawn_from_the_vocabulary(unknown):
    lookup = layers.IntegerLookup(vocabulary=[5, 70], num_oov_indices=unknown)
    drawn = {*generator(lookup, 1, dtype="int64").draw((300,), RNG)}
    assert drawn == {5, 70} | ({71, 1070, -1, 0} if unknown else set())


def test_integers_of_a_category_encoding_are_classes():
    assert generator(layers.CategoryEncoding(7, output_mode="one_hot"), 1, dtype="int64").id_range == IdRange(0, 6)


def test_golden_cases_with_samples_try_odd_strings():
    x = keras.Input((1,), dtype="string", name="x")
    model = keras.Model(x, layers.StringLookup(vocabulary=["a", "b"])(x))
    given = {"x": np.array([["b"], ["a"]], object)}
    cases = generate_golden_cases(build_signature(model, given), Options()).cases
    assert cases[0].inputs["x"].tolist() == given["x"].tolist()
    assert {*EDGE_CASE_TEXTS} <= {text for case in cases for text in case.inputs["x"].flat}
