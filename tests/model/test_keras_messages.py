"""What Keras's errors come down to: the cause, in a sentence."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attn_export._model.keras_messages import first_line


class Unknown(layers.Layer):
    """A layer of which a file's reader knows nothing."""

    def call(self, x):
        return x


class Changed(layers.Layer):
    """A layer that takes other arguments now than when it was saved."""

    def call(self, x):
        return x

    def get_config(self):
        return {**super().get_config(), "gone": ["x"] * 5000}


class Broken(layers.Layer):
    """A layer that only works while the model is built."""

    def call(self, x):
        if hasattr(x, "numpy"):
            raise ValueError("never on real tensors")
        return x


def saved(layer, tmp_path):
    x = keras.Input((4,), name="x")
    keras.Model(x, layer(layers.Dense(4)(x))).save(tmp_path / "model.keras")
    return tmp_path / "model.keras"


UNKNOWN = f"it does not know the class `Unknown` of module `{__name__}`. Import the module first, as `--import"


@pytest.mark.parametrize(("layer", "said"), [(Unknown, UNKNOWN), (Changed, "gone")])
def test_a_file_that_cannot_be_loaded(layer, said, tmp_path):
    file = saved(layer(), tmp_path)
    objects = {"Changed": Changed}
    with pytest.raises((TypeError, ValueError)) as caught:
        keras.saving.load_model(file, objects)
    assert len(str(caught.value)) > 700
    line = first_line(caught.value)
    assert said in line
    assert len(line) < 420
    assert "config=" not in line
    assert "Exception encountered" not in line


def test_a_layers_own_message():
    x = keras.Input((4,), name="x")
    model = keras.Model(x, Broken()(x))
    with pytest.raises(ValueError, match="never") as caught:
        model(np.ones((2, 4)))
    assert first_line(caught.value) == "never on real tensors"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError(), "ValueError"),
        (ValueError("one\ntwo"), "one"),
        (ValueError("Could not locate class 'Foo'. Full object config: {'module': '__main__'}"), "`--import MODULE`"),
        (ValueError("Could not locate class 'Foo'. Full object config: {'module': '; rm -r'}"), "`--import MODULE`"),
        (ValueError("word " * 9999), "word "),
    ],
)
def test_other_messages(error, said):
    line = first_line(error)
    assert said in line
    assert len(line) < 420
