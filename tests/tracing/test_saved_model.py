"""A SavedModel is the same in each process: its variables are in the order of the model, and nothing in it is drawn."""

import keras
import pytest
import tensorflow as tf
from keras import layers
from tensorflow.core.protobuf.fingerprint_pb2 import FingerprintDef

from keras_attn_export._model.signature import model_signature
from keras_attn_export._tracing.saved_model import write_saved_model


@pytest.mark.slow
def test_saved_model_is_the_same_in_each_process(tmp_path):
    sizes = [*range(2, 10)]
    model = keras.Sequential([keras.Input((1,)), *(layers.Dense(size, use_bias=False) for size in sizes)])
    write_saved_model(model_signature(model), tmp_path)
    shapes = tf.train.load_checkpoint(str(tmp_path / "variables" / "variables")).get_variable_to_shape_map()
    assert sorted(shape[-1] for shape in shapes.values() if shape) == sizes  # each once, though Keras lists it twice
    loaded = tf.saved_model.load(str(tmp_path))
    for variables in (loaded._all_variables, loaded.trainable_variables):
        assert [variable.shape[-1] for variable in variables] == sizes
    fingerprint = FingerprintDef.FromString((tmp_path / "fingerprint.pb").read_bytes())
    assert getattr(fingerprint, "uuid", str(fingerprint.saved_model_checksum)) == str(fingerprint.saved_model_checksum)


def test_hyphens_in_names_become_underscores(tmp_path):
    x = keras.Input((2,), name="Input-Token")
    write_saved_model(model_signature(keras.Model(x, layers.Dense(1, name="out-1")(x))), tmp_path)
    serve = tf.saved_model.load(str(tmp_path)).signatures["serving_default"]
    assert [*serve.structured_input_signature[1]] == ["Input_Token"]
    assert serve(Input_Token=tf.ones((3, 2)))["out-1"].shape == (3, 1)
