"""Float16 and int8 exports in onnxruntime: matching outputs, exact padding, and reported errors."""

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
from keras_attn_export._format.names import CASES, MODEL
from keras_attn_export._lowerings import body_inputs
from keras_attn_export._onnx import external_data
from keras_attn_export._onnx.lazy_values import op
from keras_attn_export._onnx.model_files import load_model
from keras_attn_export._precision.dynamic_int8 import silence_logging
from keras_attn_export._precision.float16_overflow import convert_without_overflow

CONVERTED = ("float16", "int8")
D = 24


def as_if_trained(model):
    """Give a model biases that are not zero: zeros hide what is done to them."""
    rng = np.random.default_rng(2)
    for variable in model.variables:
        if "bias" in variable.path or "beta" in variable.path:
            variable.assign(rng.normal(0, 0.5, variable.shape))
    return model


def padded():
    """Attention over float inputs that pass other layers first, so that what is in the padding reaches those."""
    keras.utils.set_random_seed(1)
    x = keras.Input((None, D), name="x")
    lens = keras.Input((), dtype="int32", name="valid_lens")
    hidden = layers.LayerNormalization()(layers.Dense(128, activation="gelu")(x))
    queries = layers.Dense(D)(layers.Dense(64, activation="tanh")(hidden))
    context, weights = AdditiveAttention(48, name="additive")(x, hidden, hidden, lens, return_attention_scores=True)
    dotted = DotProductAttention(name="dotted")(queries, queries, context, lens)
    return as_if_trained(keras.Model([x, lens], {"weights": weights, "dotted": dotted}))


def encoder():
    """A classifier of token sequences: embedding with an implicit mask, recurrent layers, attention, softmax."""
    keras.utils.set_random_seed(1)
    ids = keras.Input((None,), dtype="int32", name="ids")
    encoded = layers.Embedding(50, 24, mask_zero=True)(ids)
    encoded = layers.Bidirectional(layers.GRU(32, return_sequences=True))(encoded)
    context, weights = AdditiveAttention(32, name="attention")(encoded, encoded, encoded, return_attention_scores=True)
    classes = layers.Dense(9, activation="softmax", name="classes", kernel_initializer="random_normal")(context)
    return as_if_trained(keras.Model(ids, {"classes": classes, "weights": weights}))


