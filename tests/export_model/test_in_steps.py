"""A decoder in steps: exported, proven and run as the Keras model that holds the loop."""

import json
import warnings

import keras
import numpy as np
import onnxruntime
import pytest
from bundles import names
from decoding_models import END, LENGTH, START, TOKENS, arrays, attending, growing, ids_of, recurrent
from step_models import BLOCKS, CAPACITY, HEADS, SIZE, WIDTH, fixed_caches, growing_caches

from keras_attn.decoding import beam, greedy
from keras_attn_export import (
    Bundle,
    InputError,
    ParityError,
    UnsupportedModelError,
    export_model,
    load_bundle,
    verify_bundle,
)
from keras_attn_export._bundle.steps_manifest import ANSWER
from keras_attn_export._export.feeds import feeds_of, start_of, step_samples
from keras_attn_export._model.growing_caches import EMPTY_CACHE
from keras_attn_export._standalone import verify

PAST = [f"past_key_values.{n}.{part}" for n in range(BLOCKS) for part in ("key", "value")]


def firsts_of(count, seed=0):
    return {"first": np.random.default_rng(seed).normal(size=(count, WIDTH)).astype("float32")}


def prompts_of(count, seed=0):
    rng = np.random.default_rng(seed)
    sizes = {"ids": (0, 6, (count, 4)), "lens": (1, 5, count), "last": (0, 6, count)}
    return {name: rng.integers(*size).astype("int32") for name, size in sizes.items()}


CASES = {
    "growing": lambda: (greedy(*growing_caches(), start=START, end=END, max_length=LENGTH), firsts_of),
    "fixed": lambda: (greedy(*fixed_caches(), start="last", end=END, max_length=5, name="fixed"), prompts_of),
}


@pytest.fixture(scope="module", params=CASES)
def exported(request, tmp_path_factory):
    model, inputs_of = CASES[request.param]()
    path = tmp_path_factory.mktemp("in_steps") / "bundle"
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a name with dots is nothing to be warned of
        warnings.filterwarnings("ignore", category=DeprecationWarning)
        bundle = export_model(model, path, in_steps=True, sample_inputs=inputs_of(5, seed=1))
    return request.param, model, bundle, inputs_of


def test_the_folder_and_its_proof(exported):
    name, model, bundle, _ = exported
    assert names(bundle.path) == ["encoder", "manifest.json", "parity", "step"]
    assert bundle.report.passed
    assert {row.name for row in bundle.report.rows} == {"tokens", "lengths", "scores"}
    # nothing is said of `last`, which goes past the encoder
    said = {"growing": (), "fixed": ("The encoder: Input `lens` has one value in all cases",)}[name]
    assert tuple(warning.partition(",")[0] for warning in bundle.report.warnings) == said
    assert bundle.manifest["model"] == model.name
    assert bundle.manifest["max_length"] == {"growing": LENGTH, "fixed": 5}[name]
    outputs = {spec["name"]: (spec["dtype"], spec["shape"]) for spec in bundle.manifest["outputs"]}
    assert outputs == {
        "tokens": ("int32", ["batch", bundle.manifest["max_length"]]),
        "lengths": ("int32", ["batch"]),
        "scores": ("float32", ["batch"]),
    }
    for part in bundle.parts.values():
        assert part.report.passed
        assert load_bundle(part.path).manifest == part.manifest


@pytest.mark.parametrize("count", [1, 2, 9, 33])
def test_generate_answers_as_keras(exported, count):
    _, model, bundle, inputs_of = exported
    inputs = inputs_of(count, seed=count)
    found, expected = bundle.generate(inputs), arrays(model(inputs))
    assert set(found) == set(expected)
    for key, array in expected.items():
        assert found[key].dtype == array.dtype, key
        np.testing.assert_allclose(found[key], array, rtol=1e-4, atol=1e-5, err_msg=key)
    if count == 33:
        assert len(set(found["lengths"].tolist())) > 2  # rows leave at different steps


