"""A bundle as a LiteRT file: the same numbers by the bundle's own rule, or no file at all."""

import os
import re
import shutil
import sys

import numpy as np
import pytest
import tensorflow as tf
from bundles import alter_manifest, flip_byte, names, read_manifest
from export_models import EXPORTED, dict_inputs_and_outputs
from tolerances import assert_identical

from keras_attn_export import BundleError, ExportError, ParityError, UnsupportedModelError, export_model, load_bundle
from keras_attn_export._bundle.parity import rows_of
from keras_attn_export._export import convert_bundle as module
from keras_attn_export._export.convert_bundle import convert_bundle
from keras_attn_export._export.litert import run_litert
from keras_attn_export._standalone import verify

pytestmark = pytest.mark.needs("ai_edge_litert")


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return the bundle of a dot product over lengths; a test that alters it takes `bundle`."""
    return export_model(dict_inputs_and_outputs(), tmp_path_factory.mktemp("exported") / "bundle").path


@pytest.fixture(scope="module")
def converted(exported, tmp_path_factory):
    """Return its LiteRT file, and the report of the conversion."""
    file = tmp_path_factory.mktemp("converted") / "model.tflite"
    return file, convert_bundle(exported, file)


@pytest.fixture
def bundle(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "bundle")


def drawn(B=2, Tq=3, Tk=7):
    rng = np.random.default_rng(0)
    shapes = {"queries": (B, Tq, 6), "keys": (B, Tk, 6), "values": (B, Tk, 5)}
    inputs = {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}
    return inputs | {"valid_lens": np.arange(2, B + 2, dtype="int32")}


def put_saved_model(folder, function):
    """Replace the SavedModel of a bundle by one of a function of its inputs, and seal the bundle again."""
    shapes = {"queries": (None, None, 6), "keys": (None, None, 6), "values": (None, None, 5)}
    specs = {name: tf.TensorSpec(shape, "float32", name=name) for name, shape in shapes.items()}
    specs["valid_lens"] = tf.TensorSpec((None,), "int32", name="valid_lens")
    made = tf.Module()
    made.serve = tf.function(lambda inputs: function(**inputs), input_signature=[specs])
    shutil.rmtree(folder / "saved_model")
    tf.saved_model.save(made, str(folder / "saved_model"), signatures={"serving_default": made.serve})
    files = [path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()]
    alter_manifest(folder, sha256={name: verify.sha256(folder / name) for name in files if name != "manifest.json"})


def attend(queries, keys, values, valid_lens, *, hides=True):
    """What the model computes, written once more; it may leave values where nobody may see them."""
    scores = tf.matmul(queries, keys, transpose_b=True) * 6**-0.5
    places, lengths = tf.range(tf.shape(keys)[1]), valid_lens[:, None, None]
    values = tf.where(places[None, :, None] < lengths, values, 0.0) if hides else values
    seen = places < lengths
    weights = tf.where(seen, tf.nn.softmax(tf.where(seen, scores, -1e9)), 0.0)
    return {"context": tf.matmul(weights, values), "weights": weights}


# What is made


def test_every_case_is_compared_by_the_bundles_rule(exported, converted, tmp_path):
    file, report = converted
    golden = load_bundle(exported)
    assert report.passed
    assert report.provider == "litert"
    cases, tolerance = verify.load_cases(exported / verify.CASES), golden.manifest["parity"]["tolerance"]
    results = zip(cases, run_litert(file.read_bytes(), [case.inputs for case in cases]), strict=True)
    assert report.rows == rows_of(row for case, outputs in results for row in verify.compare(case, outputs, tolerance))
    assert [(row.case, row.name) for row in report.rows] == [(row.case, row.name) for row in golden.report.rows]
    assert len({row.shape for row in report.rows if row.name == "context"}) > 5
    assert names(file.parent) == ["model.tflite"]
    (tmp_path / "plain").touch()
    assert file.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_padding_cannot_leak(converted):
    inputs = drawn()
    poisoned = {name: array.copy() for name, array in inputs.items()}
    poisoned["keys"][0, 2:], poisoned["values"][0, 3:] = np.nan, np.inf
    clean, same = run_litert(converted[0].read_bytes(), [inputs, poisoned])
    assert np.isnan(poisoned["keys"]).any()
    for name, array in clean.items():
        assert_identical(same[name], array)


CONVERTED = ("boolean and causal mask", "every normalizer, and windows", "static shapes", "gelu, norm, dropout, conv")
REFUSED = {"additive": "`query_block_size=None`", "implicit mask and encoders": "(--static batch=1)"}


@pytest.mark.out_of_turn
@pytest.mark.parametrize("name", [*CONVERTED, *REFUSED])
def test_which_models_convert(name, tmp_path):
    export_model(EXPORTED[name].build(), tmp_path / "bundle")
    if name in CONVERTED:
        assert convert_bundle(tmp_path / "bundle", tmp_path / "model.tflite").passed
    else:
        with pytest.raises(UnsupportedModelError, match=re.escape(REFUSED[name])):
            convert_bundle(tmp_path / "bundle", tmp_path / "model.tflite")


# What does not match


def refused(bundle, error=ExportError, **options):
    """Return what a conversion says that must fail and leave no file."""
    before = names(bundle.parent)
    with pytest.raises(error) as caught:
        convert_bundle(bundle, bundle.with_name("model.tflite"), **options)
    assert names(bundle.parent) == before
    return caught.value


def test_what_leaks_from_padding_does_not_match(bundle):
    put_saved_model(bundle, lambda **inputs: attend(**inputs, hides=False))
    (failed,) = (row for row in refused(bundle, ParityError).report.rows if not row.passed)
    assert (failed.name, failed.case) == ("context", "poisoned padding")
    assert failed.problem == "has NaN or infinity in other places than expected"


def test_outputs_of_other_names_do_not_match(bundle):
    put_saved_model(bundle, lambda **inputs: {"context": attend(**inputs)["context"], "other": inputs["keys"]})
    problems = {(row.name, row.problem) for row in refused(bundle, ParityError).report.rows if not row.passed}
    assert problems == {("weights", "is missing"), ("other", "was not expected")}


def test_a_case_that_litert_cannot_run_is_a_mismatch(bundle):
    def of_six_keys(keys, **others):
        return attend(keys=tf.reshape(keys, (tf.shape(keys)[0], 6, 6)), **others)

    put_saved_model(bundle, of_six_keys)
    rows = refused(bundle, ParityError).report.rows
    lengths = {row.case: row.shape[2] for row in rows if row.name == "weights"}
    assert {row.passed for row in rows if lengths[row.case] == 6} == {True}
    for row in rows:
        if lengths[row.case] != 6:
            assert row.problem.startswith("cannot be computed by LiteRT (")


def test_what_litert_says_is_of_one_case_alone(converted):
    bad = drawn() | {"values": np.zeros((2, 4, 5), "float32")}
    first, right, again = run_litert(converted[0].read_bytes(), [bad, drawn(), bad])
    assert isinstance(first, str)
    assert isinstance(right, dict)
    assert again == first


def with_gamma(**inputs):
    outputs = attend(**inputs)
    return outputs | {"context": tf.math.igamma(outputs["context"], tf.math.digamma(outputs["context"]))}


def in_a_loop(values, **others):
    return attend(values=tf.map_fn(lambda rows: rows, values, name="rows_of_values"), **others)


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (with_gamma, "LiteRT has no operator for TensorFlow's `Digamma`, `Igamma`, "),
        (in_a_loop, "LiteRT cannot hold what a loop collects in steps of unknown size, as `rows_of_values` does."),
    ],
)
def test_what_litert_lacks_is_named(bundle, function, said):
    put_saved_model(bundle, function)
    assert str(refused(bundle, UnsupportedModelError)).startswith(said)


# What is refused before anything is computed


@pytest.fixture
def nothing_computed(monkeypatch):
    """Let a conversion that gets so far fail."""
    monkeypatch.setattr(module, "to_litert", lambda _: pytest.fail("was converted"))


@pytest.mark.usefixtures("nothing_computed")
def test_what_is_no_bundle_of_float32_or_another_format(bundle):
    assert str(refused(bundle, to="onnx")) == "`to` must be one of ['litert']. Received: 'onnx'."
    for precision in ("float16", "int8"):
        alter_manifest(bundle, precision=precision)
        assert f"is of precision {precision}" in str(refused(bundle, UnsupportedModelError))
    parity = read_manifest(bundle)["parity"]
    alter_manifest(bundle, precision="float32", parity={})
    assert "`parity.tolerance` is missing" in str(refused(bundle, BundleError))
    alter_manifest(bundle, parity=parity)
    flip_byte(bundle / "saved_model" / "saved_model.pb")
    assert "is not the file that was exported" in str(refused(bundle, BundleError))


@pytest.mark.usefixtures("nothing_computed")
def test_a_missing_interpreter_is_told_first(bundle, monkeypatch):
    monkeypatch.setitem(sys.modules, "ai_edge_litert", None)
    assert 'Install them: pip install "keras-attn[litert]"' in str(refused(bundle))


@pytest.mark.usefixtures("nothing_computed")
def test_places_that_are_taken(exported, tmp_path):
    (tmp_path / "file").write_text("earlier")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("nowhere")
    before = names(tmp_path)
    for place, overwrite, said in (
        ("file", False, "already exists. Pass overwrite=True"),
        *((name, True, "is there and is not a file") for name in ("folder", "pipe", "link")),
        ("file/model.tflite", True, "There is no folder"),
        ("nowhere/model.tflite", False, "There is no folder"),
    ):
        with pytest.raises(ExportError, match=said):
            convert_bundle(exported, tmp_path / place, overwrite=overwrite)
    with pytest.raises(ExportError, match="is in the bundle"):
        convert_bundle(exported, exported / "saved_model" / "model.tflite")
    assert names(tmp_path) == before
    assert (tmp_path / "file").read_text() == "earlier"


# What happens meanwhile


@pytest.fixture
def meanwhile(converted, monkeypatch):
    """Let a conversion be done at once, but for what is to happen in it: functions that a test adds to the list."""
    happen = []

    def to_litert(_):
        for each in happen:
            each()
        return converted[0].read_bytes()

    monkeypatch.setattr(module, "to_litert", to_litert)
    return happen


def test_a_file_that_appears_meanwhile_is_not_replaced(exported, meanwhile, tmp_path):
    file = tmp_path / "model.tflite"
    meanwhile.append(lambda: file.write_text("appeared"))
    with pytest.raises(ExportError, match="already exists"):
        convert_bundle(exported, file)
    assert file.read_text() == "appeared"
    assert names(tmp_path) == ["model.tflite"]


@pytest.mark.usefixtures("meanwhile")
def test_a_full_disk_leaves_what_was_there(exported, tmp_path, monkeypatch):
    def disk_full(_):
        raise OSError(28, "No space left on device")

    file = tmp_path / "model.tflite"
    file.write_text("....TFL3 earlier")
    monkeypatch.setattr(os, "fsync", disk_full)
    with pytest.raises(ExportError, match=r"^Cannot write .*model\.tflite: No space left on device\.$"):
        convert_bundle(exported, file, overwrite=True)
    assert file.read_text() == "....TFL3 earlier"
    assert names(tmp_path) == ["model.tflite"]


def test_another_bundle_meanwhile(bundle, meanwhile):
    meanwhile.append(lambda: flip_byte(bundle / "saved_model" / "saved_model.pb"))
    assert "its sha256 differs from the manifest's" in str(refused(bundle, BundleError))


def test_a_file_that_cannot_be_loaded():
    with pytest.raises(ExportError, match="ai-edge-litert cannot load it"):
        list(run_litert(b"TFL3 and no more", []))
