"""Models of keras.applications as documentation shows them: exports keep sizes open, and change no variable."""

import keras
import numpy as np
import pytest
from proof_models import perturbed
from variables_kept import variables_kept

from keras_attn_export import export_model

from .applications import DOCUMENTED, SMALL

HEIGHT, WIDTH = 96, 128


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning:keras_attn_export")
@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.nightly) for name in DOCUMENTED)])
def test_model_runs_at_other_sizes_and_stays_unchanged(name, tmp_path):
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = perturbed((SMALL | DOCUMENTED)[name](), 0)
    with variables_kept(model):
        bundle = export_model(model, tmp_path / "bundle")
    (spec,) = bundle.manifest["inputs"]
    assert [isinstance(size, str) for size in spec["shape"]] == [size is None for size in model.inputs[0].shape]
    shape = [size or other for size, other in zip(model.inputs[0].shape, (2, HEIGHT, WIDTH, 3), strict=True)]
    images = np.random.default_rng(1).uniform(0, 255, shape).astype("float32")
    (output,) = bundle.run({spec["name"]: images}).values()
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
