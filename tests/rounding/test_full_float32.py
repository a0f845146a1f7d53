"""Golden outputs are computed in full float32, also where a GPU could round products to TF32."""

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
def tf32():
    before = tf.config.experimental.tensor_float_32_execution_enabled()
    yield tf.config.experimental.enable_tensor_float_32_execution
    tf.config.experimental.enable_tensor_float_32_execution(before)


@pytest.mark.parametrize("allowed", [True, False])
def test_tf32_is_off_while_keras_computes_golden_outputs(allowed, tf32):
    seen = set()

    def watching(x):
        if hasattr(x, "numpy"):
            seen.add(tf.config.experimental.tensor_float_32_execution_enabled())
        return x

    x = keras.Input((3,), name="x")
    model = keras.Model(x, layers.Lambda(watching)(x))
    tf32(allowed)
    for run in (
        lambda: build_reference(model, Options(), lambda name: None),
        lambda: build_user_case("samples", model, Options(samples={"x": np.ones((2, 3))})),
    ):
        seen.clear()
        run()
        assert seen == {False}
        assert tf.config.experimental.tensor_float_32_execution_enabled() is allowed


def test_tf32_is_off_in_the_process_of_the_saved_model(tf32, monkeypatch):
    for name in ("keras", "keras_attn", "keras_attn_export"):  # which the script makes impossible to import
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    tf32(True)
    script = runpy.run_path(str(Path(keras_attn_export.__file__).with_name("_processes") / "saved_model_run.py"))
    script["isolate"]()
    with pytest.raises(OSError, match="absent"):
        script["load"]("absent", "serving_default")
    assert not tf.config.experimental.tensor_float_32_execution_enabled()
