"""What Keras's errors come down to: the cause, in a sentence."""

import keras
import pytest
from keras import layers

from keras_attn_export._signature.keras_messages import shorten_message


class Changed(layers.Layer):
    """A layer that takes other arguments now than when it was saved."""

    def call(self, x):
        return x

    def get_config(self):
        return {**super().get_config(), "gone": ["x"] * 5000}


UNKNOWN = f"it does not know the class `Changed` of module `{__name__}`. Import its module before the export (`--import"


@pytest.mark.parametrize(("objects", "said"), [({}, UNKNOWN), ({"Changed": Changed}, "gone")])
def test_load_error_is_shortened_to_its_cause(objects, said, tmp_path):
    x = keras.Input((4,), name="x")
    keras.Model(x, Changed()(layers.Dense(4)(x))).save(tmp_path / "model.keras")
    with pytest.raises((TypeError, ValueError)) as caught:
        keras.saving.load_model(tmp_path / "model.keras", objects)
    assert len(str(caught.value)) > 700
    line = shorten_message(caught.value)
    assert said in line
    assert len(line) < 420
    assert "config=" not in line
    assert "Exception encountered" not in line


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError(), "ValueError"),
        (ValueError("one\ntwo"), "one"),
        (ValueError("Could not locate class 'Foo'. Full object config: {'module': '; rm -r'}"), "(`--import MODULE`)"),
        (ValueError("word " * 9999), "word "),
    ],
)
def test_message_is_one_short_line(error, said):
    line = shorten_message(error)
    assert said in line
    assert len(line) < 420
