"""Exports to float16 and dynamic int8: weights, padding, choices and costs in onnxruntime, and refused files."""

import logging
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import keras
import numpy as np
import pytest
from keras import layers
from onnx import numpy_helper
from small_bundle import build_small_model, run_python
from tolerances import assert_identical

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn_export import ParityError, ParityReport, export_model, verify_bundle
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES_FILE, MODEL
from keras_attn_export._lowerings import body_inputs
from keras_attn_export._onnx import external_data
from keras_attn_export._onnx.lazy_values import op
from keras_attn_export._onnx.model_files import load_model
from keras_attn_export._precision.dynamic_int8 import silence_logging
from keras_attn_export._precision.float16_overflow import convert_without_overflow

PRECISIONS = ("float16", "int8")
D = 24


def randomize_biases(model):
    """Draw the biases of a model: initial zeros would hide errors of the conversion."""
    rng = np.random.default_rng(2)
    for variable in model.variables:
        if "bias" in variable.path or "beta" in variable.path:
            variable.assign(rng.normal(0, 0.5, variable.shape))
    return model


def build_padded_model():
    """Return a model whose padding passes other layers before it reaches attention."""
    keras.utils.set_random_seed(1)
    x = keras.Input((None, D), name="x")
    lens = keras.Input((), dtype="int32", name="valid_lens")
    hidden = layers.LayerNormalization()(layers.Dense(128, activation="gelu")(x))
    queries = layers.Dense(D)(layers.Dense(64, activation="tanh")(hidden))
    context, weights = AdditiveAttention(48, name="additive")(x, hidden, hidden, lens, return_attention_scores=True)
    dotted = DotProductAttention(name="dotted")(queries, queries, context, lens)
    return randomize_biases(keras.Model([x, lens], {"weights": weights, "dotted": dotted}))


def build_classifier():
    """Return a classifier of token sequences: an embedding with an implicit mask, recurrent layers and attention."""
    keras.utils.set_random_seed(1)
    ids = keras.Input((None,), dtype="int32", name="ids")
    encoded = layers.Embedding(50, 24, mask_zero=True)(ids)
    encoded = layers.Bidirectional(layers.GRU(32, return_sequences=True))(encoded)
    context, weights = AdditiveAttention(32, name="attention")(encoded, encoded, encoded, return_attention_scores=True)
    classes = layers.Dense(9, activation="softmax", name="classes", kernel_initializer="random_normal")(context)
    return randomize_biases(keras.Model(ids, {"classes": classes, "weights": weights}))


