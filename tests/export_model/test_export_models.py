"""Every model of export_models.py and every decoder part: export, parity, verification from disk, axis names."""

import onnx
import pytest
from decoder_export_models import DECODER_PARTS
from export_models import EXPORTED as MODELS

from keras_attn_export import export_model, verify_bundle
from keras_attn_export._lowering_names import ADAPTIVE, PORTABLE

EXPORTED = MODELS | DECODER_PARTS
LOWERINGS = (PORTABLE, "fused", ADAPTIVE)
CASES = [
    (name, LOWERINGS[number % 3] if case.attention else PORTABLE)
    for number, (name, case) in enumerate(EXPORTED.items())
]
CASES += [(name, ADAPTIVE) for name in ("additive", "dict inputs and outputs")]  # one model for each kind of score


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "lowering"),
    [pytest.param(EXPORTED[name], lowering, id=f"{lowering}-{name}") for name, lowering in CASES],
)
def test_model_exports_and_matches(case, lowering, tmp_path):
    bundle = export_model(case.build(), tmp_path / "bundle", sample_inputs=case.samples(), lowering=lowering)
    assert bundle.report.passed
    assert len(bundle.report.rows) == len(bundle.report.saved_model_rows) > 0
    assert not bundle.report.refused
    assert verify_bundle(bundle.path).passed
    assert_dynamic_axes_are_shared_by_name(bundle)
    layers = [layer for layer in bundle.manifest["layers"] if layer["class"] != "MaskedSoftmax"]
    assert bool(layers) == bool(case.attention)
    assert sum("plain operators: " not in layer["form"] for layer in layers) >= case.attention


def assert_dynamic_axes_are_shared_by_name(bundle):
    graph = onnx.load(bundle.path / "model.onnx").graph
    for part, values in (("inputs", graph.input), ("outputs", graph.output)):
        axes = [
            (value.name, [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim])
            for value in values
        ]
        assert axes == [(spec["name"], spec["shape"]) for spec in bundle.manifest[part]]
    input_axes = {axis for spec in bundle.manifest["inputs"] for axis in spec["shape"] if isinstance(axis, str)}
    for spec in bundle.manifest["outputs"]:
        new_axes = {axis for axis in spec["shape"] if isinstance(axis, str)} - input_axes
        assert all(axis.startswith(f"{spec['name']}_axis_") for axis in new_axes), (
            "an axis has the name of another output"
        )
