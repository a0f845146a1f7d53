"""Golden cases: which axes go together is found by trying, sizes and lengths are swept, Keras's answers are kept."""

import keras
import numpy as np
import pytest
from export_models import (
    TwoArguments,
    additive,
    dict_inputs_and_outputs,
    per_query_lengths,
    qkvl,
    static_shapes,
    two_argument_samples,
)
from keras import layers

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn_export import InputError, UnsupportedModelError
from keras_attn_export._model import golden_cases as golden_cases_module
from keras_attn_export._model.dynamic_axes import Axes
from keras_attn_export._model.golden_cases import _sweep, golden_cases
from keras_attn_export._model.long_cases import EVERY_KEY, LONG
from keras_attn_export._model.signature import model_signature
from keras_attn_export._thresholds import LARGE, From


def cases_of(model, samples=None):
    return golden_cases(model, model_signature(model, samples), samples)


def test_axes_that_must_agree_share_a_name():
    axes = cases_of(additive()).axes
    assert axes == {
        "queries": ("batch", "queries_length", 6),
        "keys": ("batch", "keys_length", 8),
        "values": ("batch", "keys_length", 5),
        "valid_lens": ("batch",),
    }


def test_per_query_lengths_share_the_queries_axis():
    assert cases_of(per_query_lengths()).axes["valid_lens"] == ("batch", "queries_length")


def test_axes_that_need_not_agree_do_not():
    a, b = keras.Input((None, 3), name="a"), keras.Input((None, 3), name="b")
    pooled = layers.GlobalAveragePooling1D()(a) + layers.GlobalAveragePooling1D()(b)
    axes = cases_of(keras.Model([a, b], pooled)).axes
    assert axes == {"a": ("batch", "a_length", 3), "b": ("batch", "b_length", 3)}


def test_three_axes_that_must_agree():
    inputs = [keras.Input((None, 3), name=name) for name in "abc"]
    axes = cases_of(keras.Model(inputs, layers.Concatenate()(inputs))).axes
    assert {shape for shape in axes.values()} == {("batch", "a_length", 3)}


def test_axes_beyond_the_second_are_named_by_number():
    image = keras.Input((None, None, 2), name="image")
    axes = cases_of(keras.Model(image, layers.Conv2D(3, 3, padding="same")(image))).axes
    assert axes["image"] == ("batch", "image_length", "image_axis_2", 2)


def test_static_axes_stay_static():
    found = cases_of(static_shapes())
    assert found.axes == {"queries": (3, 2, 4), "keys": (3, 5, 4), "valid_lens": (3,)}
    assert all(inputs["keys"].shape == (3, 5, 4) for _, inputs, *_ in found.cases)


def test_a_subclass_finds_its_dynamic_axes_by_trying():
    axes = cases_of(TwoArguments(), two_argument_samples()).axes
    assert axes == {
        "q": ("batch", "q_length", 6),
        "kv": ("batch", "kv_length", 4),
        "valid_lens": ("batch",),
    }


def test_sizes_and_lengths_are_swept():
    found = cases_of(additive())
    batches = {inputs["keys"].shape[0] for _, inputs, *_ in found.cases}
    lengths = {inputs["keys"].shape[1] for _, inputs, *_ in found.cases}
    assert {1, 2} < batches
    assert 1 in lengths
    assert len(lengths) >= 4
    margins = {int(n) - inputs["keys"].shape[1] for _, inputs, *_ in found.cases for n in inputs["valid_lens"]}
    counts = {int(n) for _, inputs, *_ in found.cases for n in inputs["valid_lens"]}
    assert {0, 1} < counts
    assert min(counts) < 0
    assert {0, 3} < margins


def test_golden_outputs_are_kerass_own():
    model = additive()
    for _, inputs, outputs, _ in cases_of(model).cases:
        expected = model([inputs[name] for name in ("queries", "keys", "values", "valid_lens")])
        np.testing.assert_array_equal(outputs["attention"], expected)


def test_complete_samples_are_a_case_of_their_own():
    samples = two_argument_samples()
    name, inputs, *_ = cases_of(TwoArguments(), samples).cases[0]
    assert name == "samples"
    np.testing.assert_array_equal(inputs["valid_lens"], samples["valid_lens"])
    np.testing.assert_array_equal(inputs["kv"], samples["kv"].astype("float32"))


