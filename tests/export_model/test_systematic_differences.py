"""Systematic differences of three limits: detected for every source of a limit, with the layer in the message."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from shifted_models import SOURCES, TIED_ROWS, Shifted, build_choice_model, build_shifted_model

from keras_attn_export import ParityError, export_model, verify_bundle
from keras_attn_export._options import Options
from keras_attn_export._rounding.reassociation_error import widen_for_reassociation
from keras_attn_export._rounding.reference import build_reference


def compute_largest_limit(model, samples=None):
    """Return the largest limit of output `y`, with the limits widened for reassociation in every case."""
    signature, reference = build_reference(model, Options(samples=samples), lambda _: None)
    cases = widen_for_reassociation(
        signature, reference.golden_cases.cases, {case.name for case in reference.golden_cases.cases}
    )
    return max(float(case.rounding_limits["y"].max()) for case in cases if case.outputs["y"].size)


@pytest.mark.slow
@pytest.mark.parametrize("source", [*SOURCES, "choices"])
def test_difference_of_three_limits_fails_parity(source, tmp_path):
    samples = {"x": TIED_ROWS} if source == "choices" else None
    build = build_choice_model if source == "choices" else partial(build_shifted_model, source)
    limit = compute_largest_limit(build(0.0), samples)
    with pytest.raises(ParityError, match=r"`predict` and an eager call .*The difference begins in layer `shifted`\.$"):
        export_model(build(3 * limit), tmp_path / "bundle", sample_inputs=samples)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
def test_difference_of_three_limits_on_samples_fails_verification(tmp_path):
    bundle = export_model(build_shifted_model("dense", 0.0), tmp_path / "bundle")
    samples = {"x": np.random.default_rng(0).standard_normal((3, 5, 6)).astype("float32")}
    model = build_shifted_model("dense", 0.0)
    model.get_layer(index=1).bias.assign([3 * compute_largest_limit(model)] * 3)
    with pytest.raises(ParityError, match="`y` is outside the tolerance in case `samples`"):
        verify_bundle(bundle.path, samples=samples, model=model)


class GraphNoise(layers.Layer):
    def call(self, x):
        return x if tf.executing_eagerly() else x * (1 + 0.1 * tf.random.uniform(tf.shape(x)))


@pytest.mark.slow
def test_noise_in_the_graph_alone_fails_parity(tmp_path):
    x = keras.Input((6,), name="x")
    with pytest.raises(ParityError, match="in layer `noise`"):
        export_model(keras.Model(x, layers.Dense(2)(GraphNoise(name="noise")(x))), tmp_path / "bundle")


@pytest.mark.slow
def test_different_layer_after_texts_is_named(tmp_path):
    x = keras.Input((3,), dtype="string", name="x")
    rows = layers.Embedding(4, 2)(layers.StringLookup(vocabulary=["a", "b"])(x))
    with pytest.raises(ParityError, match="in layer `shifted`"):
        export_model(keras.Model(x, Shifted(0.1, name="shifted")(rows)), tmp_path / "bundle")
