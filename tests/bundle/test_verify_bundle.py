"""`verify_bundle` with samples of a user: an additional case, compared between Keras and onnxruntime."""

import keras
import numpy as np
import pytest
from small_bundle import build_small_model, draw_small_inputs

from keras_attn_export import InputError, ParityError, UnsupportedModelError, export_model, verify_bundle
from keras_attn_export._options import Options
from keras_attn_export._rounding.reference import build_user_case

LARGE = {name: array * 3 if array.dtype.kind == "f" else array for name, array in draw_small_inputs(5, 4, 9).items()}


@pytest.fixture(scope="module")
def exported_model(tmp_path_factory):
    """A model, its file and its bundle."""
    folder, model = tmp_path_factory.mktemp("model"), build_small_model()
    model.save(folder / "model.keras")
    return model, folder / "model.keras", export_model(model, folder / "bundle").path


@pytest.fixture
def other_model():
    """The small model with different weights."""
    keras.utils.set_random_seed(1)
    return build_small_model()


@pytest.mark.parametrize("index", [0, 1], ids=["model", "file"])
def test_samples_are_an_additional_case(exported_model, index):
    golden_report = verify_bundle(exported_model[2])
    report = verify_bundle(exported_model[2], samples=LARGE, model=exported_model[index])
    assert report.passed
    assert report.rows[: len(golden_report.rows)] == golden_report.rows
    sample_rows = report.rows[len(golden_report.rows) :]
    assert [(row.case, row.name, row.shape) for row in sample_rows] == [
        ("samples", "context", (5, 4, 5)),
        ("samples", "weights", (5, 4, 9)),
    ]


def test_outputs_of_another_model_do_not_match(exported_model, other_model):
    with pytest.raises(ParityError, match="`context` is outside the tolerance in case `samples`") as error:
        verify_bundle(exported_model[2], samples=LARGE, model=other_model)
    assert {row.case for row in error.value.report.rows if not row.passed} == {"samples"}


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"samples": LARGE}, InputError, "`samples` need `model`, the Keras model that was exported"),
        ({"model": "model.keras"}, InputError, "`model` needs `samples`"),
        ({"samples": LARGE, "model": "nowhere.keras"}, UnsupportedModelError, "no model file"),
    ],
)
def test_samples_and_model_need_each_other(exported_model, options, error, message):
    with pytest.raises(error, match=message):
        verify_bundle(exported_model[2], **options)


def test_invalid_samples_are_refused(exported_model):
    model, _, bundle = exported_model
    incomplete_samples = {name: array for name, array in LARGE.items() if name != "keys"}
    for samples, message in (
        (incomplete_samples, r"`samples` lack \['keys'\]"),
        (LARGE | {"other": LARGE["keys"]}, r"^`samples` names \['other'\], which the model does not take"),
        (LARGE | {"values": LARGE["values"][:, :2]}, "Keras itself cannot run `small` on `samples`"),
    ):
        with pytest.raises(InputError, match=message):
            verify_bundle(bundle, samples=samples, model=model)


def test_samples_with_only_nan_outputs_are_refused():
    x = keras.Input((3,), name="x")
    model = keras.Model(x, keras.layers.Dense(2)(x))
    samples = np.array([[0, 1, np.nan], [2, 3, 4]], "float32")
    assert np.isnan(build_user_case("samples", model, Options(samples={"x": samples})).outputs.popitem()[1]).any()
    with pytest.raises(InputError, match="NaN and infinity on `samples`: nothing can be compared"):
        build_user_case("samples", model, Options(samples={"x": samples[:1]}))


@pytest.mark.slow
def test_verify_command_takes_samples_and_model(exported_model, other_model, tmp_path, call, succeeds, fails):
    _, file, bundle = exported_model
    np.savez(tmp_path / "samples.npz", **LARGE)
    other_model.save(other_file := tmp_path / "other.keras")
    command = ("verify", bundle, "--samples", tmp_path / "samples.npz")
    out = succeeds(*command, "--model", file)
    assert [line.split()[1] for line in out.splitlines() if line.startswith("samples ")] == ["context", "weights"]
    code, _, err = call(*command, "--model", other_file, "--trace")
    assert code == 1
    assert err.endswith(f"All golden cases match: is {other_file} the model that was exported?\n")
    fails(*command, message="error: `samples` need `model`")


def test_only_unsafe_loads_a_model_with_code(tmp_path, succeeds, fails):
    x = keras.Input((3,), name="x")
    keras.Model(x, keras.layers.Lambda(lambda y: y + 1, name="y")(x)).save(file := tmp_path / "model.keras")
    export_model(file, tmp_path / "bundle", safe_mode=False)
    np.savez(tmp_path / "samples.npz", x=np.ones((2, 3), "float32"))
    command = ("verify", tmp_path / "bundle", "--samples", tmp_path / "samples.npz", "--model", file)
    fails(*command, message="Keras cannot load")
    succeeds(*command, "--unsafe")