def test_sizes_that_keras_refuses_are_reported_not_hidden():
    x = keras.Input((None, 3), name="x")
    model = keras.Model(x, layers.Conv1D(2, 4)(x))  # needs at least four steps
    found = cases_of(model)
    assert list(found.refused) == ["x_length 1"]
    assert len(found.cases) >= 5


def test_a_model_that_runs_on_nothing_says_why():
    a, b = keras.Input((3,), name="a"), keras.Input((None, 5), name="b")

    class Broken(layers.Layer):
        def call(self, a, b):
            if hasattr(a, "numpy"):
                raise ValueError("never on real tensors")
            return a

    model = keras.Model([a, b], Broken()(a, b))
    with pytest.raises(InputError, match=r"Keras itself cannot run.*`a` \(3, 3\).*never on real tensors"):
        cases_of(model)


def test_output_axes_take_the_inputs_names():
    found = cases_of(additive())
    assert found.output_axes("attention", (None, None, 5)) == ("batch", "queries_length", 5)
    found = cases_of(dict_inputs_and_outputs())
    assert found.output_axes("weights", (None, None, None)) == ("batch", "queries_length", "keys_length")


def test_an_output_axis_of_its_own_gets_a_name_of_its_own():
    x = keras.Input((None, 3), name="x")
    found = cases_of(keras.Model(x, keras.ops.concatenate([x, x], axis=1)))
    (name,) = found.cases[0][2]
    assert found.output_axes(name, (None, None, 3)) == ("batch", f"{name}_axis_1", 3)


def test_a_model_that_gives_nan_asks_for_samples():
    q, k = keras.Input((None, 3), name="q"), keras.Input((None, 3), name="k")
    model = keras.Model([q, k], AdditiveAttention(4)(q, keras.ops.log(k), k))
    with pytest.raises(InputError, match=r"Keras gives NaN or nothing on inputs of shapes `q` .* Pass `sample_inputs`"):
        cases_of(model)
    samples = {"q": np.ones((2, 4, 3)), "k": np.ones((2, 5, 3))}
    assert cases_of(model, samples).axes["k"] == ("batch", "k_length", 3)


def test_samples_that_keras_cannot_run_are_an_error():
    ids = keras.Input((None,), dtype="int32", name="ids")
    model = keras.Model(ids, layers.Embedding(7, 3)(ids))
    samples = {"ids": np.r_[np.ones((9, 4), int), np.full((1, 4), 99)]}
    with pytest.raises(InputError, match="Keras itself cannot run the model on `sample_inputs`"):
        cases_of(model, samples)


def test_lengths_of_keys_that_some_sizes_do_not_have():
    ids = keras.Input((None,), dtype="int32", name="ids")
    lens = keras.Input((), dtype="int32", name="lens")
    shorter = layers.Conv1D(4, 3)(layers.Embedding(7, 3)(ids))
    found = cases_of(keras.Model([ids, lens], AdditiveAttention(4)(shorter, shorter, shorter, lens)))
    assert "ids_length 1" in found.refused
    assert len(found.cases) > 10


def test_partial_samples_give_their_size_to_the_others():
    position = keras.Input((None,), dtype="int32", name="position")
    x = keras.Input((None, 4), name="x")
    model = keras.Model([position, x], x + keras.ops.one_hot(position, 4))
    assert cases_of(model, {"position": np.array([[0, 1, 2, 3, 0]])}).axes["x"] == ("batch", "position_length", 4)


def test_integers_for_an_embedding_and_lengths_at_once():
    ids = keras.Input((None,), dtype="int32", name="ids")
    lens = keras.Input((), dtype="int32", name="lens")
    embedded = layers.Embedding(9, 4)(ids) + keras.ops.expand_dims(layers.Embedding(3, 4)(lens), 1)
    found = cases_of(keras.Model([ids, lens], AdditiveAttention(4)(embedded, embedded, embedded, lens)))
    assert {int(n) for _, inputs, *_ in found.cases for n in inputs["lens"]} == {0, 1, 2}


