"""Models of the zoo: each export passes the check or is refused as listed. `nox -s zoo` runs all in 15 minutes."""

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
from .table import render_page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "models.md"
needs_keras_hub = pytest.mark.needs("keras_hub")
EXPORTS = [
    pytest.param(
        architecture,
        precision,
        id=f"{architecture.name}-{precision}",
        marks=[needs_keras_hub] * architecture.kind.startswith("hub") + [pytest.mark.nightly] * architecture.nightly,
    )
    for architecture in ZOO.values()
    for precision in architecture.float32_and_low_precisions
]
# Models of keras_hub with attention layers that the export lowers, each twice.
LOWERED_LAYERS = {"bert": "MultiHeadAttention", "gpt2": "CachedMultiHeadAttention"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")  # T5 and Swin of keras_hub pass masks to layers without masks
@pytest.mark.parametrize(("architecture", "precision"), EXPORTS)
def test_zoo_model_is_exported_or_refused_as_listed(architecture, precision, tmp_path):
    model, options = (
        architecture.build_model(),
        {"sample_inputs": architecture.draw_sample_inputs(), "precision": precision},
    )
    if architecture.refusal:
        with pytest.raises(ExportError, match=architecture.refusal):
            export_model(model, tmp_path / "bundle", **options)
        return
    with assert_variables_unchanged(model):
        bundle = export_model(model, tmp_path / "bundle", **options)
    assert bundle.report.passed
    # Keras itself refuses few sizes, such as a length of 1 before pooling.
    assert len({row.case for row in bundle.report.rows}) > 2 * len(bundle.report.refused)
    onnx.checker.check_model(bundle.path / "model.onnx", full_check=True)
    dynamic = [[size is None for size in tensor.shape] for tensor in model.inputs]
    symbolic = [[isinstance(size, str) for size in spec["shape"]] for spec in bundle.manifest["inputs"]]
    assert symbolic == dynamic, "the file and the model have different dynamic axes"
    if architecture.name in LOWERED_LAYERS:
        layers = [(layer["class"], layer["lowering"]) for layer in bundle.manifest["layers"]]
        assert layers == [(LOWERED_LAYERS[architecture.name], "adaptive")] * 2


@pytest.mark.slow
@needs_keras_hub
def test_every_backbone_of_keras_hub_is_in_the_zoo():
    from keras_hub import models

    code = "".join(file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("hub*.py"))
    exported = {getattr(models, name, None) for name in re.findall(r"\w+Backbone", code)}
    backbones = {getattr(models, name) for name in dir(models) if name.endswith("Backbone")}
    assert backbones - exported == {models.Backbone, models.FeaturePyramidBackbone}  # base classes


def test_page_has_every_model_and_keeps_lines_without_results():
    current = PAGE.read_text(encoding="utf-8")
    names = re.findall(r"^\| ([a-z\d ]+) \|", current, flags=re.MULTILINE)
    assert sorted({*names} - {"architecture"}) == sorted(name.replace("_", " ") for name in ZOO)
    # Without results in all precisions the line stays.
    assert render_page({"bert": {"float32": {}}}, current) == current
    result = {"weights": 1, "inputs": ["x (?)"], "of_limit": 0.5, "max_rel": 0.125}
    updated = render_page({"gpt2": {"float32": result}}, current)
    changed_lines = [line for line, old in zip(updated.splitlines(), current.splitlines(), strict=True) if line != old]
    assert changed_lines[-1].endswith("| `x (?)` | 1 | 0.50 | 1e-01 | not tried |")
    assert len(changed_lines) <= 3  # the model's line and two lines of the counts


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
    shape = [size or dynamic for size, dynamic in zip(model.inputs[0].shape, (2, 96, 128, 3), strict=True)]
    images = np.random.default_rng(1).uniform(0, 255, shape).astype("float32")
    (output,) = bundle.run({spec["name"]: images}).values()
    expected = model.predict(images, verbose=0)
    np.testing.assert_allclose(output, expected, rtol=1e-3, atol=1e-3 * np.abs(expected).max())
