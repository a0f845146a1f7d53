"""Models with string inputs and outputs: parity, runs, verification of the bundle, and errors for invalid inputs."""

import shutil
import subprocess
import sys
import warnings

import keras
import numpy as np
import pytest
from text_models import NAMES, build_lookup_model, build_text_model

from keras_attn_export import ExportError, InputError, ParityError, UnsupportedModelError, export_model, verify_bundle
from keras_attn_export._bundle.bundle_files import finalize_bundle
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES_FILE, MANIFEST
from keras_attn_export._golden_cases.random_texts import EDGE_CASE_TEXTS
from keras_attn_export._signature.signature import build_signature

INPUTS = {
    "text": np.array(["The CAT, sat", "", "ÄÖÜ\t世界 nothing"], object),
    "colour": np.array([["grün"], ["red"], ["?"]], object),
    "numbers": np.array([[0.5, 1], [2, -3], [0, 0]], "float32"),
}


@pytest.fixture(scope="module")
def model():
    return build_text_model()


@pytest.fixture(scope="module")
def bundle(model, tmp_path_factory):
    return export_model(model, tmp_path_factory.mktemp("strings") / "bundle")


@pytest.mark.slow
def test_bundle_with_strings_equals_keras(bundle, model):
    expected, outputs = build_signature(model).run(INPUTS), bundle.run(INPUTS)
    assert outputs["name"].tolist() == expected["name"].tolist()
    assert {*outputs["name"]} <= {*NAMES}
    np.testing.assert_allclose(outputs["scores"], expected["scores"], atol=1e-6)
    run = subprocess.run([sys.executable, "-P", bundle.path / "verify.py"], capture_output=True, text=True, check=True)
    assert "outputs match on CPUExecutionProvider" in run.stdout
    for dtype in ("U", np.dtypes.StringDType()):
        dtype_outputs = bundle.run(INPUTS | {"text": INPUTS["text"].astype(dtype)})
        np.testing.assert_array_equal(dtype_outputs["scores"], outputs["scores"])


@pytest.mark.slow
def test_string_cases_are_stored_without_pickle(bundle):
    assert [spec["dtype"] for spec in bundle.manifest["inputs"]] == ["string", "string", "float32"]
    assert {spec["name"]: spec["dtype"] for spec in bundle.manifest["outputs"]}["name"] == "string"
    with np.load(bundle.path / CASES_FILE, allow_pickle=False) as arrays:
        assert {arrays[name].dtype.kind for name in arrays if "text" in name} == {"U"}
    cases = [case for case in load_cases(bundle.path / CASES_FILE) if case.name != "special values"]
    texts = {text for case in cases for text in case.inputs["text"]}
    non_ascii = sum(not text.isascii() for text in texts)
    description = bundle.report.coverage["inputs"]["text"]["values"]["drawn"]
    assert description == f"{len(texts)} different strings, {non_ascii} with characters outside ASCII"
    assert bundle.report.warnings == ()


@pytest.mark.slow
def test_cases_contain_every_word_and_edge_case_texts(bundle):
    cases = {case.name: case.inputs for case in load_cases(bundle.path / CASES_FILE)}
    assert {*EDGE_CASE_TEXTS} <= {*cases["every text"]["text"]}
    assert {"red", "blue", "grün", *EDGE_CASE_TEXTS} <= {*cases["every text"]["colour"].flat}
    assert {*cases["empty text"]["text"]} == {""}