def test_lengths_behind_a_cast_are_lengths():
    q, k, v, _ = qkvl()
    lens = keras.Input((), dtype="uint8", name="lens")
    model = keras.Model([q, k, v, lens], AdditiveAttention(4)(q, k, v, keras.ops.cast(lens, "int32")))
    assert "lengths zero" in [name for name, *_ in cases_of(model).cases]


def test_what_a_length_counts_is_told():
    assert cases_of(additive()).lengths == {"valid_lens": "keys_length"}
    assert cases_of(per_query_lengths()).lengths == {"valid_lens": "keys_length"}
    q, k, v, _ = qkvl()
    assert cases_of(keras.Model([q, k, v], AdditiveAttention(4)(q, k, v))).lengths == {}


def test_padding_is_poisoned_and_values_are_large():
    found = cases_of(additive())
    inputs = {name: inputs for name, inputs, *_ in found.cases}
    outputs = {case.name: case.outputs for case in found.cases}
    poisoned = inputs["poisoned padding"]
    assert np.isnan(poisoned["keys"]).any()
    assert np.isposinf(poisoned["values"]).any()
    for array in (poisoned["keys"], poisoned["values"]):
        padding = np.arange(array.shape[1]) >= poisoned["valid_lens"][:, None]
        np.testing.assert_array_equal((~(np.abs(array) < 1e29)).all(-1), padding)
    assert np.isfinite(outputs["poisoned padding"]["attention"]).all()
    assert np.abs(inputs["large values"]["keys"]).max() > 200


def test_padding_in_half_precision_is_poisoned_without_a_warning():
    q, k = keras.Input((None, 4), name="q"), keras.Input((None, 4), name="k", dtype="float16")
    lens = keras.Input((), dtype="int32", name="lens")
    found = cases_of(keras.Model([q, k, lens], DotProductAttention()(q, keras.ops.cast(k, "float32"), k, lens)))
    (poisoned,) = [inputs["k"] for name, inputs, *_ in found.cases if name == "poisoned padding"]
    assert poisoned.dtype == "float16"
    assert np.isnan(poisoned).any()
    assert np.isinf(poisoned).any()


def test_a_model_that_reads_its_padding_is_not_poisoned():
    q, k, v, lens = qkvl(values=8)
    out = AdditiveAttention(4)(q, k, v, lens)
    found = cases_of(keras.Model([q, k, v, lens], {"out": out, "mean": keras.ops.mean(k, axis=1)}))
    assert "poisoned padding" not in [name for name, *_ in found.cases]
    assert "poisoned padding" not in found.refused


