"""Golden cases: which axes go together is found by trying, sizes and lengths are swept, Keras's answers are kept."""

import keras
import numpy as np
import pytest
from export_models import additive, build_attention_inputs, dict_inputs_and_outputs, per_query_lengths
from golden_case_helpers import build_integer_input, build_sequence_input, generate_cases
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn_export import InputError
from keras_attn_export._golden_cases import edge_cases
from keras_attn_export._golden_cases.edge_cases import LONG_UNMASKED
from keras_attn_export._golden_cases.golden_cases import LONG
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold


@pytest.fixture(scope="module")
def found():
    return generate_cases(additive())


@pytest.mark.slow
def test_inputs_and_outputs_share_axis_names_and_lengths_count_keys(found):
    assert found.axes == {
        "queries": ("batch", "queries_length", 6),
        "keys": ("batch", "keys_length", 8),
        "values": ("batch", "keys_length", 5),
        "valid_lens": ("batch",),
    }
    assert found.name_output_axes("attention", (None, None, 5)) == ("batch", "queries_length", 5)
    of_queries = generate_cases(per_query_lengths())
    assert of_queries.axes["valid_lens"] == ("batch", "queries_length")
    assert found.counted_axes == of_queries.counted_axes == {"valid_lens": "keys_length"}


def test_output_axis_of_another_size_has_its_own_name():
    x = build_sequence_input()
    twice = generate_cases(keras.Model(x, ops.concatenate([x, x], axis=1)))
    (name,) = twice.cases[0][2]
    assert twice.name_output_axes(name, (None, None, 4)) == ("batch", f"{name}_axis_1", 4)


def test_samples_of_one_input_set_the_axes_of_others():
    position, x = build_integer_input("position", None), build_sequence_input()
    model = keras.Model([position, x], x + ops.one_hot(position, 4))
    assert generate_cases(model, {"position": np.array([[0, 1, 2, 3, 0]])}).axes["x"] == ("batch", "position_length", 4)


@pytest.mark.slow
def test_sizes_and_lengths_are_swept(found):
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


@pytest.mark.slow
def test_sizes_that_keras_refuses_are_reported():
    x = build_sequence_input()
    needs_four_steps = generate_cases(keras.Model(x, layers.Conv1D(2, 4)(x)))
    assert list(needs_four_steps.refused) == ["x_length 1"]
    assert len(needs_four_steps.cases) >= 5
    assert LONG not in [case.name for case in needs_four_steps.cases]  # it attends to nothing
    ids, lens = build_integer_input("ids", None), build_integer_input("lens")
    shorter = layers.Conv1D(4, 3)(layers.Embedding(7, 3)(ids))
    of_lengths = generate_cases(keras.Model([ids, lens], AdditiveAttention(4)(shorter, shorter, shorter, lens)))
    assert "ids_length 1" in of_lengths.refused
    assert len(of_lengths.cases) > 10


def test_models_of_long_inputs_have_long_cases():
    x = build_sequence_input(size=2)
    assert {case.inputs["x"].shape[1] for case in generate_cases(keras.Model(x, layers.Cropping1D(500)(x))).cases} >= {
        1024
    }


class Scale(layers.Layer):
    def build(self, shape):
        self.factor = self.add_weight(shape=(), name="factor", initializer="ones")

    def call(self, x):
        return x * self.factor


def test_weights_without_axes_are_not_the_widest():
    x = keras.Input((3,), name="x")
    outputs = Scale()(x)
    assert len(generate_cases(keras.Model(x, [outputs, ops.argmax(outputs, -1)])).cases) > 3


class Broken(layers.Layer):
    def call(self, x):
        if hasattr(x, "numpy"):
            raise ValueError("never on real tensors")
        return x


def test_model_that_never_runs_is_refused_with_its_error():
    a, b = keras.Input((3,), name="a"), build_sequence_input("b")
    with pytest.raises(InputError, match=r"Keras itself cannot run.*`a` \(3, 3\), [^:]*: never on real tensors"):
        generate_cases(keras.Model([a, b], [Broken()(a), b]))


def test_model_with_nan_outputs_asks_for_samples():
    q, k = build_sequence_input("q"), build_sequence_input("k")
    model = keras.Model([q, k], AdditiveAttention(4)(q, ops.log(k), k))
    message = r"returns NaN or an empty tensor on inputs of shapes `q` .* pass its arrays as `sample_inputs`"
    with pytest.raises(InputError, match=message):
        generate_cases(model)
    samples = {"q": np.ones((2, 4, 4)), "k": np.ones((2, 5, 4))}
    assert generate_cases(model, samples).axes["k"] == ("batch", "k_length", 4)


def test_samples_that_keras_cannot_run_are_refused():
    ids = build_integer_input("ids", None)
    samples = {"ids": np.r_[np.ones((9, 4), int), np.full((1, 4), 99)]}
    with pytest.raises(InputError, match="Keras itself cannot run the model on `sample_inputs`"):
        generate_cases(keras.Model(ids, layers.Embedding(7, 3)(ids)), samples)


@pytest.mark.slow
def test_integers_may_be_ids_and_lengths_at_once():
    ids, lens = build_integer_input("ids", None), build_integer_input("lens")
    embedded = layers.Embedding(9, 4)(ids) + ops.expand_dims(layers.Embedding(3, 4)(lens), 1)
    both = generate_cases(keras.Model([ids, lens], AdditiveAttention(4)(embedded, embedded, embedded, lens)))
    assert {int(n) for _, inputs, *_ in both.cases for n in inputs["lens"]} == {0, 1, 2}


