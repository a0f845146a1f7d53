"""A difference between implementations of a model is found whatever widens a limit, and the layer is named."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from shifted_models import SOURCES, TIES, Shifted, build_choice_model, build_shifted_model

from keras_attn_export import ParityError, export_model, verify_bundle
from keras_attn_export._options import Options
from keras_attn_export._rounding.reassociation_error import widen_for_reassociation
from keras_attn_export._rounding.reference import build_reference


def widest_limit(model, samples=None):
    """The widest limit of the output `y`, after every way to widen one."""
    signature, reference = build_reference(model, Options(samples=samples), lambda _: None)
    cases = widen_for_reassociation(signature, reference.golden.cases, {case.name for case in reference.golden.cases})
    return max(float(case.rounding["y"].max()) for case in cases if case.outputs["y"].size)


@pytest.mark.slow
@pytest.mark.parametrize("source", [*SOURCES, "choices"])
def test_difference_of_three_limits_is_found(source, tmp_path):
    samples = {"x": TIES} if source == "choices" else None
    build = build_choice_model if source == "choices" else partial(build_shifted_model, source)
    limit = widest_limit(build(0.0), samples)
    with pytest.raises(ParityError, match=r"`predict` and an eager call .*The difference begins in layer `shifted`\.$"):
        export_model(build(3 * limit), tmp_path / "bundle", sample_inputs=samples)
    assert not (tmp_path / "bundle").exists()


@pytest.mark.slow
def test_difference_of_three_limits_is_found_on_samples(tmp_path):
    bundle = export_model(build_shifted_model("dense", 0.0), tmp_path / "bundle")
    samples = {"x": np.random.default_rng(0).standard_normal((3, 5, 6)).astype("float32")}
    other = build_shifted_model("dense", 0.0)
    other.get_layer(index=1).bias.assign([3 * widest_limit(other)] * 3)
    with pytest.raises(ParityError, match="`y` is outside the tolerance in case `samples`"):
        verify_bundle(bundle.path, samples=samples, model=other)


class RandomInGraph(layers.Layer):
    def call(self, x):
        return x if tf.executing_eagerly() else x * (1 + 0.1 * tf.random.uniform(tf.shape(x)))


@pytest.mark.slow
def test_noise_of_a_graph_is_found(tmp_path):
    x = keras.Input((6,), name="x")
    with pytest.raises(ParityError, match="in layer `noise`"):
        export_model(keras.Model(x, layers.Dense(2)(RandomInGraph(name="noise")(x))), tmp_path / "bundle")


@pytest.mark.slow
def test_layer_behind_texts_is_named(tmp_path):
    x = keras.Input((3,), dtype="string", name="x")
    rows = layers.Embedding(4, 2)(layers.StringLookup(vocabulary=["a", "b"])(x))
    with pytest.raises(ParityError, match="in layer `shifted`"):
        export_model(keras.Model(x, Shifted(0.1, name="shifted")(rows)), tmp_path / "bundle")
