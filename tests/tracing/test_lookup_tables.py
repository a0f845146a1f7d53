"""Lookup layers of strings and integers in all output modes: ONNX outputs equal Keras bit for bit."""

import keras
import numpy as np
import pytest
from keras import layers
from text_models import COLOURS, build_lookup_model
from traced_models import run_traced_model

STRINGS = np.array([["red", "grün", "red"], ["[MASK]", "", "Red"], ["[UNK]", "blue", "gru\u0308n"]], object)
KNOWN_STRINGS = np.array([["red", "grün", "red"], ["blue", "blue", "red"]], object)
WEIGHTS = {"tf_idf": {"idf_weights": [0.5, 1.5, 2.5]}}


def assert_equals_keras(model, inputs, folder):
    from keras_attn_export._signature.signature import build_signature

    outputs, expected = run_traced_model(model, inputs, folder), build_signature(model).run(inputs)
    for name, array in expected.items():
        assert outputs[name].dtype == array.dtype
        np.testing.assert_array_equal(outputs[name], array)
    return outputs


@pytest.mark.parametrize("mode", ["int", "multi_hot", "count", "tf_idf"])
@pytest.mark.parametrize("mask_token", [None, "[MASK]"])
@pytest.mark.parametrize("oov_count", [0, 1])
def test_string_lookup_equals_keras_in_every_mode(mode, mask_token, oov_count, tmp_path):
    options = {"output_mode": mode, "mask_token": mask_token, "num_oov_indices": oov_count, **WEIGHTS.get(mode, {})}
    model = build_lookup_model(**options)
    inputs = STRINGS if oov_count else np.append(KNOWN_STRINGS, [[mask_token or "red"] * 3], axis=0)
    assert_equals_keras(model, {"word": inputs}, tmp_path)


@pytest.mark.parametrize("options", [{}, {"num_oov_indices": 0}, {"mask_token": "", "oov_token": "?"}])
def test_inverted_string_lookup_equals_keras(options, tmp_path):
    number = keras.Input((None,), dtype="int64", name="number")
    model = keras.Model(number, {"word": layers.StringLookup(vocabulary=COLOURS, invert=True, **options)(number)})
    outputs = assert_equals_keras(model, {"number": np.array([[0, 1, 2, 3, 4, 99, -1]])}, tmp_path)
    assert {"red", "blue"} <= {*outputs["word"].flat}


def test_inverted_integer_lookup_equals_keras(tmp_path):
    """The value for an unknown index is -1."""
    number = keras.Input((None,), dtype="int64", name="number")
    model = keras.Model(number, {"found": layers.IntegerLookup(vocabulary=[5, 7], invert=True)(number)})
    assert -1 in assert_equals_keras(model, {"number": np.array([[0, 1, 2, 99, -1]])}, tmp_path)["found"]


@pytest.mark.parametrize("mode", ["int", "one_hot", "multi_hot"])
def test_integer_lookup_with_three_unknown_indices_equals_keras(mode, tmp_path):
    """The lookup needs a static shape, or it would get the shape of the mask."""
    number = keras.Input((1,), dtype="int64", name="number")
    lookup = layers.IntegerLookup(vocabulary=[5, -7, 100], num_oov_indices=3, mask_token=0, output_mode=mode)
    model = keras.Model(number, {"found": lookup(number)})
    assert_equals_keras(model, {"number": np.array([[5], [0], [1], [2], [3], [-8], [100], [2**62]])}, tmp_path)


@pytest.mark.parametrize("mode", ["int", "multi_hot"])
def test_unknown_word_without_an_index_is_refused(mode, tmp_path):
    model = build_lookup_model(num_oov_indices=0, mask_token="[MASK]", output_mode=mode)
    with pytest.raises(Exception, match="indices element out of data bounds"):
        run_traced_model(model, {"word": STRINGS}, tmp_path)