@pytest.fixture(scope="module", params=CONVERTED)
def attending(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("padded") / "bundle"
    return export_model(padded(), folder, precision=request.param, lowering="portable")


@pytest.fixture(scope="module", params=[pytest.param(item, marks=pytest.mark.slow) for item in CONVERTED])
def classifying(request, tmp_path_factory):
    return export_model(encoder(), tmp_path_factory.mktemp("encoder") / "bundle", precision=request.param)


@pytest.mark.slow
@pytest.mark.parametrize("precision", CONVERTED)
def test_converted_weights_are_stored_in_a_second_file(precision, tmp_path, monkeypatch):
    ids = keras.Input((None,), dtype="int32", name="ids")
    hidden = layers.Dense(128, activation="tanh")(layers.Embedding(50, 24)(ids))
    outputs = layers.Dense(64)(layers.SimpleRNN(128, return_sequences=True)(hidden))
    model = as_if_trained(keras.Model(ids, {"y": outputs}))
    bundles = []
    for limit in (external_data.MAX_EMBEDDED_WEIGHT_BYTES, 100):
        monkeypatch.setattr(external_data, "MAX_EMBEDDED_WEIGHT_BYTES", limit)
        bundles.append(export_model(model, tmp_path / str(limit), precision=precision, tolerance=1))
    inside, outside = bundles
    assert {path.name for path in inside.path.glob(f"{MODEL}*")} == {MODEL}
    assert {path.name for path in outside.path.glob(f"{MODEL}*")} == {MODEL, external_data.DATA_FILE}
    dtypes = Counter(array.dtype.name for array in load_model(outside.path / MODEL).weights.values())
    assert dtypes == ({"float16": 5} if precision == "float16" else {"uint8": 4, "float32": 1})
    assert outside.report.precision["size_ratio"] < 0.9
    assert verify_bundle(outside.path).passed
    inputs = {"ids": np.random.default_rng(0).integers(0, 50, (3, 5)).astype("int32")}
    assert_identical(outside.run(inputs)["y"], inside.run(inputs)["y"])


@pytest.mark.slow
def test_report_has_the_costs_of_the_precision(attending):
    name = attending.manifest["precision"]
    assert {layer["precision"] for layer in attending.manifest["layers"]} == {name}
    types = {spec["dtype"] for part in ("inputs", "outputs") for spec in attending.manifest[part]}
    assert types <= {"float32", "int32"}
    report = attending.report
    about = report.precision
    assert about["name"] == name
    overhead = (attending.path / MODEL).stat().st_size - about["bytes"]  # of meanings and hashes, when all is written
    assert 0 < overhead < 1000
    assert about["size_ratio"] == about["bytes"] / about["float32_bytes"] < 0.9
    assert about["time_ratio"] == about["milliseconds"] / about["float32_milliseconds"] > 0
    assert about["timed_case"] in {row.case for row in report.rows}
    assert about["float32_max_rel"] < 1e-5 < max(row.max_rel for row in report.rows if row.case == "base")
    assert "top1" not in about, "attention weights are no class scores"
    for limits in report.coverage["outputs"].values():
        assert 100 * limits["rounding"] < limits["rounding_in_precision"] < 1


@pytest.mark.slow
def test_bundle_replays_without_the_package_in_its_precision(attending):
    assert verify_bundle(attending.path).passed
    done = run_python(attending.path / "verify.py", cwd=attending.path.parent, blocked=("tensorflow", "keras", "onnx"))
    assert done.returncode == 0, done.stderr
    assert ParityReport.from_json(attending.report.to_json()) == attending.report
    assert sorted(path.name for path in attending.path.glob("*.onnx*")) == [MODEL]


def test_class_scores_have_top1_and_the_implicit_mask_holds(classifying):
    accuracy = classifying.report.precision["top1"]
    assert set(accuracy) == {"classes"}
    assert accuracy["classes"]["rows"] > 100
    assert accuracy["classes"]["agreement"] > 0.9
    short, long = (classifying.run({"ids": np.array([ids], "int32")}) for ids in ([3, 4, 5], [3, 4, 5, 0, 0]))
    np.testing.assert_array_equal(long["weights"][:, :, 3:], 0)
    np.testing.assert_allclose(long["classes"][:, :3], short["classes"], atol=1e-3)


def choosing():
    """Two choices of one in twelve: by scores that are far apart, and by scores of which each two are equal to 1e-4."""
    rng = np.random.default_rng(0)
    rows = rng.choice([-1.0, 1.0], (12, 64))
    pairs = rows[:6].repeat(2, axis=0) * (1 + 1e-4 * rng.standard_normal((12, 64)))
    ids = keras.Input((None,), dtype="int32", name="ids")
    embedded = layers.Embedding(12, 64, weights=[rows])(ids)
    scores = {name: layers.Dense(12, use_bias=False, name=f"{name}_scores") for name in ("apart", "tied")}
    model = keras.Model(ids, {name: keras.ops.argmax(score(embedded), -1) for name, score in scores.items()})
    for name, columns in (("apart", rows), ("tied", pairs)):
        scores[name].set_weights([columns.T])
    return model


@pytest.mark.slow
@pytest.mark.parametrize("precision", CONVERTED)
def test_choices_are_exact_except_counted_ties(precision, tmp_path):
    bundle = export_model(choosing(), tmp_path / "bundle", precision=precision)
    ids = np.arange(12, dtype="int32")[None]
    np.testing.assert_array_equal(bundle.run({"ids": ids})["apart"], ids)
    for report in (bundle.report, verify_bundle(bundle.path)):
        ties = {name: sum(row.ties for row in report.rows if row.name == name) for name in ("apart", "tied")}
        assert ties["tied"] > 0 == ties["apart"]
        assert f"; {ties['tied']} integers differ where rounding decides" in report.summary()
    for case in load_cases(bundle.path / CASES):
        assert not case.rounding["apart"].any(), "what may be anything proves nothing"
    (warning,) = (item for item in bundle.report.warnings if "Rounding alone decides" in item)
    assert "output `tied`" in warning


def padded_inputs(length=7):
    x = np.random.default_rng(0).standard_normal((4, length, D)).astype("float32")
    return {"x": x, "valid_lens": np.array([3, 0, 7, 1], "int32")}


@pytest.mark.slow
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30, 1e4], ids=str)
def test_poisoned_padding_changes_no_output_and_other_nan_does(attending, poison):
    inputs = padded_inputs()
    clean = attending.run(inputs)
    for index, length in enumerate(inputs["valid_lens"]):
        np.testing.assert_array_equal(clean["weights"][index, :, length:], 0)
    np.testing.assert_array_equal(clean["dotted"][1], 0)
    inputs["x"][1], inputs["x"][3, 1:] = poison, poison
    poisoned = attending.run(inputs)
    for name in clean:
        for index in (0, 2):
            assert_identical(poisoned[name][index], clean[name][index])
        assert_identical(poisoned[name][3, :1], clean[name][3, :1])
    np.testing.assert_array_equal(poisoned["weights"][1], 0)
    inputs["x"][2, 4, 5] = np.nan
    assert np.isnan(attending.run(inputs)["dotted"][2]).all()


@pytest.mark.slow
def test_rows_are_independent_in_lower_precision(attending):
    inputs = padded_inputs()
    batch_outputs = attending.run(inputs)
    inputs["x"][1:] *= 1000
    for name, array in attending.run(inputs).items():
        assert_identical(array[0], batch_outputs[name][0])


@pytest.mark.slow
def test_wrong_converted_file_is_not_written(tmp_path, monkeypatch):
    def wrong(model, *options):
        converted, ranges = convert_without_overflow(model, *options)
        tensor = max(converted.model.graph.initializer, key=lambda item: len(item.raw_data))
        tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor) * np.float16(1.5), tensor.name))
        return converted, ranges

    monkeypatch.setattr("keras_attn_export._precision.convert_precision.convert_without_overflow", wrong)
    model = build_small_model()
    steps = []
    with pytest.raises(ParityError, match=r"ONNX in float16 output `.*` is outside the tolerance") as caught:
        export_model(model, tmp_path / "bundle", precision="float16", progress=steps.append)
    assert caught.value.report.precision["name"] == "float16"
    assert "Converting to float16" in steps
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_wrong_float32_file_is_not_converted(tmp_path, monkeypatch):
    monkeypatch.setattr(
        body_inputs, "_clip_lengths", lambda *call, clip=body_inputs._clip_lengths: op.Min(clip(*call), 1)
    )
    steps = []
    model = build_small_model()
    with pytest.raises(ParityError, match="ONNX output `"):
        export_model(model, tmp_path / "bundle", precision="int8", tolerance=10, progress=steps.append)
    assert not [step for step in steps if "int8" in step]
    assert not list(tmp_path.iterdir())


def test_quantizer_is_silent_while_other_threads_log(caplog):
    with silence_logging(), ThreadPoolExecutor(1) as other:
        logging.warning("advice of the quantizer")
        other.submit(logging.warning, "of a server").result()
    logging.warning("afterwards")
    assert caplog.messages == ["of a server", "afterwards"]
