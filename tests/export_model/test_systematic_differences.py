"""A difference between implementations of a model is found whatever widens a limit, and the layer is named."""

from functools import partial

import keras
import numpy as np
import pytest
from keras import layers
from shifted_models import SOURCES, TIES, choosing, shifted

from keras_attn_export import ParityError, export_model, verify_bundle
from keras_attn_export._model.reference import reference_of
from keras_attn_export._model.reordered import with_reordering
from keras_attn_export._options import Options


def widest_limit(model, samples=None):
    """The widest limit of the output `y`, after every way to widen one."""
    signature, reference = reference_of(model, Options(samples=samples), lambda _: None)
    cases = with_reordering(signature, reference.golden.cases, {case.name for case in reference.golden.cases})
    return max(float(case.rounding["y"].max()) for case in cases if case.outputs["y"].size)


@pytest.mark.parametrize("source", [*SOURCES, "choices"])
def test_difference_of_three_limits_is_found(source, tmp_path):
    samples = {"x": TIES} if source == "choices" else None
    build = choosing if source == "choices" else partial(shifted, source)
    limit = widest_limit(build(0.0), samples)
    with pytest.raises(ParityError, match=r"`predict` and an eager call .*The difference begins in layer `shifted`\.$"):
        export_model(build(3 * limit), tmp_path / "bundle", sample_inputs=samples)
    assert not (tmp_path / "bundle").exists()


def test_difference_of_three_limits_is_found_on_samples(tmp_path):
    bundle = export_model(shifted("cancelling", 0.0), tmp_path / "bundle")
    samples = {"x": np.random.default_rng(0).standard_normal((3, 5, 6)).astype("float32")}
    report = verify_bundle(bundle.path, samples=samples, model=shifted("cancelling", 0.0))
    limit = max(row.max_abs / max(row.of_limit, 1e-3) for row in report.rows if row.case == "samples")
    other = keras.Sequential([keras.Input((None, 6), name="x"), layers.Rescaling(1.0, 3 * max(limit, 1e-2), name="y")])
    with pytest.raises(ParityError, match="`y` is outside the tolerance in case `samples`"):
        verify_bundle(bundle.path, samples=samples, model=other)


class InFloat64(layers.Layer):
    """Another function in float64."""

    def call(self, x):
        return x * (1.005 if self.compute_dtype == "float64" else 1.0)


def test_function_that_differs_in_float64_widens_no_limit():
    x = keras.Input((6,), name="x")
    assert widest_limit(keras.Model(x, {"y": InFloat64()(x)})) < 1e-3
