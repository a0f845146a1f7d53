"""Export to int8 with calibration: reported errors, masked weights, layers that stay float32, and refused exports.

The reported errors of an output have two keys that need an explanation. `share` is the largest error divided by the
largest magnitude of the output. `same_choices` is the share of rows whose most likely class is the same in int8.
"""

import json

import keras
import numpy as np
import onnx
import pytest
from keras import layers
from small_bundle import read_manifest

from keras_attn import AdditiveAttention
from keras_attn_export import ParityError, ParityReport, export_model, load_bundle, verify_bundle
from keras_attn_export._cli.bundle_text import describe_bundle
from keras_attn_export._format.report_text import describe_precision
from keras_attn_export._precision import convert_precision
from keras_attn_export._precision.qdq_quantizer import CalibratedModel

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(40, 8, 8, 3)).astype("float32")


def build_image_model():
    """Return a classifier of images with convolutions, a batch normalization and a residual sum."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(1)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.ReLU()(layers.BatchNormalization(name="norm")(layers.Conv2D(8, 3, name="first")(image)))
    x = x + layers.Conv2D(8, 3, padding="same", activation="relu", name="second")(x)
    classify = layers.Dense(10, activation="softmax", name="classes", kernel_initializer="he_normal")
    model = keras.Model(image, classify(layers.Flatten()(x)))
    for variable in model.variables:  # variables that are all zeros or ones would hide errors
        if any(part in variable.path for part in ("bias", "beta", "moving_mean")):
            variable.assign(rng.normal(0, 0.3, variable.shape))
        if "gamma" in variable.path or "moving_variance" in variable.path:
            variable.assign(rng.uniform(0.5, 2.0, variable.shape))
    return model


def build_attention_model():
    """Return a model with attention over projected sequences, which also returns the attention weights."""
    keras.utils.set_random_seed(1)
    x, lens = keras.Input((None, 16), name="x"), keras.Input((), dtype="int32", name="valid_lens")
    hidden = layers.Dense(32, activation="tanh", name="widen")(x)
    attend = AdditiveAttention(24, name="attend")
    context, weights = attend(hidden, hidden, hidden, lens, return_attention_scores=True)
    return keras.Model([x, lens], {"y": layers.Dense(8, name="narrow")(context), "weights": weights})


SEQUENCES = {"x": RNG.normal(size=(40, 6, 16)).astype("float32"), "valid_lens": RNG.integers(1, 7, 40).astype("int32")}


@pytest.fixture(scope="module")
def image_bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "bundle"
    return export_model(build_image_model(), folder, precision="int8", calibration=IMAGES, limit=0.5)


@pytest.fixture(scope="module")
def attention_bundle(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sequences") / "bundle"
    return export_model(build_attention_model(), folder, precision="int8", calibration=SEQUENCES, lowering="portable")


@pytest.mark.slow
def test_report_has_parity_and_the_error_on_calibration_rows(image_bundle):
    calibration = image_bundle.report.precision["calibration"]
    assert (calibration["rows"], calibration["limit"]) == (40, 0.5)
    assert calibration["int8_layers"] + calibration["float32_layers"] == ["first", "second", "classes"]
    expected = build_image_model().predict(IMAGES, verbose=0)
    actual = image_bundle.run({"image": IMAGES})["classes"]
    error = calibration["outputs"]["classes"]
    assert error["largest"] == pytest.approx(np.abs(actual - expected).max(), rel=1e-3)
    assert error["mean"] == pytest.approx(np.abs(actual - expected).mean(), rel=1e-3)
    assert error["same_choices"] == np.mean(actual.argmax(-1) == expected.argmax(-1))
    assert error["share"] == error["largest"] / error["scale"]
    assert max(row.max_rel for row in image_bundle.report.rows) < 0.05
    # `seen_in_precision` would be the largest relative error of the int8 file, compared with Keras.
    output_coverage = image_bundle.report.coverage["outputs"]["classes"]
    assert "seen_in_precision" not in output_coverage, "the reference is the int8 graph computed in floats, not Keras"
    assert read_manifest(image_bundle.path)["calibration"] == calibration
    text = " ".join(" ".join(describe_bundle(load_bundle(image_bundle.path))).split())
    assert "calibrated on 40 rows" in text
    assert "of rows have the same top class" in text
    assert verify_bundle(image_bundle.path).passed
    assert ParityReport.from_json(image_bundle.report.to_json()) == image_bundle.report


@pytest.mark.slow
def test_masked_weights_are_zero_and_rows_independent(attention_bundle):
    lens = np.array([3, 0, 6, 1], "int32")
    inputs = {"x": SEQUENCES["x"][:4], "valid_lens": lens}
    expected = attention_bundle.run(inputs)
    for example, length in enumerate(lens):
        np.testing.assert_array_equal(expected["weights"][example, :, length:], 0)
    inputs["x"] = inputs["x"].copy()
    inputs["x"][0, 3:], inputs["x"][3] = np.nan, 1e30
    outputs = attention_bundle.run(inputs)
    np.testing.assert_array_equal(outputs["y"][0, :3], expected["y"][0, :3])
    np.testing.assert_array_equal(outputs["y"][2], expected["y"][2])
    calibration = attention_bundle.report.precision["calibration"]
    assert set(calibration["int8_layers"]) >= {"widen", "narrow"}
    assert "same_choices" not in calibration["outputs"]["weights"]


@pytest.mark.slow
def test_file_beyond_the_limit_is_refused_and_the_message_names_the_output(tmp_path):
    message = r"In int8 output `classes` differs from float32 by up to .* and `limit` allows 1e-06"
    with pytest.raises(ParityError, match=message) as error:
        export_model(build_image_model(), tmp_path / "bundle", precision="int8", calibration=[IMAGES], limit=1e-6)
    assert error.value.report.precision["calibration"]["limit"] == 1e-6
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_wrong_int8_file_is_refused(tmp_path, monkeypatch):
    """The first convolution has a wrong bias in the saved file, and the correct bias in the reference graph."""
    save_model = convert_precision.save_model

    def save_with_wrong_bias(traced_model, file, **options):
        initializers = traced_model.model.graph.initializer
        tensor = next(tensor for tensor in initializers if tensor.name.endswith("bias_quantized"))
        tensor.raw_data = (np.frombuffer(tensor.raw_data, np.int32) + 20000).astype(np.int32).tobytes()
        save_model(traced_model, file, **options)

    monkeypatch.setattr(convert_precision, "save_model", save_with_wrong_bias)
    with pytest.raises(ParityError, match=r"ONNX in int8 output `classes` is outside the tolerance"):
        export_model(build_image_model(), tmp_path / "bundle", precision="int8", calibration=IMAGES)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_layers_harmed_by_int8_stay_float32_and_are_named(tmp_path, monkeypatch):
    """The test replaces the int8 kernel of the layer `second` by zeros."""
    quantize = CalibratedModel.quantize

    def quantize_to_zeros(self, layers):
        traced_model = quantize(self, layers)
        if "second" in layers:
            for tensor in traced_model.model.graph.initializer:
                if tensor.data_type == onnx.TensorProto.INT8 and tuple(tensor.dims) == (8, 8, 3, 3):
                    tensor.raw_data = bytes(len(tensor.raw_data))
        return traced_model

    monkeypatch.setattr(CalibratedModel, "quantize", quantize_to_zeros)
    bundle = export_model(build_image_model(), tmp_path / "bundle", precision="int8", calibration=IMAGES)
    assert bundle.report.precision["calibration"]["float32_layers"] == ["second"]
    assert any("stay float32, by measurement: second" in line for line in describe_bundle(bundle))


LARGE_ERRORS = {"y": {"share": 0.12, "mean": 0.01}}


def build_record(**entries):
    outputs = {"y": {"share": 0.02, "mean": 0.001}}
    calibration = {"rows": 100, "int8_layers": ["a"], "float32_layers": [], "outputs": outputs, "limit": None}
    return {"name": "int8", "calibration": calibration | entries}


@pytest.mark.parametrize(
    ("precision_record", "messages"),
    [
        ({"name": "int8"}, []),
        (build_record(), []),
        (build_record(rows=3), ["int8 was calibrated on 3 rows: values outside their range are clipped."]),
        (build_record(int8_layers=[]), ["Nothing in the model became int8"]),
        (build_record(outputs=LARGE_ERRORS), ["On the calibration arrays int8 changed output `y` by up to 0.12"]),
        (build_record(outputs=LARGE_ERRORS, limit=0.2), []),
    ],
    ids=["dynamic", "small errors", "few rows", "no int8", "large errors", "errors below the limit"],
)
def test_calibration_warns_of_few_rows_and_large_errors(precision_record, messages):
    warnings = list(describe_precision(precision_record))
    assert len(warnings) == len(messages)
    assert all(warning.startswith(message) for warning, message in zip(warnings, messages, strict=True))


@pytest.mark.slow
def test_export_command_calibrates_and_limits(tmp_path, succeeds):
    build_image_model().save(tmp_path / "images.keras")
    np.savez(tmp_path / "rows.npz", image=IMAGES)
    arguments = ["export", tmp_path / "images.keras", tmp_path / "bundle", "--precision", "int8", "--json"]
    result = json.loads(succeeds(*arguments, "--calibration", tmp_path / "rows.npz", "--limit", "0.5"))
    assert result["report"]["precision"]["calibration"]["limit"] == 0.5
    succeeds("verify", tmp_path / "bundle")