@pytest.mark.slow
def test_different_string_output_fails_verification(bundle, tmp_path):
    shutil.copytree(bundle.path, tmp_path / "bundle")
    cases = load_cases(bundle.path / CASES_FILE)
    names = cases[0].outputs["name"].copy()
    names[0] = next(name for name in NAMES if name != names[0])
    limits = {name: limit for name, limit in cases[0].rounding_limits.items() if name != "name"}
    cases[0] = cases[0]._replace(outputs=cases[0].outputs | {"name": names}, rounding_limits=limits)
    save_cases(tmp_path / "bundle" / CASES_FILE, cases)
    (tmp_path / "bundle" / MANIFEST).unlink()
    finalize_bundle(tmp_path / "bundle", bundle.entries)
    with pytest.raises(ParityError, match=r"output `name` differs in 1 of 3 elements in case `base`") as caught:
        verify_bundle(tmp_path / "bundle")
    assert [row.dtype for row in caught.value.report.rows if not row.passed] == ["string"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "message"),
    [
        (np.array([b"a"] * 3), "must hold strings. Received: bytes. Decode them first"),
        (["a", None, "b"], "must hold strings. Received: NoneType"),
        ([["a"], ["b"], ["c"]], r"must have shape \('batch',\). Received: \(3, 1\)"),
        ([np.array([["a"]] * 2), np.array([["a", "b"]] * 2)], "must be one array of strings"),
        (["a\0", "b", "c"], "a zero character or half of a surrogate pair"),
    ],
)
def test_inputs_without_valid_strings_are_refused(bundle, text, message):
    with pytest.raises(InputError, match=f"Input `text` (holds )?{message}"):
        bundle.run(INPUTS | {"text": text})


@pytest.mark.slow
def test_texts_that_give_nan_are_omitted_with_a_warning(tmp_path):
    """The mean of Keras over a fully masked text is NaN."""
    text = keras.Input((), dtype="string", name="text")
    ids = keras.layers.TextVectorization(vocabulary=["the", "cat", "sat"])(text)
    mean = keras.layers.GlobalAveragePooling1D(name="mean")(keras.layers.Embedding(5, 2, mask_zero=True)(ids))
    model = keras.Model(text, mean)
    bundle = export_model(model, tmp_path / "bundle")
    assert bundle.manifest["inputs"][0]["shape"] == ["batch"]
    (warning,) = bundle.report.warnings
    assert warning.startswith("Keras gives NaN for texts in input `text` such as '' and ' '. ")
    cases = {case.name: case for case in load_cases(bundle.path / CASES_FILE)}
    assert {*EDGE_CASE_TEXTS} - {"", " "} <= {*cases["every text"].inputs["text"]}
    assert np.isfinite(cases["every text"].outputs["mean"]).all()
    with pytest.raises(ParityError, match="`strict` asks for more: Keras gives NaN"):
        bundle.report.raise_if_warned()


@pytest.mark.slow
def test_single_string_is_exported(tmp_path):
    word = keras.Input(batch_shape=(), dtype="string", name="word")
    inverted = keras.layers.StringLookup(vocabulary=NAMES, invert=True)(
        keras.layers.StringLookup(vocabulary=NAMES)(word)
    )
    bundle = export_model(keras.Model(word, {"same": inverted}), tmp_path / "bundle")
    assert bundle.run({"word": np.array("bad", object)})["same"].item() == "bad"


@pytest.mark.slow
def test_integers_without_a_vocabulary_are_exported(tmp_path):
    x, y = keras.Input((1,), dtype="string", name="word"), keras.Input((1,), dtype="int64", name="number")
    export_model(keras.Model([x, y], keras.layers.HashedCrossing(1000)([x, y])), tmp_path / "bundle")


@pytest.mark.slow
def test_unknown_word_is_refused_as_in_keras(tmp_path):
    bundle = export_model(build_lookup_model(num_oov_indices=0), tmp_path / "bundle")
    assert bundle.run([["red", "blue", "grün"]])["found"].tolist() == [[0, 1, 2]]
    with pytest.raises(ExportError, match="onnxruntime cannot run the model on inputs `word`"):
        bundle.run([["red", "blue", "green"]])


def test_strings_are_refused_on_other_backends(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(UnsupportedModelError, match="`word` holds strings, which need KERAS_BACKEND=tensorflow"):
        build_signature(build_lookup_model())


@pytest.mark.slow
def test_opset_follows_the_target(model, tmp_path):
    message = r"need opset 20 \(onnxruntime 1\.17 or newer\)\. Received: opset=18"
    with pytest.raises(UnsupportedModelError, match=message):
        export_model(model, tmp_path / "bundle", opset=18)
    bundle = export_model(model, tmp_path / "bundle", target="1.17")
    assert (bundle.manifest["lowest_onnxruntime"], bundle.manifest["opset"]) == ("1.17", 20)


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_strings_stay_in_other_precisions(model, tmp_path, precision):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        bundle = export_model(model, tmp_path / "bundle", precision=precision)
    assert {*bundle.run(INPUTS)["name"]} <= {*NAMES}
