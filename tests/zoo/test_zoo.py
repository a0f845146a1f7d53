"""Every model of the zoo is exported and passes the check, or is refused with the message that it names.

`nox -s zoo` runs them all, in a quarter of an hour.
"""

import re
from pathlib import Path

import onnx
import pytest
from variables_kept import variables_kept

from keras_attn_export import ExportError, export_model

from . import ZOO
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
def test_is_exported(each, precision, tmp_path):
    model, options = each.model(), {"sample_inputs": each.sample_inputs(), "precision": precision}
    if each.refused:
        with pytest.raises(ExportError, match=each.refused):
            export_model(model, tmp_path / "bundle", **options)
        return
    with variables_kept(model):
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


def test_page_keeps_lines_of_models_without_results():
    present = PAGE.read_text(encoding="utf-8")
    assert page({"bert": {"float32": {}}}, present) == present  # whose other precisions have no results
    results = {"weights": 1, "inputs": ["x (?)"], "of_limit": 0.5, "max_rel": 0.125}
    lines = zip(present.splitlines(), page({"gpt2": {"float32": results}}, present).splitlines(), strict=True)
    changed = [line for old, line in lines if line != old]
    assert changed[-1].endswith("| `x (?)` | 1 | 0.50 | 1e-01 | not tried |")
    assert len(changed) <= 3  # with the counts


def test_every_model_is_in_the_table():
    named = re.findall(r"^\| ([a-z\d ]+) \|", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert sorted({*named} - {"architecture"}) == sorted(name.replace("_", " ") for name in ZOO)


def test_enough_of_everything():
    kinds = [each.kind for each in ZOO.values()]
    assert len(kinds) - kinds.count("applications") - sum(kind.startswith("hub") for kind in kinds) >= 60
    assert sum(bool(each.precisions) for each in ZOO.values()) >= len(ZOO) / 10