def test_verify_replays_all_three(exported):
    _, _, bundle, _ = exported
    report = verify_bundle(bundle.path)
    assert report.passed
    parts = {row.case.partition(": ")[0] for row in report.rows if ": " in row.case}
    assert parts == {"encoder", "step"}
    whole = {row.case for row in report.rows if ": " not in row.case}
    assert len(whole) == bundle.manifest["parity"]["cases"] > 3


def test_samples_are_compared_with_the_model(exported):
    _, model, bundle, inputs_of = exported
    samples = inputs_of(6, seed=8)
    report = verify_bundle(bundle.path, samples=samples, model=model)
    assert {row.name for row in report.rows if row.case == "samples of this run"} == {"tokens", "lengths", "scores"}
    with pytest.raises(InputError, match=r"`samples` lack \['\w+'"):
        verify_bundle(bundle.path, samples={}, model=model)


def test_names_with_dots_are_those_of_the_file(exported):
    name, _, bundle, _ = exported
    session = onnxruntime.InferenceSession(bundle.path / "step" / "model.onnx")
    inputs = [each.name for each in session.get_inputs()]
    if name == "growing":
        assert set(PAST) < set(inputs)
        assert {f"present.{n}.{part}" for n in range(BLOCKS) for part in ("key", "value")} < {
            each.name for each in session.get_outputs()
        }
    else:
        assert set(inputs) == {"token", "projected_keys", "projected_values", "length"}


def test_what_feeds_what(exported):
    name, _, bundle, _ = exported
    feeds = {feed["input"]: (feed["first"], feed["then"]) for feed in bundle.manifest["feeds"]}
    assert feeds.pop("token") == ({"from": "start"}, {"from": "token"})
    if name == "growing":
        assert feeds.pop("position") == ({"from": "position"},) * 2
        assert feeds.pop("context") == ({"from": "encoder output", "name": "context"},) * 2
        empty = {"from": "zeros", "shape": [HEADS, 0, SIZE]}
        assert feeds == {
            each: (empty, {"from": "step output", "name": each.replace("past_key_values", "present")}) for each in PAST
        }
        assert bundle.manifest["start"] == START
    else:
        # what has the name of an input is called otherwise in a file
        assert feeds == {
            each: ({"from": "encoder output", "name": each}, {"from": "step output", "name": f"{each}_output"})
            for each in ("projected_keys", "projected_values", "length")
        }
        assert bundle.manifest["start"] == {"from": "encoder input", "name": "last"}


def test_caches_are_proven_empty_and_filled(exported):
    name, _, bundle, _ = exported
    cases = {case.name: case for case in verify.load_cases(bundle.path / "step" / verify.CASES)}
    if name == "growing":
        assert [cases[EMPTY_CACHE].inputs[each].shape[2] for each in PAST] == [0] * len(PAST)
        assert len({case.inputs[PAST[0]].shape[2] for case in cases.values()}) > 3
    else:
        lengths = {length for case in cases.values() for length in case.inputs["length"].tolist()}
        assert set(range(0, CAPACITY)) & lengths >= {0, 1, CAPACITY - 1}
        assert max(lengths) >= CAPACITY  # where Keras gives NaN, as what was lost has no answer


def test_the_saved_model_takes_the_names_too(exported):
    _, _, bundle, _ = exported
    import tensorflow as tf

    case = verify.load_cases(bundle.path / "step" / verify.CASES)[0]
    serve = tf.saved_model.load(str(bundle.path / "step" / "saved_model")).signatures["serving_default"]
    found = serve(**{each: tf.constant(array) for each, array in case.inputs.items()})
    np.testing.assert_allclose(found["logits"], case.outputs["logits"], rtol=1e-4, atol=1e-5)


def never_twice(never=-np.inf):
    """A token never follows itself, which its logits say, and they are given too."""
    token = keras.Input((), dtype="int32", name="token")
    table = keras.layers.Embedding(TOKENS, TOKENS)
    first = keras.Input((), dtype="int32", name="first")
    step = keras.Model(token, {"logits": table(token)})
    logits = np.random.default_rng(3).normal(size=(TOKENS, TOKENS))
    np.fill_diagonal(logits, never)
    table.set_weights([logits])
    encoder = keras.Model({"first": first}, {"unread": first})
    return greedy(encoder, step, {}, start="first", end=END, max_length=4, outputs=["logits"])


