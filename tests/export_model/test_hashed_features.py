"""Export of integers that only a crossing of features reads."""

import keras
import pytest

from keras_attn_export import export_model


@pytest.mark.slow
def test_whole_numbers_that_are_only_crossed(tmp_path):
    x, y = keras.Input((1,), dtype="string", name="word"), keras.Input((1,), dtype="int64", name="number")
    model = keras.Model([x, y], keras.layers.HashedCrossing(1000)([x, y]))
    export_model(model, tmp_path / "bundle")
