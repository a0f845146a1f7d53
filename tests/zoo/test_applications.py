"""Models of keras.applications as documentation shows them: exports keep sizes open, and change no variable."""

import numpy as np
import pytest

from keras_attn_export import export_model

from .applications import DOCUMENTED, SMALL

HEIGHT, WIDTH = 96, 128


def variables_of(model):
    return [np.array(variable) for variable in model.variables]


@pytest.mark.filterwarnings("error::UserWarning:keras_attn_export")
@pytest.mark.parametrize(
    "architecture",
    [*SMALL, *(pytest.param(each, marks=pytest.mark.zoo) for each in DOCUMENTED)],
    ids=lambda architecture: architecture.name,
)
def test_model_runs_at_other_sizes_and_stays_unchanged(architecture, tmp_path):
    model = architecture.model()
    before = variables_of(model)
    bundle = export_model(model, tmp_path / "bundle")
    for variable, value in zip(model.variables, before, strict=True):
        np.testing.assert_array_equal(variable, value, err_msg=variable.path)
    (spec,) = bundle.manifest["inputs"]
    assert [isinstance(size, str) for size in spec["shape"]] == [size is None for size in model.inputs[0].shape]
    shape = [size or other for size, other in zip(model.inputs[0].shape, (2, HEIGHT, WIDTH, 3), strict=True)]
    images = np.random.default_rng(1).uniform(0, 255, shape).astype("float32")
    (output,) = bundle.run({spec["name"]: images}).values()
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
