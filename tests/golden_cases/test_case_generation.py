"""Generation of golden cases: tied axes, swept sizes and lengths, poisoned padding, large values and long cases."""

import keras
import numpy as np
import pytest
from export_models import build_additive, build_attention_inputs, build_dict_inputs_and_outputs, build_per_query_lengths
from golden_case_helpers import build_integer_input, build_sequence_input, generate_cases
from keras import layers, ops

from keras_attn import AdditiveAttention, DotProductAttention
from keras_attn_export import InputError
from keras_attn_export._golden_cases import edge_cases
from keras_attn_export._golden_cases.edge_cases import LONG_UNMASKED
from keras_attn_export._golden_cases.golden_cases import LONG
from keras_attn_export._thresholds import LARGE_THRESHOLDS, SizeThreshold


@pytest.fixture(scope="module")
def additive_cases():
    return generate_cases(build_additive())


@pytest.mark.slow
def test_inputs_and_outputs_share_axis_names_and_lengths_count_keys(additive_cases):
    assert additive_cases.axes == {
        "queries": ("batch", "queries_length", 6),
        "keys": ("batch", "keys_length", 8),
        "values": ("batch", "keys_length", 5),
        "valid_lens": ("batch",),
    }
    assert additive_cases.name_output_axes("attention", (None, None, 5)) == ("batch", "queries_length", 5)
    golden = generate_cases(build_per_query_lengths())
    assert golden.axes["valid_lens"] == ("batch", "queries_length")
    assert additive_cases.counted_axes == golden.counted_axes == {"valid_lens": "keys_length"}


def test_output_axis_of_another_size_has_its_own_name():
    x = build_sequence_input()
    golden = generate_cases(keras.Model(x, ops.concatenate([x, x], axis=1)))
    (name,) = golden.cases[0].outputs
    assert golden.name_output_axes(name, (None, None, 4)) == ("batch", f"{name}_axis_1", 4)


def test_samples_of_one_input_name_the_axes_of_other_inputs():
    position, x = build_integer_input("position", None), build_sequence_input()
    model = keras.Model([position, x], x + ops.one_hot(position, 4))
    assert generate_cases(model, {"position": np.array([[0, 1, 2, 3, 0]])}).axes["x"] == ("batch", "position_length", 4)


@pytest.mark.slow
def test_sizes_and_lengths_are_swept(additive_cases):
    batches = {inputs["keys"].shape[0] for _, inputs, *_ in additive_cases.cases}
    lengths = {inputs["keys"].shape[1] for _, inputs, *_ in additive_cases.cases}
    assert {1, 2} < batches
    assert 1 in lengths
    assert len(lengths) >= 4
    margins = {int(n) - inputs["keys"].shape[1] for _, inputs, *_ in additive_cases.cases for n in inputs["valid_lens"]}
    counts = {int(n) for _, inputs, *_ in additive_cases.cases for n in inputs["valid_lens"]}
    assert {0, 1} < counts
    assert min(counts) < 0
    assert {0, 3} < margins


@pytest.mark.slow
def test_sizes_that_keras_refuses_are_reported():
    x = build_sequence_input()
    convolution = generate_cases(keras.Model(x, layers.Conv1D(2, 4)(x)))
    assert list(convolution.refusals) == ["x_length 1"]
    assert len(convolution.cases) >= 5
    assert LONG not in [case.name for case in convolution.cases], "a model without attention has no large form"
    ids, lens = build_integer_input("ids", None), build_integer_input("lens")
    hidden = layers.Conv1D(4, 3)(layers.Embedding(7, 3)(ids))
    attention = generate_cases(keras.Model([ids, lens], AdditiveAttention(4)(hidden, hidden, hidden, lens)))
    assert "ids_length 1" in attention.refusals
    assert len(attention.cases) > 10


def test_models_of_long_inputs_have_long_cases():
    x = build_sequence_input(num_features=2)
    cases = generate_cases(keras.Model(x, layers.Cropping1D(500)(x))).cases
    assert 1024 in {case.inputs["x"].shape[1] for case in cases}


class Scale(layers.Layer):
    def build(self, shape):
        self.factor = self.add_weight(shape=(), name="factor", initializer="ones")

    def call(self, x):
        return x * self.factor


def test_scalar_weights_do_not_count_as_the_widest():
    x = keras.Input((3,), name="x")
    outputs = Scale()(x)
    assert len(generate_cases(keras.Model(x, [outputs, ops.argmax(outputs, -1)])).cases) > 3


class EagerFailure(layers.Layer):
    def call(self, x):
        if hasattr(x, "numpy"):
            raise ValueError("never on real tensors")
        return x


def test_model_that_never_runs_is_refused_with_its_error():
    a, b = keras.Input((3,), name="a"), build_sequence_input("b")
    with pytest.raises(InputError, match=r"Keras itself cannot run.*`a` \(3, 3\), [^:]*: never on real tensors"):
        generate_cases(keras.Model([a, b], [EagerFailure()(a), b]))


def test_model_with_nan_outputs_requires_samples():
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
def test_integers_that_are_ids_and_lengths_stay_within_both_ranges():
    ids, lens = build_integer_input("ids", None), build_integer_input("lens")
    embedded = layers.Embedding(9, 4)(ids) + ops.expand_dims(layers.Embedding(3, 4)(lens), 1)
    golden = generate_cases(keras.Model([ids, lens], AdditiveAttention(4)(embedded, embedded, embedded, lens)))
    assert {int(n) for _, inputs, *_ in golden.cases for n in inputs["lens"]} == {0, 1, 2}


