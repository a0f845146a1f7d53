"""Every model of the zoo is exported and passes the check, or is refused with the message that it names.

`nox -s zoo` runs them all, in a quarter of an hour.
"""

import re
from pathlib import Path

import keras
import numpy as np
import onnx
import pytest
from hard_to_check_models import perturb_weights
from unchanged_variables_check import assert_variables_unchanged

from keras_attn_export import ExportError, export_model

from . import ZOO
from .applications import DOCUMENTED, SMALL
from .table import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
of_hub = pytest.mark.needs("keras_hub")
EXPORTS = [
    pytest.param(
        each,
        precision,
        id=f"{each.name}-{precision}",
        marks=[of_hub] * each.kind.startswith("hub") + [pytest.mark.nightly] * each.nightly,
    )
    for each in ZOO.values()
    for precision in each.ways
]
LOWERED = {"bert": "MultiHeadAttention", "gpt2": "CachedMultiHeadAttention"}  # layers of keras_hub that are known


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # what Keras thinks of how keras_hub builds T5 and Swin
@pytest.mark.parametrize(("each", "precision"), EXPORTS)
def test_zoo_model_is_exported_or_refused_as_listed(each, precision, tmp_path):
    model, options = each.model(), {"sample_inputs": each.sample_inputs(), "precision": precision}
    if each.refused:
        with pytest.raises(ExportError, match=each.refused):
            export_model(model, tmp_path / "bundle", **options)
        return
    with assert_variables_unchanged(model):
        bundle = export_model(model, tmp_path / "bundle", **options)
    assert bundle.report.passed
    # sizes that Keras itself cannot run are few: a length of 1 that is halved by pooling
    assert len({row.case for row in bundle.report.rows}) > 2 * len(bundle.report.refused)
    onnx.checker.check_model(bundle.path / "model.onnx", full_check=True)
    dynamic = [[size is None for size in tensor.shape] for tensor in model.inputs]
    written = [[isinstance(size, str) for size in spec["shape"]] for spec in bundle.manifest["inputs"]]
    assert written == dynamic, "an axis that the model leaves open is a number in the file, or the other way round"
    if each.name in LOWERED:
        layers = [(layer["class"], layer["lowering"]) for layer in bundle.manifest["layers"]]
        assert layers == [(LOWERED[each.name], "adaptive")] * 2


@pytest.mark.slow
@of_hub
def test_every_backbone_of_keras_hub_is_in_the_zoo():
    from keras_hub import models

    rows = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("hub*.py"))
    exported = {getattr(models, name, None) for name in re.findall(r"\w+Backbone", rows)}
    backbones = {getattr(models, name) for name in dir(models) if name.endswith("Backbone")}
    assert backbones - exported == {models.Backbone, models.FeaturePyramidBackbone}  # which are base classes


def test_page_has_every_model_and_keeps_lines_without_results():
    present = PAGE.read_text(encoding="utf-8")
    named = re.findall(r"^\| ([a-z\d ]+) \|", present, flags=re.MULTILINE)
    assert sorted({*named} - {"architecture"}) == sorted(name.replace("_", " ") for name in ZOO)
    assert page({"bert": {"float32": {}}}, present) == present  # whose other precisions have no results
    results = {"weights": 1, "inputs": ["x (?)"], "of_limit": 0.5, "max_rel": 0.125}
    lines = zip(present.splitlines(), page({"gpt2": {"float32": results}}, present).splitlines(), strict=True)
    changed = [line for old, line in lines if line != old]
    assert changed[-1].endswith("| `x (?)` | 1 | 0.50 | 1e-01 | not tried |")
    assert len(changed) <= 3  # with the counts


HEIGHT, WIDTH = 96, 128


@pytest.mark.slow
@pytest.mark.filterwarnings("error::UserWarning:keras_attn_export")
@pytest.mark.parametrize("name", [*SMALL, *(pytest.param(name, marks=pytest.mark.nightly) for name in DOCUMENTED)])
def test_model_runs_at_other_sizes_and_stays_unchanged(name, tmp_path):
    keras.backend.clear_session()
    keras.utils.set_random_seed(0)
    model = perturb_weights((SMALL | DOCUMENTED)[name](), 0)
    with assert_variables_unchanged(model):
        bundle = export_model(model, tmp_path / "bundle")
    (spec,) = bundle.manifest["inputs"]
    assert [isinstance(size, str) for size in spec["shape"]] == [size is None for size in model.inputs[0].shape]
    shape = [size or other for size, other in zip(model.inputs[0].shape, (2, HEIGHT, WIDTH, 3), strict=True)]
    images = np.random.default_rng(1).uniform(0, 255, shape).astype("float32")
    (output,) = bundle.run({spec["name"]: images}).values()
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