@pytest.fixture(scope="module", params=PRECISIONS)
def padded_bundle(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("padded") / "bundle"
    return export_model(build_padded_model(), folder, precision=request.param, lowering="portable")


@pytest.fixture(scope="module", params=[pytest.param(name, marks=pytest.mark.slow) for name in PRECISIONS])
def classifier_bundle(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier") / "bundle"
    return export_model(build_classifier(), folder, precision=request.param)


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_converted_weights_are_stored_in_a_second_file(precision, tmp_path, monkeypatch):
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = layers.Dense(128, activation="tanh")(layers.Embedding(50, 24)(ids))
    outputs = layers.Dense(64)(layers.SimpleRNN(128, return_sequences=True)(hidden))
    model = randomize_biases(keras.Model(ids, {"y": outputs}))
    bundles = []
    for limit in (external_data.MAX_EMBEDDED_WEIGHT_BYTES, 100):
        monkeypatch.setattr(external_data, "MAX_EMBEDDED_WEIGHT_BYTES", limit)
        bundles.append(export_model(model, tmp_path / str(limit), precision=precision, tolerance=1))
    embedded, external = bundles
    assert {path.name for path in embedded.path.glob(f"{MODEL}*")} == {MODEL}
    assert {path.name for path in external.path.glob(f"{MODEL}*")} == {MODEL, external_data.DATA_FILE}
    dtypes = Counter(array.dtype.name for array in load_model(external.path / MODEL).weights.values())
    assert dtypes == ({"float16": 5} if precision == "float16" else {"uint8": 4, "float32": 1})
    assert external.report.precision["size_ratio"] < 0.9
    assert verify_bundle(external.path).passed
    inputs = {"ids": np.random.default_rng(0).integers(0, 50, (3, 5)).astype("int32")}
    assert_identical(external.run(inputs)["y"], embedded.run(inputs)["y"])


@pytest.mark.slow
def test_report_has_the_costs_of_the_precision(padded_bundle):
    name = padded_bundle.manifest["precision"]
    assert {layer["precision"] for layer in padded_bundle.manifest["layers"]} == {name}
    types = {spec["dtype"] for part in ("inputs", "outputs") for spec in padded_bundle.manifest[part]}
    assert types <= {"float32", "int32"}
    report = padded_bundle.report
    costs = report.precision
    assert costs["name"] == name
    metadata_bytes = (padded_bundle.path / MODEL).stat().st_size - costs["bytes"]  # added after the measurement
    assert 0 < metadata_bytes < 1000
    assert costs["size_ratio"] == costs["bytes"] / costs["float32_bytes"] < 0.9
    assert costs["time_ratio"] == costs["milliseconds"] / costs["float32_milliseconds"] > 0
    assert costs["timed_case"] in {row.case for row in report.rows}
    assert costs["float32_max_rel"] < 1e-5 < max(row.max_rel for row in report.rows if row.case == "base")
    assert "top1" not in costs, "attention weights are no class scores"
    for limits in report.coverage["outputs"].values():
        assert 100 * limits["rounding"] < limits["rounding_in_precision"] < 1


@pytest.mark.slow
def test_bundle_is_verified_without_the_package_in_its_precision(padded_bundle):
    assert verify_bundle(padded_bundle.path).passed
    script, blocked = padded_bundle.path / "verify.py", ("tensorflow", "keras", "onnx")
    process = run_python(script, cwd=padded_bundle.path.parent, blocked=blocked)
    assert process.returncode == 0, process.stderr
    assert ParityReport.from_json(padded_bundle.report.to_json()) == padded_bundle.report
    assert sorted(path.name for path in padded_bundle.path.glob("*.onnx*")) == [MODEL]


def test_class_scores_have_top1_and_ignore_padding(classifier_bundle):
    top1 = classifier_bundle.report.precision["top1"]
    assert set(top1) == {"classes"}
    assert top1["classes"]["rows"] > 100
    assert top1["classes"]["agreement"] > 0.9
    rows = ([3, 4, 5], [3, 4, 5, 0, 0])
    unpadded, padded = (classifier_bundle.run({"ids": np.array([ids], "int32")}) for ids in rows)
    np.testing.assert_array_equal(padded["weights"][:, :, 3:], 0)
    np.testing.assert_allclose(padded["classes"][:, :3], unpadded["classes"], atol=1e-3)


def build_choice_model():
    """Return a model with two choices among twelve ids: by distinct scores, and by pairs of scores equal to 1e-4."""
    rng = np.random.default_rng(0)
    rows = rng.choice([-1.0, 1.0], (12, 64))
    pairs = rows[:6].repeat(2, axis=0) * (1 + 1e-4 * rng.standard_normal((12, 64)))
    ids = keras.Input((None,), dtype="int32", name="ids")
    embedded = layers.Embedding(12, 64, weights=[rows])(ids)
    scores = {name: layers.Dense(12, use_bias=False, name=f"{name}_scores") for name in ("distinct", "tied")}
    model = keras.Model(ids, {name: keras.ops.argmax(score(embedded), -1) for name, score in scores.items()})
    for name, columns in (("distinct", rows), ("tied", pairs)):
        scores[name].set_weights([columns.T])
    return model


@pytest.mark.slow
@pytest.mark.parametrize("precision", PRECISIONS)
def test_choices_are_exact_except_counted_ties(precision, tmp_path):
    bundle = export_model(build_choice_model(), tmp_path / "bundle", precision=precision)
    ids = np.arange(12, dtype="int32")[None]
    np.testing.assert_array_equal(bundle.run({"ids": ids})["distinct"], ids)
    for report in (bundle.report, verify_bundle(bundle.path)):
        ties = {name: sum(row.ties for row in report.rows if row.name == name) for name in ("distinct", "tied")}
        assert ties["tied"] > 0 == ties["distinct"]
        assert f"; {ties['tied']} integers differ where rounding decides" in report.summary()
    for case in load_cases(bundle.path / CASES_FILE):
        assert not case.rounding_limits["distinct"].any(), "a tie would not be compared"
    (warning,) = (warning for warning in bundle.report.warnings if "Rounding alone decides" in warning)
    assert "output `tied`" in warning


def draw_padded_inputs(length=7):
    x = np.random.default_rng(0).standard_normal((4, length, D)).astype("float32")
    return {"x": x, "valid_lens": np.array([3, 0, 7, 1], "int32")}


@pytest.mark.slow
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30, 1e4], ids=str)
def test_poisoned_padding_changes_no_output_but_nan_at_a_valid_position_does(padded_bundle, poison):
    inputs = draw_padded_inputs()
    expected = padded_bundle.run(inputs)
    for index, length in enumerate(inputs["valid_lens"]):
        np.testing.assert_array_equal(expected["weights"][index, :, length:], 0)
    np.testing.assert_array_equal(expected["dotted"][1], 0)
    inputs["x"][1], inputs["x"][3, 1:] = poison, poison
    actual = padded_bundle.run(inputs)
    for name in expected:
        for index in (0, 2):
            assert_identical(actual[name][index], expected[name][index])
        assert_identical(actual[name][3, :1], expected[name][3, :1])
    np.testing.assert_array_equal(actual["weights"][1], 0)
    inputs["x"][2, 4, 5] = np.nan
    assert np.isnan(padded_bundle.run(inputs)["dotted"][2]).all()


