"""Models of features that are hashed, alone and together, become files that give what TensorFlow does."""

import keras
import tensorflow as tf
from keras.utils import FeatureSpace

from keras_attn_export import export_model


def test_a_feature_space(tmp_path):
    known = {"word": ["x", "y", "z"], "number": [1, 2, 30]}
    space = FeatureSpace(
        {"word": FeatureSpace.string_hashed(10), "number": FeatureSpace.integer_hashed(10)},
        crosses=[FeatureSpace.cross(("word", "number"), 16)],
        output_mode="concat",
    )
    space.adapt(tf.data.Dataset.from_tensor_slices(known))
    model = keras.Model(space.get_inputs(), space.get_encoded_features())
    assert export_model(model, tmp_path / "bundle") is not None


def test_whole_numbers_that_are_only_crossed(tmp_path):
    x, y = keras.Input((1,), dtype="string", name="word"), keras.Input((1,), dtype="int64", name="number")
    model = keras.Model([x, y], keras.layers.HashedCrossing(1000)([x, y]))
    export_model(model, tmp_path / "bundle")