class Counting(layers.Layer):
    """A layer with a side effect in Python."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.calls = 0

    def call(self, x):
        self.calls += 1
        return x * float(self.calls)


class Noisy(layers.Layer):
    """A layer that draws whether it trains or not."""

    def call(self, x):
        return x + keras.random.normal(keras.ops.shape(x))


@pytest.mark.parametrize("layer", [Counting, Noisy])
def test_a_layer_that_answers_differently_each_time_is_named(layer):
    x = keras.Input((4,), name="x")
    model = keras.Model(x, layers.Dense(3, name="after")(layer(name="unsteady")(layers.Dense(4, name="before")(x))))
    with pytest.raises(UnsupportedModelError, match="Layer `unsteady` gives other outputs when it is called again"):
        cases_of(model)


def test_large_samples_are_not_swept_to_larger_batches():
    def batches(length):
        apart = {"batch": 3, "queries": length, "keys": length + 1}
        axes = Axes(shapes={}, base={}, apart=apart, multiples={}, static={}, fixed={})
        return [sizes["batch"] for _, sizes, _ in _sweep(axes, True) if sizes]

    assert max(batches(16)) == 7
    assert max(batches(512)) == 3


def sizes_of_long(model):
    cases = cases_of(model)
    at = [case.name for case in cases.cases].index(LONG)
    return cases.sizes[at]


@pytest.fixture
def low_thresholds(monkeypatch):
    for kind, least in LARGE.items():
        monkeypatch.setitem(LARGE, kind, From(1, {"additive": 7 * 150, "flash": 375}.get(kind, min(least.pairs, 99))))


@pytest.mark.usefixtures("low_thresholds")
def test_sequences_are_long_enough_for_the_form_of_attention_for_large_sizes():
    assert sizes_of_long(additive()) == {"batch": 2, "queries_length": 13, "keys_length": 13}
    assert sizes_of_long(dict_inputs_and_outputs()) == {"batch": 2, "queries_length": 20, "keys_length": 20}
    x = keras.Input((None, 4), name="x")
    stock = keras.Model(x, layers.MultiHeadAttention(2, 2)(x, x))
    assert sizes_of_long(stock) == {"batch": 2, "x_length": 20}
    with_mask = keras.Input((None, None), dtype="bool", name="mask")
    masked = keras.Model([x, with_mask], layers.MultiHeadAttention(2, 2)(x, x, attention_mask=with_mask))
    assert sizes_of_long(masked) == {"batch": 2, "x_length": 20}


@pytest.mark.usefixtures("low_thresholds")
def test_long_sizes_are_multiples_of_what_they_must_be():
    x = keras.Input((None, 4), name="x")
    halved = layers.Reshape((-1, 12))(x)
    cases = cases_of(keras.Model(x, layers.Attention()([halved, halved])))
    at = [case.name for case in cases.cases].index(LONG)
    assert (cases.multiples, cases.sizes[at]["x_length"]) == ({"x_length": 3}, 21)


@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize("attends", [False, True])
def test_images_and_models_without_attention_have_no_long_case(attends):
    image = keras.Input((None, None, 4), name="image")
    pixels = layers.Conv2D(4, 1)(image)
    if attends:
        pixels = layers.Reshape((-1, 4))(pixels)
        pixels = layers.Attention()([pixels, pixels])
    else:
        pixels = layers.GlobalAveragePooling2D()(pixels)
    cases = cases_of(keras.Model(image, pixels))
    assert LONG not in {case.name for case in cases.cases} | set(cases.refused)


@pytest.mark.usefixtures("low_thresholds")
def test_a_long_case_that_is_too_much_for_a_bundle_is_left_out_and_said(monkeypatch):
    monkeypatch.setattr(golden_cases_module, "NUMBERS", 2 * 13 * 8 - 1)
    cases = cases_of(additive())
    assert LONG not in {case.name for case in cases.cases}
    assert cases.refused[LONG] == "not run: 208 numbers, too many for a bundle"


@pytest.mark.usefixtures("low_thresholds")
def test_a_model_of_fewer_positions_is_run_at_as_many_as_some_form_needs():
    class Places(layers.Layer):
        def build(self, shape):
            self.table = self.add_weight(shape=(12, shape[-1]))

        def call(self, x):
            return x + self.table[: keras.ops.shape(x)[1]]

    ids = keras.Input((None,), dtype="int32", name="ids")
    x = Places()(layers.Embedding(9, 4)(ids))
    model = keras.Model(ids, layers.MultiHeadAttention(2, 2)(x, x))
    found = cases_of(model)
    at = [case.name for case in found.cases].index(LONG)
    assert found.sizes[at] == {"batch": 2, "ids_length": 11}
    assert LONG not in found.refused


@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize("how", ["lengths", "mask", "ids"])
def test_some_long_cases_leave_no_key_out(how):
    x = keras.Input((None, 4), name="x")
    if how == "lengths":
        other = keras.Input((), dtype="int32", name="valid_lens")
        model = keras.Model([x, other], DotProductAttention()(x, x, x, other))
    elif how == "mask":
        other = keras.Input((None,), dtype="bool", name="mask")
        model = keras.Model([x, other], DotProductAttention()(x, x, x, keys_mask=other))
    else:
        other = keras.Input((None,), dtype="int32", name="ids")
        embedded = layers.Embedding(9, 4, mask_zero=True)(other)
        model = keras.Model(other, DotProductAttention()(embedded, embedded, embedded))
    found = cases_of(model)
    lengths = []
    for case, sizes in zip(found.cases, found.sizes, strict=True):
        if not case.name.startswith(EVERY_KEY):
            continue
        array = case.inputs[other.name]
        length = sizes["ids_length" if how == "ids" else "x_length"]
        assert (array >= length).all() if how == "lengths" else array.all()
        lengths.append(length)
    assert lengths == [20, 11]