@pytest.mark.slow
def test_rows_are_independent_in_lower_precision(padded_bundle):
    inputs = draw_padded_inputs()
    expected = padded_bundle.run(inputs)
    inputs["x"][1:] *= 1000
    for name, array in padded_bundle.run(inputs).items():
        assert_identical(array[0], expected[name][0])


@pytest.mark.slow
def test_wrong_converted_file_is_refused(tmp_path, monkeypatch):
    def convert_with_wrong_weight(model, *options):
        traced, ranges = convert_without_overflow(model, *options)
        tensor = max(traced.model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float16(1.5), tensor.name))
        return traced, ranges

    function = "keras_attn_export._precision.convert_precision.convert_without_overflow"
    monkeypatch.setattr(function, convert_with_wrong_weight)
    model, steps = build_small_model(), []
    with pytest.raises(ParityError, match=r"ONNX in float16 output `.*` is outside the tolerance") as error:
        export_model(model, tmp_path / "bundle", precision="float16", progress=steps.append)
    assert error.value.report.precision["name"] == "float16"
    assert "Converting to float16" in steps
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_wrong_float32_file_is_not_converted(tmp_path, monkeypatch):
    clip = body_inputs._clip_lengths
    monkeypatch.setattr(body_inputs, "_clip_lengths", lambda *args: op.Min(clip(*args), 1))
    model, steps = build_small_model(), []
    with pytest.raises(ParityError, match="ONNX output `"):
        export_model(model, tmp_path / "bundle", precision="int8", tolerance=10, progress=steps.append)
    assert not [step for step in steps if "int8" in step]
    assert not list(tmp_path.iterdir())


def test_quantizer_is_silent_while_other_threads_log(caplog):
    with silence_logging(), ThreadPoolExecutor(1) as executor:
        logging.warning("from the quantizer")
        executor.submit(logging.warning, "from another thread").result()
    logging.warning("after the context")
    assert caplog.messages == ["from another thread", "after the context"]