@pytest.mark.slow
def test_padding_is_poisoned_and_one_case_has_large_values(found):
    cases = {case.name: case for case in found.cases}
    poisoned = cases["poisoned padding"].inputs
    assert np.isnan(poisoned["keys"]).any()
    assert np.isposinf(poisoned["values"]).any()
    for array in (poisoned["keys"], poisoned["values"]):
        padding = np.arange(array.shape[1]) >= poisoned["valid_lens"][:, None]
        np.testing.assert_array_equal((~(np.abs(array) < 1e29)).all(-1), padding)
    assert np.isfinite(cases["poisoned padding"].outputs["attention"]).all()
    assert np.abs(cases["large values"].inputs["keys"]).max() > 200


def test_padding_behind_casts_is_poisoned_in_half_precision():
    q, k, lens = (
        build_sequence_input("q"),
        keras.Input((None, 4), name="k", dtype="float16"),
        build_integer_input("lens", dtype="uint8"),
    )
    attended = DotProductAttention()(q, ops.cast(k, "float32"), k, ops.cast(lens, "int32"))
    half = {name: inputs["k"] for name, inputs, *_ in generate_cases(keras.Model([q, k, lens], attended)).cases}
    assert "lengths zero" in half
    assert half["poisoned padding"].dtype == "float16"
    assert np.isnan(half["poisoned padding"]).any()
    assert np.isinf(half["poisoned padding"]).any()


@pytest.mark.slow
def test_model_that_reads_its_padding_has_no_poisoned_case():
    q, k, v, lens = build_attention_inputs(values=8)
    out = AdditiveAttention(4)(q, k, v, lens)
    reading = generate_cases(keras.Model([q, k, v, lens], {"out": out, "mean": ops.mean(k, axis=1)}))
    assert "poisoned padding" not in {case.name for case in reading.cases} | set(reading.refused)


@pytest.fixture
def low_thresholds(monkeypatch):
    for kind, least in LARGE_THRESHOLDS.items():
        monkeypatch.setitem(
            LARGE_THRESHOLDS,
            kind,
            SizeThreshold(1, {"additive": 7 * 150, "flash": 375}.get(kind, min(least.min_pairs, 99))),
        )


def stock_with_a_mask():
    x, mask = build_sequence_input(), keras.Input((None, None), dtype="bool", name="mask")
    return keras.Model([x, mask], layers.MultiHeadAttention(2, 2)(x, x, attention_mask=mask))


def three_steps_in_one():
    x = build_sequence_input()
    joined = layers.Reshape((-1, 12))(x)
    return keras.Model(x, layers.Attention()([joined, joined]))


def few_positions():
    ids = build_integer_input("ids", None)
    # as many as some form of attention needs, and fewer than others do
    positions = layers.Lambda(lambda x: x + ops.ones((12, 4))[: ops.shape(x)[1]])
    x = positions(layers.Embedding(9, 4)(ids))
    return keras.Model(ids, layers.MultiHeadAttention(2, 2)(x, x))


@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (additive, {"queries_length": 13, "keys_length": 13}),
        (dict_inputs_and_outputs, {"queries_length": 20, "keys_length": 20}),
        (stock_with_a_mask, {"x_length": 20}),
        (three_steps_in_one, {"x_length": 21}),
        (few_positions, {"ids_length": 11}),
    ],
)
def test_long_case_reaches_the_form_of_attention_for_large_sizes(build, sizes):
    long = generate_cases(build())
    at = [case.name for case in long.cases].index(LONG)
    assert long.sizes[at] == {"batch": 2, **sizes}
    assert long.multiples == ({"x_length": 3} if build is three_steps_in_one else {})
    assert LONG not in long.refused


@pytest.mark.usefixtures("low_thresholds")
def test_long_case_too_large_for_a_bundle_is_reported(monkeypatch):
    monkeypatch.setattr(edge_cases, "MAX_LONG_ELEMENTS", 2 * 13 * 8 - 1)
    cases = generate_cases(additive())
    assert LONG not in {case.name for case in cases.cases}
    assert cases.refused[LONG] == "not run: 208 numbers, too many for a bundle"


@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize("how", ["lengths", "mask", "ids"])
def test_two_long_cases_have_no_masked_keys(how):
    other = (
        build_integer_input(how)
        if how == "lengths"
        else build_integer_input(how, None, dtype="bool" if how == "mask" else "int32")
    )
    x = layers.Embedding(9, 4, mask_zero=True)(other) if how == "ids" else build_sequence_input()
    given = {"lengths": {"valid_lens": other}, "mask": {"keys_mask": other}, "ids": {}}[how]
    cases = generate_cases(keras.Model([x, other] if given else other, DotProductAttention()(x, x, x, **given)))
    found = zip(cases.cases, cases.sizes, strict=True)
    every = [(case.inputs[how], sizes) for case, sizes in found if case.name.startswith(LONG_UNMASKED)]
    lengths = [sizes["x_length" if given else "ids_length"] for _, sizes in every]
    assert lengths == [20, 11]
    for (array, _), length in zip(every, lengths, strict=True):
        assert (array >= length).all() if how == "lengths" else array.all()
