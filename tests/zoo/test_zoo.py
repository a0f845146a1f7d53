"""Every model of the zoo is exported and proven, or refused with the sentence that it says.

`scripts/test -m zoo` runs them all, in half an hour; `--share 1/6` every sixth.
"""

import importlib.util
import re
from pathlib import Path

import onnx
import pytest

from keras_attn_export import ExportError, export_model

from . import ZOO
from .exports import ways

ROOT = Path(__file__).resolve().parents[2]
EXPORTS = [
    pytest.param(each, way, options, id=f"{each.name}-{way}") for each in ZOO.values() for way, options in ways(each)
]


@pytest.fixture
def installed(each):
    if each.kind.startswith("hub") and not importlib.util.find_spec("keras_hub"):
        pytest.skip("keras_hub is not installed; scripts/zoo-setup does, which .ci/run calls")


@pytest.mark.zoo
@pytest.mark.usefixtures("installed")
@pytest.mark.filterwarnings("ignore::UserWarning")  # what Keras thinks of how keras_hub builds T5 and Swin
@pytest.mark.parametrize(("each", "way", "options"), EXPORTS)
def test_is_exported(each, way, options, tmp_path):
    model, samples = each.model(), each.sample_inputs()
    if each.refused:
        with pytest.raises(ExportError, match=each.refused):
            export_model(model, tmp_path / "bundle", sample_inputs=samples, **options)
        return
    bundle = export_model(model, tmp_path / "bundle", sample_inputs=samples, **options)
    assert bundle.report.passed
    # sizes that Keras itself cannot run are few: a length of 1 that is halved by pooling
    assert len({row.case for row in bundle.report.rows}) > 2 * len(bundle.report.refused)
    onnx.checker.check_model(bundle.path / "model.onnx", full_check=True)
    dynamic = [[size is None for size in tensor.shape] for tensor in model.inputs]
    written = [[isinstance(size, str) for size in spec["shape"]] for spec in bundle.manifest["inputs"]]
    assert written == dynamic, "an axis that the model leaves open is a number in the file, or the other way round"


def test_every_model_is_in_the_table():
    page = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    named = re.findall(r"^\| ([a-z\d ]+) \|", page, flags=re.MULTILINE)
    assert sorted({*named} - {"architecture"}) == sorted(name.replace("_", " ") for name in ZOO)


def test_enough_of_everything():
    kinds = [each.kind for each in ZOO.values()]
    assert len(kinds) - kinds.count("applications") - sum(kind.startswith("hub") for kind in kinds) >= 60
    assert sum(each.auto for each in ZOO.values()) >= 8
    assert sum(bool(each.precisions) for each in ZOO.values()) >= len(ZOO) / 10
    assert sum(each.seeded for each in ZOO.values()) >= 20