def test_what_is_collected_may_hold_infinities(tmp_path):
    """They must stand in the same places, as in one file."""
    model, inputs = never_twice(), {"first": np.arange(TOKENS, dtype="int32")}
    bundle = export_model(model, tmp_path / "bundle", in_steps=True, sample_inputs=inputs)
    assert bundle.report.passed
    assert bundle.report.refused == {}
    expected = arrays(model(inputs))
    assert np.isneginf(expected["logits"]).any()
    for name, array in bundle.generate(inputs).items():
        np.testing.assert_allclose(array, expected[name], rtol=1e-5, err_msg=name)
    assert verify_bundle(bundle.path, samples=inputs, model=model).passed
    altered = never_twice(-1e30)
    with pytest.raises(ParityError, match="`logits` has NaN or infinity in other places than expected"):
        verify_bundle(bundle.path, samples=inputs, model=altered)
    with pytest.raises(InputError, match=r"Keras itself cannot run .* on `samples`: Keras gives NaN$"):
        verify_bundle(bundle.path, samples=inputs, model=never_twice(np.nan))


def of_one_batch(rows):
    """What has a step that takes so many rows only, beside an encoder that takes any."""
    encoder, step, state = recurrent()
    taken = [keras.Input(batch_shape=(rows, *x.shape[1:]), dtype=x.dtype, name=x.name) for x in step.inputs]
    outputs = step(taken)
    logits = keras.ops.reshape(outputs["logits"], (rows, TOKENS))
    step = keras.Model(taken, {**outputs, "logits": logits})
    return greedy(encoder, step, state, start=START, end=END, max_length=LENGTH)


@pytest.mark.parametrize("in_steps", [False, True], ids=["one file", "in steps"])
def test_a_step_of_one_batch_is_exported_with_it(tmp_path, in_steps):
    model, inputs = of_one_batch(4), {"ids": ids_of(9)["ids"][[7, 0, 8, 1]]}
    bundle = export_model(model, tmp_path / "bundle", in_steps=in_steps)
    assert bundle.report.passed
    assert bundle.manifest["inputs"] == [{"name": "ids", "dtype": "int32", "shape": [4, "ids_length"]}]
    assert {spec["name"]: spec["shape"][0] for spec in bundle.manifest["outputs"]} == dict.fromkeys(ANSWER, 4)
    free = greedy(*recurrent(), start=START, end=END, max_length=LENGTH)
    found, expected = bundle.generate(inputs), arrays(free(inputs))
    assert len(set(expected["lengths"].tolist())) > 2  # so that rows would leave
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, err_msg=name)
    if in_steps:
        assert not bundle.report.refused


# ------------------------------------------------------------- what is refused


def test_another_model_is_refused(tmp_path):
    x = keras.Input((3,), name="x")
    model = keras.Model(x, keras.layers.Dense(2)(x), name="plain")
    with pytest.raises(
        UnsupportedModelError, match=r"what `keras_attn.decoding.greedy` makes, .* `plain`, another model"
    ):
        export_model(model, tmp_path / "bundle", in_steps=True)
    assert names(tmp_path) == []


def test_what_another_precision_does_is_not_called_rounding(tmp_path):
    model = greedy(*recurrent(), start=START, end=END, max_length=4, outputs=["weights"])
    bundle = export_model(model, tmp_path / "bundle", in_steps=True, precision="int8")
    coverage = bundle.report.coverage
    assert coverage["parts"] == {name: part.report.coverage for name, part in bundle.parts.items()}
    of_parts = [f"The {name}: {each}" for name, part in bundle.parts.items() for each in part.report.warnings]
    assert of_parts
    assert list(bundle.report.warnings[-len(of_parts) :]) == of_parts
    for name in ("scores", "weights"):
        known = coverage["outputs"][name]
        assert known["rounding"] < 1e-4 < 1e-2 < known["rounding_in_precision"]
    assert not any("Rounding alone may move" in warning for warning in bundle.report.warnings)
    assert verify_bundle(bundle.path).warnings == bundle.report.warnings


