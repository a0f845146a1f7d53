"""Shortened error messages of Keras: the cause, in one sentence."""

import keras
import pytest
from keras import layers

from keras_attn_export._signature.keras_messages import shorten_message


class StaleConfig(layers.Layer):
    """Layer that was saved with an argument which its constructor no longer accepts."""

    def call(self, x):
        return x

    def get_config(self):
        return {**super().get_config(), "removed": ["x"] * 5000}


UNKNOWN_CLASS = (
    f"it does not know the class `StaleConfig` of module `{__name__}`. Import its module before the export (`--import"
)


@pytest.mark.parametrize(("objects", "cause"), [({}, UNKNOWN_CLASS), ({"StaleConfig": StaleConfig}, "removed")])
def test_load_error_is_shortened_to_its_cause(objects, cause, tmp_path):
    x = keras.Input((4,), name="x")
    keras.Model(x, StaleConfig()(layers.Dense(4)(x))).save(tmp_path / "model.keras")
    with pytest.raises((TypeError, ValueError)) as error:
        keras.saving.load_model(tmp_path / "model.keras", objects)
    assert len(str(error.value)) > 700
    line = shorten_message(error.value)
    assert cause in line
    assert len(line) < 420
    assert "config=" not in line
    assert "Exception encountered" not in line


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (ValueError(), "ValueError"),
        (ValueError("one\ntwo"), "one"),
        (ValueError("Could not locate class 'Foo'. Full object config: {'module': '; rm -r'}"), "(`--import MODULE`)"),
        (ValueError("word " * 9999), "word "),
    ],
)
def test_message_is_one_short_line(error, cause):
    line = shorten_message(error)
    assert cause in line
    assert len(line) < 420
