"""Inputs are drawn by what they feed, or made from samples; anything else is asked for by name."""

import keras
import numpy as np
import pytest
from export_models import additive, dict_inputs_and_outputs, nested_model
from keras import layers

from keras_attn import AdditiveAttention
from keras_attn_export import InputError
from keras_attn_export._model.input_sources import LENGTHS, flat_samples, sources
from keras_attn_export._model.signature import model_signature
from keras_attn_export._model.trial_runs import Drawer


def drawer_of(model, samples=None):
    signature = model_signature(model, samples)
    return Drawer(model, signature, sources(model, signature, flat_samples(signature, samples)))


def qkvl_sizes(batch, queries, keys):
    return {
        ("queries", 0): batch,
        ("queries", 1): queries,
        ("keys", 0): batch,
        ("keys", 1): keys,
        ("values", 0): batch,
        ("values", 1): keys,
        ("valid_lens", 0): batch,
    }


def test_floats_are_normal():
    drawn = drawer_of(additive()).inputs(qkvl_sizes(50, 20, 30))
    assert drawn["keys"].dtype == np.float32
    assert abs(drawn["keys"].mean()) < 0.02
    assert abs(drawn["keys"].std() - 1) < 0.02


@pytest.mark.parametrize("pattern", LENGTHS)
@pytest.mark.parametrize("build", [additive, nested_model])
def test_lengths_follow_the_number_of_keys(build, pattern):
    drawn = drawer_of(build()).inputs(qkvl_sizes(7, 3, 11), pattern)
    np.testing.assert_array_equal(drawn["valid_lens"], np.resize(LENGTHS[pattern](11), 7))


def test_the_length_patterns_cover_the_contract():
    values = {value for pattern in LENGTHS.values() for value in pattern(11)}
    assert {0, 1, 11} < values
    assert min(values) < 0
    assert any(set(pattern(11)) == {0} for pattern in LENGTHS.values())  # no example has a key
    assert max(values) > 11


def test_lengths_count_the_keys_the_layer_sees():
    ids = keras.Input((None,), dtype="int32", name="ids")
    lens = keras.Input((), dtype="int32", name="lens")
    halved = layers.MaxPooling1D(2)(layers.Embedding(9, 4)(ids))
    model = keras.Model([ids, lens], AdditiveAttention(3)(halved, halved, halved, lens))
    drawn = drawer_of(model).inputs({("ids", 0): 2, ("ids", 1): 10, ("lens", 0): 2}, "full")
    np.testing.assert_array_equal(drawn["lens"], [5, 5])


def test_integers_stay_within_the_embedding():
    ids = keras.Input((None,), dtype="int32", name="ids")
    model = keras.Model(ids, layers.Embedding(5, 3)(ids))
    drawn = drawer_of(model).inputs({("ids", 0): 40, ("ids", 1): 10})
    assert set(np.unique(drawn["ids"])) == set(range(5))


def test_booleans_take_both_values():
    mask = keras.Input((None, None), dtype="bool", name="mask")
    model = keras.Model(mask, keras.ops.cast(mask, "float32"))
    drawn = drawer_of(model).inputs({("mask", 0): 3, ("mask", 1): 9, ("mask", 2): 9})
    assert 0.3 < drawn["mask"].mean() < 0.7


def test_other_integers_ask_for_samples_by_name():
    digit = keras.Input((), dtype="int32", name="digit")
    model = keras.Model(digit, keras.ops.one_hot(digit, 5))
    with pytest.raises(InputError, match=r"`digit`.*sample_inputs=\{'digit': \.\.\.\}"):
        drawer_of(model)


def test_samples_are_cropped_and_repeated():
    digit = keras.Input((), dtype="int32", name="digit")
    model = keras.Model(digit, keras.ops.one_hot(digit, 5))
    drawer = drawer_of(model, {"digit": np.array([4, 1, 3])})
    np.testing.assert_array_equal(drawer.inputs({("digit", 0): 5})["digit"], [4, 1, 3, 4, 1])
    np.testing.assert_array_equal(drawer.inputs({("digit", 0): 2})["digit"], [4, 1])


SAMPLES = {
    "queries": np.ones((2, 3, 6)),
    "keys": np.ones((2, 5, 6)),
    "values": np.ones((2, 5, 5)),
    "valid_lens": np.array([1, 2]),
}


def test_samples_take_the_models_dtypes():
    flat = flat_samples(model_signature(dict_inputs_and_outputs(), None), SAMPLES)
    assert {name: str(array.dtype) for name, array in flat.items()} == {
        "queries": "float32",
        "keys": "float32",
        "values": "float32",
        "valid_lens": "int32",
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"key": np.ones((2, 5, 6))},
            r"names \['key', 'keys', .*\], of which .* not take \['key'\]. It takes \['keys', 'queries'",
        ),
        ({"valid_lens": np.array([1.0, 2.0])}, "`valid_lens` must be of dtype int32. Received: float64"),
        ({"keys": np.ones((2, 5, 7))}, r"`keys` must have shape .* Received: \(2, 5, 7\)"),
        ({"keys": np.ones((2, 5))}, "`keys` must have shape"),
        ({"keys": np.ones((2, 0, 6))}, "no axis empty"),
        ({"keys": np.ones((3, 5, 6))}, r"agree in their batch axis. Received batches of \[2, 3\]"),
        ({"valid_lens": np.array([1, 2**40])}, "`valid_lens` holds integers that do not fit int32"),
    ],
)
def test_samples_that_do_not_fit(changed, message):
    signature = model_signature(dict_inputs_and_outputs(), None)
    with pytest.raises(InputError, match=message):
        flat_samples(signature, SAMPLES | changed)