def test_a_beam_is_refused(tmp_path):
    model = beam(*recurrent(), start=START, end=END, max_length=2)
    with pytest.raises(UnsupportedModelError, match="a beam search, whose loop is in one file only"):
        export_model(model, tmp_path / "bundle", in_steps=True)


def with_a_layer_behind(inner):
    return inner.input, keras.layers.Reshape((-1, 1))(inner.output["tokens"])


def within_another_model(inner):
    ids = keras.Input((None,), dtype="int32", name="ids")
    return ids, inner({"ids": ids})["tokens"] + 1


@pytest.mark.parametrize("around", [with_a_layer_behind, within_another_model])
def test_layers_around_it_are_refused(tmp_path, around):
    inputs, tokens = around(greedy(*recurrent(), start=START, end=END, max_length=2))
    model = keras.Model(inputs, {"tokens": tokens}, name="around")
    with pytest.raises(UnsupportedModelError, match="`around`, another model"):
        export_model(model, tmp_path / "bundle", in_steps=True)


@pytest.mark.parametrize("more", [{"static_axes": {"batch": 1}}, {"report": True}], ids=str)
def test_what_is_for_one_bundle_is_refused(tmp_path, more):
    with pytest.raises(InputError, match=f"`in_steps` makes two bundles, and `{next(iter(more))}` is for one"):
        export_model("nowhere.keras", tmp_path / "bundle", in_steps=True, **more)


def test_answers_that_differ_leave_nothing(tmp_path, monkeypatch):
    """What the loop gives is compared, beside the parts: here it takes one token for another."""
    right = Bundle.generate

    def wrong(self, inputs, **options):
        found = right(self, inputs, **options)
        return found | {"tokens": found["tokens"] + 1}

    monkeypatch.setattr(Bundle, "generate", wrong)
    model = greedy(*recurrent(), start=START, end=END, max_length=2)
    with pytest.raises(ParityError, match="output `tokens` differs in"):
        export_model(model, tmp_path / "bundle", in_steps=True)
    assert names(tmp_path) == []


# ---------------------------------------------- what is known before an export


def layer_of(model):
    return model.layers[-1]


def test_a_step_gets_samples_only_for_what_cannot_be_drawn():
    first = {"first": np.ones((3, 4), "float32")}
    samples = step_samples(layer_of(greedy(*growing(), start=START, max_length=2)), first)
    assert {name: array.tolist() for name, array in samples.items()} == {"position": [0, 1, 0]}
    assert step_samples(layer_of(greedy(*attending(), start=START, max_length=4)), ids_of(3)) is None


def counting_state():
    """A step that counts, in a state of integers."""
    ids, token = keras.Input((None,), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    encoder = keras.Model(ids, {"count": keras.ops.sum(ids, axis=1)})
    count = keras.Input((), dtype="int32", name="count")
    logits = keras.layers.Embedding(3, 3)(token) + keras.ops.expand_dims(keras.ops.cast(count, "float32"), 1)
    return encoder, keras.Model([token, count], {"logits": logits, "next": count + 10}), {"next": "count"}


def test_integers_of_a_state_are_those_of_some_steps():
    layer = layer_of(greedy(*counting_state(), start=START, max_length=8))
    samples = step_samples(layer, {"ids": np.array([[1, 2], [3, 4]], "int32")})
    assert {name: array.tolist() for name, array in samples.items()} == {"count": [23, 27]}


def test_what_the_encoder_gives_goes_before_what_it_takes():
    x = keras.Input((4,), name="x")
    encoder = keras.Model({"x": x}, {"x": 2 * x, "last": keras.ops.cast(x[:, 0], "int32")})
    token, taken = keras.Input((), dtype="int32", name="token"), keras.Input((4,), name="x")
    step = keras.Model([token, taken], {"logits": taken + keras.layers.Embedding(3, 4)(token)})
    layer = layer_of(greedy(encoder, step, {}, start="last", max_length=2))
    feeds = {feed["input"]: feed["first"] for feed in feeds_of(layer)}
    assert feeds["x"] == {"from": "encoder output", "name": "x_output"}  # a file has no two tensors of one name
    assert start_of(layer) == {"from": "encoder output", "name": "last"}
    json.dumps(feeds)
