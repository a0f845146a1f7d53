"""The textbook's own models export: axes that Python code asks for become static by name, others stay dynamic."""

import numpy as np
import pytest
from textbook_models import (
    LAYERS,
    SOURCE,
    STEPS,
    NWKernelRegression,
    Seq2SeqAttentionDecoder,
    TransformerEncoder,
    encoder_block,
    samples_of,
)

from keras_attn_export import export_model
from keras_attn_export._export.export import StaticAxisWarning
from keras_attn_export._standalone.verify import CASES, load_cases


def shapes(bundle, part="inputs"):
    return {spec["name"]: spec["shape"][:2] for spec in bundle.manifest[part]}


def exported(model, folder, warned=True):
    samples = samples_of(model)
    if not warned:
        return export_model(model, folder / "bundle", sample_inputs=samples)
    with pytest.warns(StaticAxisWarning, match=r"^Axis `X_length` is static in the bundle\. TensorFlow cannot trace"):
        return export_model(model, folder / "bundle", sample_inputs=samples)


def test_bahdanaus_decoder(tmp_path):
    bundle = exported(Seq2SeqAttentionDecoder(), tmp_path)
    assert bundle.report.passed
    assert shapes(bundle) == {
        "X": ["batch", STEPS],
        "state_0": ["batch", "state_0_length"],
        "state_1": [LAYERS, "batch"],
        "state_2": ["batch"],
    }
    assert shapes(bundle, "outputs") == {"output_0": ["batch", STEPS], "output_1": [LAYERS, "batch"]}
    static = bundle.manifest["static"]
    assert static["X_length"].endswith("'NoneType' object cannot be interpreted as an integer")
    assert "no other size" in static["state_1_axis_0"]
    assert len(bundle.report.rows) > 10


def test_the_transformer_encoder(tmp_path):
    """A slice of the table of positions up to `None` is all of it, which fails only when the graph runs."""
    bundle = exported(TransformerEncoder(), tmp_path)
    assert shapes(bundle) == {"X": ["batch", SOURCE], "valid_lens": ["batch"]}
    assert "[1,1000,8]" in bundle.manifest["static"]["X_length"]


@pytest.mark.filterwarnings("ignore:`build\\(\\)` was called")
def test_a_block_with_lengths_in_a_functional_model(tmp_path):
    bundle = export_model(encoder_block(), tmp_path / "bundle")
    assert shapes(bundle) == {"X": ["batch", "X_length"], "valid_lens": ["batch"]}
    assert bundle.manifest["static"] == {}
    lengths = {int(n) for case in load_cases(bundle.path / CASES) for n in case.inputs["valid_lens"]}
    assert {0, 1} < lengths
    inputs = {"X": np.ones((2, 9, 8), "f"), "valid_lens": np.array([3, 9], "int32")}
    assert bundle.run(inputs)["block"].shape == (2, 9, 8)


@pytest.mark.smoke
def test_kernel_regression(tmp_path):
    bundle = exported(NWKernelRegression(), tmp_path, warned=False)
    assert shapes(bundle) == {"queries": ["batch"], "keys": ["batch", 9], "values": ["batch", 9]}
    assert shapes(bundle, "outputs") == {"output_0": ["batch"]}
