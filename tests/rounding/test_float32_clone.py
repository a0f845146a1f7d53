"""Float32 clones of half-precision models: weights, outputs, the reported difference, and models without a clone."""

import keras
import numpy as np
import pytest
from export_models import (
    TwoArguments,
    build_dict_inputs_and_outputs,
    build_implicit_mask_and_encoders,
    build_nested_model,
    build_shared_with_nested_model,
    draw_two_argument_samples,
)
from keras import layers

from keras_attn_export import UnsupportedModelError, export_model
from keras_attn_export._rounding.float32_clone import clone_to_float32, find_half_policies
from keras_attn_export._signature.signature import build_signature


def build_with_policy(policy, build):
    keras.config.set_dtype_policy(policy)
    try:
        return build()
    finally:
        keras.config.set_dtype_policy("float32")


@pytest.mark.parametrize(
    ("build", "policy"),
    [
        *(
            (build_dict_inputs_and_outputs, policy)
            for policy in ("mixed_float16", "float16", "mixed_bfloat16", "bfloat16")
        ),
        (build_nested_model, "bfloat16"),
        (build_implicit_mask_and_encoders, "mixed_bfloat16"),  # TensorFlow cannot initialise a GRU in pure bfloat16
    ],
)
def test_clone_computes_in_float32_with_the_same_weights(build, policy):
    model = build_with_policy(policy, build)
    clone = clone_to_float32(build_signature(model))
    assert find_half_policies(build_signature(model)) == [policy]
    assert find_half_policies(clone) == []
    assert {str(weight.dtype) for weight in clone.model.weights} <= {"float32"}
    for cloned, original in zip(clone.model.weights, model.weights, strict=True):
        np.testing.assert_array_equal(cloned, np.asarray(keras.ops.cast(original, "float32")))
    assert clone.model.output_names == model.output_names
    assert keras.config.dtype_policy().name == "float32"


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_clone_has_the_weights_of_a_layer_shared_with_a_nested_model(policy):
    clone = clone_to_float32(build_signature(build_with_policy(policy, build_shared_with_nested_model))).model
    x = np.random.default_rng(0).normal(size=(2, 3, 6)).astype("float32")
    np.testing.assert_allclose(clone(x)["out"], build_shared_with_nested_model()(x)["out"], rtol=1e-6, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "samples", "policy"),
    [
        (build_dict_inputs_and_outputs, None, "mixed_float16"),
        (build_dict_inputs_and_outputs, None, "bfloat16"),
        (TwoArguments, draw_two_argument_samples(), "mixed_float16"),
    ],
)
def test_half_precision_exports_as_float32(build, samples, policy, tmp_path):
    bundle = export_model(build_with_policy(policy, build), tmp_path / "bundle", sample_inputs=samples)
    assert bundle.report.passed
    assert bundle.report.float32_clone["policies"] == [policy]
    assert 1e-6 < bundle.report.float32_clone["max_rel"] < 0.05, "half precision differs from float32, but by little"
    assert {spec["dtype"] for spec in bundle.manifest["outputs"]} == {"float32"}


@keras.saving.register_keras_serializable("tests")
class Scale(layers.Layer):
    """Layer with an attribute that is neither a weight nor in its configuration."""

    scale = 1.0

    def call(self, x):
        return x * self.scale


class NoConfig(Scale):
    """Layer that cannot be rebuilt from its configuration."""

    def __init__(self, scale):
        super().__init__()


@pytest.mark.parametrize(
    ("build_layer", "message"),
    [
        (Scale, "float32 clone of .* gives other outputs"),
        (lambda: NoConfig(2), "`half_model` computes in mixed_float16 and has no float32 clone.*precision='float16'"),
    ],
)
def test_model_without_an_equal_float32_clone_is_refused(build_layer, message, tmp_path):
    def build():
        x, layer = keras.Input((3,), name="x"), build_layer()
        layer.scale = 7.0
        return keras.Model(x, layers.Dense(2)(layer(x)), name="half_model")

    model = build_with_policy("mixed_float16", build)
    with pytest.raises(UnsupportedModelError, match=message):
        export_model(model, tmp_path / "bundle")
    assert not list(tmp_path.iterdir())


def test_clone_keeps_the_statistics_of_a_normalization():
    x = keras.Input((3,), name="x")

    def build():
        normalize = layers.Normalization()
        normalize.adapt(np.random.default_rng(0).normal(5, 3, (100, 3)))
        return keras.Model(x, normalize(x))

    model = build_with_policy("mixed_float16", build)
    values = np.full((2, 3), 8.0, "float32")
    np.testing.assert_allclose(clone_to_float32(build_signature(model)).model(values), model(values), rtol=1e-2)


def test_bfloat16_outputs_are_refused(tmp_path):
    x = keras.Input((3,), name="x")
    model = keras.Model(x, keras.ops.cast(x * 2, "bfloat16"))
    with pytest.raises(UnsupportedModelError, match="bfloat16, which NumPy does not have"):
        export_model(model, tmp_path / "bundle")


def test_clone_leaves_the_global_random_state_unchanged():
    sequence = [keras.Input((3,)), layers.Dense(2), layers.Dropout(0.5)]
    model = build_with_policy("mixed_float16", lambda: keras.Sequential(sequence))
    keras.utils.set_random_seed(3)
    expected = keras.random.normal((2,))
    keras.utils.set_random_seed(3)
    clone_to_float32(build_signature(model))
    np.testing.assert_array_equal(keras.random.normal((2,)), expected)
