"""Every model of export_models.py exports, matches Keras three ways, and can be verified again from disk."""

import numpy as np
import onnx
import pytest
from decoder_export_models import DECODER_PARTS
from export_models import EXPORTED as MODELS

from keras_attn_export import export_model, load_bundle, verify_bundle
from keras_attn_export._options import ADAPTIVE, LOWERINGS, PORTABLE

EXPORTED = MODELS | DECODER_PARTS
EVERY_LOWERING = ("additive", "dict inputs and outputs")  # one for each of the scores that lowerings have a form for


def in_lowerings(number, name):
    """Every other model in one of three lowerings, in turn; all in that and the next later; plain without attention."""
    one, later = (LOWERINGS[each % 3] for each in (number, number + 1))
    if name in EVERY_LOWERING:
        in_turn = (one, ADAPTIVE, "auto")
        chosen = {each: [] if each in in_turn else [pytest.mark.out_of_turn] for each in LOWERINGS}
    elif EXPORTED[name].attention:
        chosen = {one: [pytest.mark.out_of_turn] if number % 2 else [], later: [pytest.mark.out_of_turn]}
    else:
        chosen = {PORTABLE: []}
    for lowering, marks in chosen.items():
        yield pytest.param(EXPORTED[name], lowering, id=f"{lowering}-{name}", marks=marks)


@pytest.mark.parametrize(
    ("case", "lowering"), [each for number, name in enumerate(EXPORTED) for each in in_lowerings(number, name)]
)
def test_exports_and_matches(case, lowering, tmp_path):
    bundle = export_model(case.build(), tmp_path / "bundle", sample_inputs=case.samples(), lowering=lowering)
    assert bundle.report.passed
    assert len(bundle.report.rows) == len(bundle.report.saved_model_rows) > 0
    assert not bundle.report.refused
    assert verify_bundle(bundle.path).passed
    assert_dynamic_axes_are_shared_by_name(bundle)
    assert case.attention == any(layer["class"] != "MaskedSoftmax" for layer in bundle.manifest["layers"])


def assert_dynamic_axes_are_shared_by_name(bundle):
    graph = onnx.load(bundle.path / "model.onnx").graph
    for part, values in (("inputs", graph.input), ("outputs", graph.output)):
        written = [
            (value.name, [dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim])
            for value in values
        ]
        assert written == [(spec["name"], spec["shape"]) for spec in bundle.manifest[part]]
    named = {axis for spec in bundle.manifest["inputs"] for axis in spec["shape"] if isinstance(axis, str)}
    for spec in bundle.manifest["outputs"]:
        own = {axis for axis in spec["shape"] if isinstance(axis, str)} - named
        assert all(axis.startswith(f"{spec['name']}_axis_") for axis in own), "neither an input's nor its own"


@pytest.mark.parametrize(
    "opset", [18, *(pytest.param(each, marks=pytest.mark.out_of_turn) for each in range(19, 24)), 24]
)
def test_every_opset(opset, tmp_path):
    bundle = export_model(EXPORTED["gelu, norm, dropout, conv"].build(), tmp_path / "bundle", opset=opset)
    model = onnx.load(bundle.path / "model.onnx")
    assert {entry.domain: entry.version for entry in model.opset_import}[""] == opset
    assert bundle.manifest["opset"] == opset
    assert bundle.report.passed


@pytest.mark.out_of_turn
@pytest.mark.fresh_process
def test_recurrent_encoders_at_the_newest_opset(tmp_path):
    bundle = export_model(EXPORTED["implicit mask and encoders"].build(), tmp_path / "bundle", opset=24)
    assert bundle.report.passed


@pytest.mark.fresh_process
@pytest.mark.parametrize("lowering", [pytest.param("portable", marks=pytest.mark.out_of_turn), "ragged"])
def test_padding_cannot_leak_in_onnx(lowering, tmp_path):
    bundle = export_model(EXPORTED["additive"].build(), tmp_path / "bundle", lowering=lowering)
    rng = np.random.default_rng(1)
    shapes = {"queries": (2, 3, 6), "keys": (2, 5, 8), "values": (2, 5, 5)}
    inputs = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    inputs["valid_lens"] = np.array([2, 0], "int32")
    clean = load_bundle(bundle.path).run(inputs)
    inputs["keys"][0, 2:], inputs["values"][0, 3:] = np.nan, np.inf
    inputs["keys"][1], inputs["values"][1] = 1e30, np.nan
    poisoned = bundle.run(inputs)
    np.testing.assert_array_equal(poisoned["attention"], clean["attention"])
    np.testing.assert_array_equal(clean["attention"][1], 0)
    assert np.abs(clean["attention"][0]).min() > 0


@pytest.mark.out_of_turn
@pytest.mark.parametrize("lowering", ["portable", "ragged"])
def test_the_implicit_mask_survives_in_onnx(lowering, tmp_path):
    bundle = export_model(EXPORTED["implicit mask and encoders"].build(), tmp_path / "bundle", lowering=lowering)
    ids = np.array([[3, 4, 5]], "int32")
    padded = np.array([[3, 4, 5, 0, 0]], "int32")
    np.testing.assert_allclose(
        bundle.run({"ids": padded})["classes"][:, :3], bundle.run({"ids": ids})["classes"], rtol=1e-5
    )
