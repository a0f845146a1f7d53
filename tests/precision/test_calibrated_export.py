"""End-to-end calibrated int8 export: proofs in the bundle, reported errors, and refused exports."""

import json

import keras
import numpy as np
import pytest
from keras import layers
from small_bundle import read_manifest

from keras_attn import AdditiveAttention
from keras_attn_export import ParityError, ParityReport, export_model, load_bundle, verify_bundle
from keras_attn_export._cli.bundle_text import describe
from keras_attn_export._format.report_text import describe_precision
from keras_attn_export._precision import convert_precision
from keras_attn_export._precision.qdq_quantizer import CalibratedModel

RNG = np.random.default_rng(0)
IMAGES = RNG.normal(size=(40, 8, 8, 3)).astype("float32")


def images():
    """Convolutions with a batch normalization between, a residual sum, and a classifier."""
    keras.utils.set_random_seed(0)
    rng = np.random.default_rng(1)
    image = keras.Input((8, 8, 3), name="image")
    x = layers.ReLU()(layers.BatchNormalization(name="norm")(layers.Conv2D(8, 3, name="first")(image)))
    x = x + layers.Conv2D(8, 3, padding="same", activation="relu", name="second")(x)
    kinds = layers.Dense(10, activation="softmax", name="kind", kernel_initializer="he_normal")
    model = keras.Model(image, kinds(layers.Flatten()(x)))
    for variable in model.variables:  # as if trained: zeros and ones hide what is done to them
        if any(part in variable.path for part in ("bias", "beta", "moving_mean")):
            variable.assign(rng.normal(0, 0.3, variable.shape))
        if "gamma" in variable.path or "moving_variance" in variable.path:
            variable.assign(rng.uniform(0.5, 2.0, variable.shape))
    return model


def attending():
    """Attention over projected sequences, whose weights are exact zeros where they are masked."""
    keras.utils.set_random_seed(1)
    x, lens = keras.Input((None, 16), name="x"), keras.Input((), dtype="int32", name="valid_lens")
    hidden = layers.Dense(32, activation="tanh", name="widen")(x)
    attend = AdditiveAttention(24, name="attend")
    context, weights = attend(hidden, hidden, hidden, lens, return_attention_scores=True)
    return keras.Model([x, lens], {"y": layers.Dense(8, name="narrow")(context), "weights": weights})


SEQUENCES = {"x": RNG.normal(size=(40, 6, 16)).astype("float32"), "valid_lens": RNG.integers(1, 7, 40).astype("int32")}


@pytest.fixture(scope="module")
def convolved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("images") / "bundle"
    return export_model(images(), folder, precision="int8", calibration=IMAGES, limit=0.5)