@pytest.mark.slow
def test_padding_is_poisoned_and_one_case_has_large_values(additive_cases):
    cases = {case.name: case for case in additive_cases.cases}
    poisoned = cases["poisoned padding"].inputs
    assert np.isnan(poisoned["keys"]).any()
    assert np.isposinf(poisoned["values"]).any()
    for array in (poisoned["keys"], poisoned["values"]):
        padding = np.arange(array.shape[1]) >= poisoned["valid_lens"][:, None]
        np.testing.assert_array_equal((~(np.abs(array) < 1e29)).all(-1), padding)
    assert np.isfinite(cases["poisoned padding"].outputs["attention"]).all()
    assert np.abs(cases["large values"].inputs["keys"]).max() > 200


def test_padding_of_cast_keys_is_poisoned_in_half_precision():
    q, lens = build_sequence_input("q"), build_integer_input("lens", dtype="uint8")
    k = keras.Input((None, 4), name="k", dtype="float16")
    context = DotProductAttention()(q, ops.cast(k, "float32"), k, ops.cast(lens, "int32"))
    keys = {name: inputs["k"] for name, inputs, *_ in generate_cases(keras.Model([q, k, lens], context)).cases}
    assert "lengths zero" in keys
    assert keys["poisoned padding"].dtype == "float16"
    assert np.isnan(keys["poisoned padding"]).any()
    assert np.isinf(keys["poisoned padding"]).any()


@pytest.mark.slow
def test_model_that_reads_its_padding_has_no_poisoned_case():
    q, k, v, lens = build_attention_inputs(values=8)
    out = AdditiveAttention(4)(q, k, v, lens)
    golden = generate_cases(keras.Model([q, k, v, lens], {"out": out, "mean": ops.mean(k, axis=1)}))
    assert "poisoned padding" not in {case.name for case in golden.cases} | set(golden.refusals)


@pytest.fixture
def low_thresholds(monkeypatch):
    """Thresholds that select the large form of attention at 11 to 21 positions."""
    for form, threshold in LARGE_THRESHOLDS.items():
        min_pairs = {"additive": 7 * 150, "flash": 375}.get(form, min(threshold.min_pairs, 99))
        monkeypatch.setitem(LARGE_THRESHOLDS, form, SizeThreshold(1, min_pairs))


def build_masked_model():
    x, mask = build_sequence_input(), keras.Input((None, None), dtype="bool", name="mask")
    return keras.Model([x, mask], layers.MultiHeadAttention(2, 2)(x, x, attention_mask=mask))


def build_reshaping_model():
    """Return a model that joins three positions to one before its attention."""
    x = build_sequence_input()
    triples = layers.Reshape((-1, 12))(x)
    return keras.Model(x, layers.Attention()([triples, triples]))


def build_short_model():
    ids = build_integer_input("ids", None)
    # Twelve positions reach the threshold of 99 pairs, but not that of 375.
    positions = layers.Lambda(lambda x: x + ops.ones((12, 4))[: ops.shape(x)[1]])
    x = positions(layers.Embedding(9, 4)(ids))
    return keras.Model(ids, layers.MultiHeadAttention(2, 2)(x, x))


@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize(
    ("build", "sizes"),
    [
        (build_additive, {"queries_length": 13, "keys_length": 13}),
        (build_dict_inputs_and_outputs, {"queries_length": 20, "keys_length": 20}),
        (build_masked_model, {"x_length": 20}),
        (build_reshaping_model, {"x_length": 21}),
        (build_short_model, {"ids_length": 11}),
    ],
)
def test_long_case_reaches_the_form_of_attention_for_large_sizes(build, sizes):
    golden = generate_cases(build())
    index = [case.name for case in golden.cases].index(LONG)
    assert golden.sizes[index] == {"batch": 2, **sizes}
    assert golden.multiples == ({"x_length": 3} if build is build_reshaping_model else {})
    assert LONG not in golden.refusals


@pytest.mark.usefixtures("low_thresholds")
def test_long_case_too_large_for_a_bundle_is_reported(monkeypatch):
    monkeypatch.setattr(edge_cases, "MAX_LONG_ELEMENTS", 2 * 13 * 8 - 1)
    golden = generate_cases(build_additive())
    assert LONG not in {case.name for case in golden.cases}
    assert golden.refusals[LONG] == "not run: 208 numbers, too many for a bundle"


@pytest.mark.usefixtures("low_thresholds")
@pytest.mark.parametrize("source", ["lengths", "mask", "ids"])
def test_two_long_cases_have_no_masked_keys(source):
    shape, dtype = () if source == "lengths" else (None,), "bool" if source == "mask" else "int32"
    mask = build_integer_input(source, *shape, dtype=dtype)
    x = layers.Embedding(9, 4, mask_zero=True)(mask) if source == "ids" else build_sequence_input()
    masks = {"lengths": {"valid_lens": mask}, "mask": {"keys_mask": mask}, "ids": {}}[source]
    golden = generate_cases(keras.Model([x, mask] if masks else mask, DotProductAttention()(x, x, x, **masks)))
    cases = zip(golden.cases, golden.sizes, strict=True)
    long_cases = [(case.inputs[source], sizes) for case, sizes in cases if case.name.startswith(LONG_UNMASKED)]
    lengths = [sizes["x_length" if masks else "ids_length"] for _, sizes in long_cases]
    assert lengths == [20, 11]
    for (array, _), length in zip(long_cases, lengths, strict=True):
        assert (array >= length).all() if source == "lengths" else array.all()
