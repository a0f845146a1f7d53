"""Golden outputs in full float32: TF32, which rounds the factors of products on a GPU, is switched off."""

import runpy
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_attn_export
from keras_attn_export._options import Options
from keras_attn_export._rounding.reference import build_reference, build_user_case


@pytest.fixture
def set_tf32():
    """Function that allows or forbids TF32; the present setting is restored afterwards."""
    setting = tf.config.experimental.tensor_float_32_execution_enabled()
    yield tf.config.experimental.enable_tensor_float_32_execution
    tf.config.experimental.enable_tensor_float_32_execution(setting)


@pytest.mark.parametrize("is_allowed", [True, False])
def test_tf32_is_off_while_keras_computes_golden_outputs(is_allowed, set_tf32):
    settings = set()

    def record_setting(x):
        if hasattr(x, "numpy"):
            settings.add(tf.config.experimental.tensor_float_32_execution_enabled())
        return x

    x = keras.Input((3,), name="x")
    model = keras.Model(x, layers.Lambda(record_setting)(x))
    set_tf32(is_allowed)
    for run in (
        lambda: build_reference(model, Options(), lambda name: None),
        lambda: build_user_case("samples", model, Options(samples={"x": np.ones((2, 3))})),
    ):
        settings.clear()
        run()
        assert settings == {False}
        assert tf.config.experimental.tensor_float_32_execution_enabled() is is_allowed


def test_tf32_is_off_in_the_process_of_the_saved_model(set_tf32, monkeypatch):
    for name in ("keras", "keras_attn", "keras_attn_export"):  # restores the entries that `isolate` sets to None
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    set_tf32(True)
    script = runpy.run_path(str(Path(keras_attn_export.__file__).with_name("_processes") / "saved_model_run.py"))
    script["isolate"]()
    with pytest.raises(OSError, match="absent"):
        script["load"]("absent", "serving_default")
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