@pytest.fixture(scope="module")
def attended(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sequences") / "bundle"
    return export_model(attending(), folder, precision="int8", calibration=SEQUENCES, lowering="portable")


@pytest.mark.slow
def test_report_has_parity_and_the_distance_on_calibration_rows(convolved):
    about = convolved.report.precision["calibration"]
    assert (about["rows"], about["limit"]) == (40, 0.5)
    assert about["int8_layers"] + about["float32_layers"] == ["first", "second", "kind"]
    expected = images().predict(IMAGES, verbose=0)
    got = convolved.run({"image": IMAGES})["kind"]
    measured = about["outputs"]["kind"]
    assert measured["largest"] == pytest.approx(np.abs(got - expected).max(), rel=1e-3)
    assert measured["mean"] == pytest.approx(np.abs(got - expected).mean(), rel=1e-3)
    assert measured["same_choices"] == np.mean(got.argmax(-1) == expected.argmax(-1))
    assert measured["share"] == measured["largest"] / measured["scale"]
    assert max(row.max_rel for row in convolved.report.rows) < 0.05
    assert "seen_in_precision" not in convolved.report.coverage["outputs"]["kind"], "rows are not against Keras's"
    assert read_manifest(convolved.path)["calibration"] == about
    text = " ".join(" ".join(describe(load_bundle(convolved.path))).split())
    assert "calibrated on 40 rows" in text
    assert "of rows have the same top class" in text
    assert verify_bundle(convolved.path).passed
    assert ParityReport.from_json(convolved.report.to_json()) == convolved.report


@pytest.mark.slow
def test_masked_weights_are_zero_and_rows_independent(attended):
    lens = np.array([3, 0, 6, 1], "int32")
    inputs = {"x": SEQUENCES["x"][:4], "valid_lens": lens}
    clean = attended.run(inputs)
    for row, length in enumerate(lens):
        np.testing.assert_array_equal(clean["weights"][row, :, length:], 0)
    poisoned = {**inputs, "x": inputs["x"].copy()}
    poisoned["x"][0, 3:], poisoned["x"][3] = np.nan, 1e30
    outputs = attended.run(poisoned)
    np.testing.assert_array_equal(outputs["y"][0, :3], clean["y"][0, :3])
    np.testing.assert_array_equal(outputs["y"][2], clean["y"][2])
    assert set(attended.report.precision["calibration"]["int8_layers"]) >= {"widen", "narrow"}
    assert "same_choices" not in attended.report.precision["calibration"]["outputs"]["weights"]


@pytest.mark.slow
def test_limit_refuses_the_file_and_names_the_output(tmp_path):
    message = r"In int8 output `kind` differs from float32 by up to .* and `limit` allows 1e-06"
    with pytest.raises(ParityError, match=message) as caught:
        export_model(images(), tmp_path / "bundle", precision="int8", calibration=[IMAGES], limit=1e-6)
    assert caught.value.report.precision["calibration"]["limit"] == 1e-6
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_wrong_int8_file_is_not_written(tmp_path, monkeypatch):
    """The graph is right, and what is written has other biases in its first convolution."""

    def wrong(traced, file, **options):
        tensor = next(entry for entry in traced.model.graph.initializer if entry.name.endswith("bias_quantized"))
        tensor.raw_data = (np.frombuffer(tensor.raw_data, np.int32) + 20000).astype(np.int32).tobytes()
        write(traced, file, **options)

    write = convert_precision.save_model
    monkeypatch.setattr(convert_precision, "write", wrong)
    with pytest.raises(ParityError, match=r"ONNX in int8 output `kind` is outside the tolerance"):
        export_model(images(), tmp_path / "bundle", precision="int8", calibration=IMAGES)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_layers_harmed_by_int8_stay_float32_and_are_named(tmp_path, monkeypatch):
    """One layer is quantized to nearly nothing here."""
    quantized = CalibratedModel.quantize

    def harmed(self, layers):
        traced = quantized(self, layers)
        if "second" in layers:
            for tensor in traced.model.graph.initializer:
                if tensor.data_type == 3 and tuple(tensor.dims) == (8, 8, 3, 3):
                    tensor.raw_data = bytes(len(tensor.raw_data))
        return traced

    monkeypatch.setattr(CalibratedModel, "quantize", harmed)
    bundle = export_model(images(), tmp_path / "bundle", precision="int8", calibration=IMAGES)
    assert bundle.report.precision["calibration"]["float32_layers"] == ["second"]
    assert any("stay float32, by measurement: second" in line for line in describe(bundle))


FAR = {"y": {"share": 0.12, "mean": 0.01}}


def about(**changed):
    outputs = {"y": {"share": 0.02, "mean": 0.001}}
    calibration = {"rows": 100, "int8_layers": ["a"], "float32_layers": [], "outputs": outputs, "limit": None}
    return {"name": "int8", "calibration": calibration | changed}


@pytest.mark.parametrize(
    ("precision", "messages"),
    [
        ({"name": "int8"}, []),
        (about(), []),
        (about(rows=3), ["int8 was calibrated on 3 rows: values outside their range are clipped."]),
        (about(int8_layers=[]), ["Nothing in the model became int8"]),
        (about(outputs=FAR), ["On the calibration arrays int8 changed output `y` by up to 0.12"]),
        (about(outputs=FAR, limit=0.2), []),
    ],
    ids=["dynamic", "near", "few rows", "nothing", "far", "as far as was asked"],
)
def test_calibration_warns_of_few_rows_and_large_differences(precision, messages):
    warnings = list(describe_precision(precision))
    assert len(warnings) == len(messages)
    assert all(entry.startswith(begins) for entry, begins in zip(warnings, messages, strict=True))


@pytest.mark.slow
def test_export_command_calibrates_and_limits(tmp_path, succeeds):
    images().save(tmp_path / "images.keras")
    np.savez(tmp_path / "rows.npz", image=IMAGES)
    arguments = ["export", tmp_path / "images.keras", tmp_path / "bundle", "--precision", "int8", "--json"]
    reply = json.loads(succeeds(*arguments, "--calibration", tmp_path / "rows.npz", "--limit", "0.5"))
    assert reply["report"]["precision"]["calibration"]["limit"] == 0.5
    succeeds("verify", tmp_path / "bundle")
