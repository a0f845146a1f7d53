"""Inputs are drawn by what they feed, or made from samples; anything else is asked for by name."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import additive, dict_inputs_and_outputs, nested_model
from golden_case_helpers import (
    build_integer_input,
    build_sequence_input,
    generate_cases,
    measure_output_limits,
    select_finite_cases,
)
from keras import layers, ops

from keras_attn import AdditiveAttention, AttentionCell, AttentionRNN, DotProductAttention
from keras_attn_export import InputError
from keras_attn_export._golden_cases.edge_cases import draw_close_choices, move_input_padding, poison_padding
from keras_attn_export._golden_cases.input_generators import LENGTH_PATTERNS, InputGenerator, choose_generators
from keras_attn_export._golden_cases.random_inputs import move_padding
from keras_attn_export._golden_cases.sample_inputs import flatten_samples
from keras_attn_export._golden_cases.trial_runs import InputSampler
from keras_attn_export._signature.signature import build_signature


def ids_and(outputs, **options):
    """A model of one sequence of ids."""
    ids = build_integer_input("ids", None, **options)
    return keras.Model(ids, outputs(ids))


def sampler_of(model, samples=None):
    signature = build_signature(model, samples)
    return InputSampler(signature.inputs, choose_generators(signature, flatten_samples(signature)))


def drawn_by(sampler, *pattern, **shapes):
    """What is drawn for the first axes of these sizes."""
    sizes = {(name, axis): size for name, shape in shapes.items() for axis, size in enumerate(shape)}
    return sampler.draw(sizes, *pattern)


def qkvl_shapes(batch, queries, keys):
    return {"queries": (batch, queries), "keys": (batch, keys), "values": (batch, keys), "valid_lens": (batch,)}


def test_floats_are_drawn_from_a_normal_distribution():
    drawn = drawn_by(sampler_of(additive()), **qkvl_shapes(50, 20, 30))
    assert drawn["keys"].dtype == np.float32
    assert abs(drawn["keys"].mean()) < 0.02
    assert abs(drawn["keys"].std() - 1) < 0.02


@pytest.mark.parametrize("build", [additive, nested_model])
def test_lengths_are_drawn_up_to_the_number_of_keys(build):
    sampler = sampler_of(build())
    for pattern, lengths in LENGTH_PATTERNS.items():
        drawn = drawn_by(sampler, pattern, **qkvl_shapes(7, 3, 11))
        np.testing.assert_array_equal(drawn["valid_lens"], np.resize(lengths(11), 7))


class Block(layers.Layer):
    """A layer of a user, with attention inside."""

    def call(self, things, valid_lens):
        return DotProductAttention()(things, things, things, valid_lens)


@pytest.mark.slow
def test_lengths_count_the_keys_that_the_layer_reads():
    ids, lens = build_integer_input("ids", None), build_integer_input("lens")
    halved = layers.MaxPooling1D(2)(layers.Embedding(9, 4)(ids))
    sampler = sampler_of(keras.Model([ids, lens], DotProductAttention()(halved, halved, halved, lens)))
    np.testing.assert_array_equal(drawn_by(sampler, "full", ids=(2, 10), lens=(2,))["lens"], [5, 5])
    x, other, lens = build_sequence_input("x", 3), build_sequence_input("other", 3), build_integer_input("lens")
    sampler = sampler_of(keras.Model([x, other, lens], [Block()(x, valid_lens=lens), other]))
    np.testing.assert_array_equal(drawn_by(sampler, "full", x=(2, 5), other=(2, 9), lens=(2,))["lens"], [5, 5])


def test_lengths_of_memory_and_inputs_count_their_own_steps():
    inputs, memory = build_sequence_input("inputs", 3), build_sequence_input("memory", 5)
    seen, read = build_integer_input("seen"), build_integer_input("read")
    decode = AttentionRNN(AttentionCell(layers.GRUCell(4), AdditiveAttention(4)))
    model = keras.Model([inputs, memory, seen, read], decode(inputs, memory, seen, input_lens=read))
    sampler = sampler_of(model)
    shapes = {"inputs": (2, 6), "memory": (2, 9), "seen": (2,), "read": (2,)}
    drawn = drawn_by(sampler, "full", **shapes)
    assert (drawn["seen"].tolist(), drawn["read"].tolist()) == ([9, 9], [6, 6])
    generators = choose_generators(build_signature(model), {})
    changed = poison_padding(generators, drawn_by(sampler, **shapes))
    assert np.isnan(changed["memory"]).any()
    assert np.isnan(changed["inputs"]).any()


def test_integers_named_valid_lens_are_drawn_as_lengths():
    ids, lens = build_integer_input("ids", None), build_integer_input("valid_lens")
    seen = ops.cumsum(ops.ones_like(ids), axis=1) <= ops.expand_dims(lens, 1)
    model = keras.Model([ids, lens], layers.GRU(3)(layers.Embedding(9, 4)(ids), mask=seen))
    for given, expected in ((None, [10, 10]), ({"valid_lens": np.array([3, 4])}, [3, 4])):
        drawn = drawn_by(sampler_of(model, given), "full", ids=(2, 10), valid_lens=(2,))
        assert drawn["valid_lens"].tolist() == expected


class Lookup(layers.Layer):
    """A lookup within a layer, with positions added, as in most models of text."""

    def __init__(self, prepare=lambda x: x, rows=11, **kwargs):
        super().__init__(**kwargs)
        self.prepare = prepare
        self.table, self.positions = layers.Embedding(rows, 4), layers.Embedding(40, 4)

    def call(self, x):
        found = self.table(self.prepare(x))
        return found + self.positions(ops.arange(ops.shape(found)[1]))


class InAGraph(layers.Layer):
    """Lookups that cannot be watched."""

    def __init__(self, *sizes):
        super().__init__()
        self.tables = [layers.Embedding(size, 3) for size in sizes]

    def build(self, shape):
        for table in self.tables:
            table.build()

    def call(self, x):
        return tf.function(lambda x: sum(table(x) for table in self.tables))(x)


def and_last_product(x):
    table = layers.ReversibleEmbedding(13, 4)
    return table(table(x) * 50.0, reverse=True)


def ids_of(model, name="ids"):
    return choose_generators(build_signature(model), {})[name].id_range


LOOKUPS = {
    "unchanged": (Lookup(), 0, 10),
    "cast": (Lookup(lambda x: ops.cast(x, "int64")), 0, 10),
    "sliced": (Lookup(lambda x: ops.reshape(x[:, 1:], (-1, 5))), 0, 10),
    "shifted": (Lookup(lambda x: x + 3), -3, 7),
    "reversed": (Lookup(lambda x: 10 - x), 0, 10),
    "replaced": (Lookup(lambda x: ops.where(x == 0, 5, x)), 0, 10),
    "remainder": (Lookup(lambda x: x % 11), 0, 10),
    "two tables": (lambda x: layers.Embedding(20, 4)(x) + Lookup(rows=5)(x), 0, 4),
    "nested": (lambda x: keras.Sequential([layers.Embedding(9, 3), layers.Dense(4)])(x), 0, 8),
    "an argument that the layer lacks": (lambda x: layers.Embedding(5, 2)(x, training=False), 0, 4),
    "also the last product": (and_last_product, 0, 12),
    "not watched": (InAGraph(6), 0, 5),
}


@pytest.mark.parametrize(("outputs", "low", "high"), LOOKUPS.values(), ids=LOOKUPS)
def test_ids_are_drawn_within_the_rows_of_the_table(outputs, low, high):
    found = ids_of(ids_and(outputs))
    assert (found.low, found.high) == (low, high)
    if isinstance(outputs, Lookup):
        assert "call" not in vars(outputs.table)  # the layer is unchanged


def test_two_tables_in_a_graph_ask_for_samples():
    with pytest.raises(InputError, match="Cannot choose integers for input `ids`"):
        ids_of(ids_and(InAGraph(6, 8)))


@pytest.mark.parametrize("layer", [layers.Embedding(7, 3), Lookup(rows=7)])
def test_floats_that_are_looked_up_are_ids_without_rounding(layer):
    model = ids_and(lambda ids: {"out": layer(ids)}, dtype="float32")
    drawn = drawn_by(sampler_of(model), ids=(40, 10))["ids"]
    assert drawn.dtype == np.float32
    assert set(np.unique(drawn)) == set(range(7))
    limits, _ = measure_output_limits(model, {"ids": np.arange(7, dtype="float32").reshape(1, 7)})
    assert limits.max() < 1e-6


def test_floats_that_become_bucket_numbers_are_not_ids():
    x = keras.Input((3,), name="x")
    bucket = layers.Discretization([-2.0, -1.0, 0.0, 1.0, 2.0])(x)
    assert ids_of(keras.Model(x, layers.Embedding(7, 2)(bucket)), "x") is None


def test_positions_that_start_at_an_input_stay_within_the_table():
    start, x = build_integer_input("start"), keras.Input((None, 4), name="x")

    class Positions(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(100, 4)

        def call(self, x, start):
            return x + self.table(start[:, None] + ops.arange(ops.shape(x)[1]))

    assert not generate_cases(keras.Model([x, start], Positions()(x, start))).refused


def test_masks_and_segments_are_drawn_as_zeros_and_ones():
    names = ("ids", "padding_mask", "segment_ids")
    ids, mask, segments = (build_integer_input(name, None) for name in names)
    hidden = Lookup()(ids * mask) * ops.cast(mask, "float32")[..., None]
    model = keras.Model([ids, mask, segments], hidden + ops.one_hot(segments, 4))
    drawn = drawn_by(sampler_of(model), **dict.fromkeys(names, (8, 8)))
    assert set(np.unique(drawn["segment_ids"])) == {0, 1}
    lengths = drawn["padding_mask"].sum(1)
    np.testing.assert_array_equal(drawn["padding_mask"], np.arange(8) < lengths[:, None])
    assert sorted(lengths)[3:] == [sorted(lengths)[3], 8, 8, 8, 8]
    assert min(lengths) >= 1
    assert max(drawn["ids"].ravel()) == 10


def test_float_masks_stay_zeros_and_ones_in_all_cases():
    x, mask = keras.Input((None, 3), name="x"), keras.Input((None,), name="attention_mask")
    image = keras.Input((None, 3), name="masked_image")
    scores = ops.sum(x + image, -1) + (1 - mask) * -1e9  # which anything but 0 and 1 would decide alone
    found = generate_cases(keras.Model([x, mask, image], ops.softmax(scores)))
    drawn = {case.name: case.inputs for case in found.cases}
    assert {"large values", "padding elsewhere"} <= set(drawn)
    assert {*np.concatenate([case["attention_mask"].ravel() for case in drawn.values()])} == {0, 1}
    assert np.abs(drawn["large values"]["masked_image"]).max() > 100


def test_integers_passed_as_attention_mask_are_drawn_as_a_mask():
    x, seen = keras.Input((None, 4), name="x"), build_integer_input("seen", None, None)
    heads = layers.MultiHeadAttention(2, 3)(x, x, attention_mask=seen)
    drawn = drawn_by(sampler_of(keras.Model([x, seen], heads)), x=(2, 9), seen=(2, 9, 9))["seen"]
    assert set(np.unique(drawn)) == {0, 1}
    assert drawn[..., 0].all()  # nowhere is nothing seen


def test_masked_steps_are_last_and_elsewhere_in_one_case():
    x, ids = keras.Input((None, 3), name="x"), build_integer_input("ids", None)
    mean = layers.GlobalAveragePooling1D()
    masked = mean(layers.Masking(-1.0)(x)) + mean(layers.Embedding(5, 3, mask_zero=True)(ids))
    found = generate_cases(keras.Model([x, ids], masked))
    skipped = {case.name: ((case.inputs["x"] == -1).all(-1), case.inputs["ids"] == 0) for case in found.cases}
    for steps in skipped["axes apart"]:
        assert steps.any()
        assert not steps.all(1).any()
        assert (np.diff(steps.astype(int), axis=1) >= 0).all()
    assert all((np.diff(steps.astype(int), axis=1) < 0).any() for steps in skipped["padding elsewhere"])


def test_padding_moves_in_the_order_of_the_inputs():
    """In each process alike, although a set of strings has another order in each."""
    generators = {f"x{number}": InputGenerator(draw=None, padding=0) for number in range(8)}
    inputs = {name: np.random.default_rng(5).integers(0, 3, (6, 5)) for name in generators}
    rng = np.random.default_rng(0)
    expected = {name: move_padding(array, rng) for name, array in inputs.items()}
    np.testing.assert_equal(move_input_padding(generators, inputs), expected)


def test_every_id_is_drawn_and_unmasked():
    found = generate_cases(ids_and(Lookup(rows=700)))
    *others, last = (case.inputs["ids"] for case in select_finite_cases(found))
    assert select_finite_cases(found)[-1].name == "every id"
    before = np.concatenate([array.ravel() for array in others])
    assert len(set(before)) == len(before)
    assert set(before) | set(last.ravel()) == set(range(700))
    ids, mask = build_integer_input("ids", None), build_integer_input("padding_mask", None)
    hidden = Lookup()(ids) * ops.cast(mask, "float32")[..., None]
    last = select_finite_cases(generate_cases(keras.Model([ids, mask], hidden)))[-1].inputs
    assert last["padding_mask"].all()
    assert set(last["ids"].ravel()) == set(range(11))


def test_cases_of_choices_have_rows_with_close_scores():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(6, 4))

    def label_of(inputs, bias=0.0):
        return {"label": (inputs["x"] @ table + [bias, 0, 0, 0]).argmax(-1)}

    def draw(rows):
        return {"x": rng.normal(size=(rows, 6)).astype("float32")}

    def shown(inputs):
        return (label_of(inputs)["label"] != label_of(inputs, 0.02)["label"]).mean()

    close = draw_close_choices({"x": InputGenerator(draw=None)}, 4096, draw, label_of)
    assert close["x"].shape == (4096, 6)
    assert shown(close) > 2 * shown(draw(2**15))


def test_static_model_has_several_cases():
    x = keras.Input(batch_shape=(2, 3), name="x")
    found = generate_cases(keras.Model(x, layers.Dense(2)(x)))
    assert len({case.inputs["x"].tobytes() for case in found.cases}) >= 5


def test_unknown_integers_ask_for_samples_by_name():
    digit, place = build_integer_input("digit"), build_integer_input("place", None, dtype="int64")
    outputs = [ops.one_hot(digit, 5), ops.one_hot(place, 3)]
    with pytest.raises(InputError) as caught:
        sampler_of(keras.Model([digit, place], outputs))
    said = str(caught.value)
    assert "`digit` (int32, shape (None,), used by `" in said
    assert "`place` (int64" in said
    assert "sample_inputs={'digit': ..., 'place': ...}" in said


@pytest.mark.parametrize(("dtype", "numbers"), [("uint8", range(256)), ("int8", range(-128, 128)), ("bool", range(2))])
def test_bytes_and_booleans_take_all_values(dtype, numbers):
    drawn = drawn_by(
        sampler_of(keras.Model(x := build_integer_input("x", None, dtype=dtype), ops.cast(x, "float32"))), x=(20, 400)
    )
    assert np.unique(drawn["x"]).tolist() == [*numbers]
    assert dtype != "bool" or 0.3 < drawn["x"].mean() < 0.7


def test_samples_are_cropped_and_repeated_to_the_batch():
    digit = build_integer_input("digit")
    sampler = sampler_of(keras.Model(digit, ops.one_hot(digit, 5)), {"digit": np.array([4, 1, 3])})
    np.testing.assert_array_equal(drawn_by(sampler, digit=(5,))["digit"], [4, 1, 3, 4, 1])
    np.testing.assert_array_equal(drawn_by(sampler, digit=(2,))["digit"], [4, 1])


SAMPLES = {
    "queries": np.ones((2, 3, 6)),
    "keys": np.ones((2, 5, 6)),
    "values": np.ones((2, 5, 5)),
    "valid_lens": np.array([1, 2]),
}


def test_samples_are_cast_to_the_dtypes_of_the_model():
    flat = flatten_samples(build_signature(dict_inputs_and_outputs(), SAMPLES))
    dtypes = {**dict.fromkeys(("queries", "keys", "values"), "float32"), "valid_lens": "int32"}
    assert {name: str(array.dtype) for name, array in flat.items()} == dtypes


def test_samples_are_matched_by_position_or_name():
    x = keras.Input((2,))
    model, array = keras.Model(x, layers.Dense(3)(x)), np.ones((4, 2), "float32")
    (name,) = (spec.name for spec in build_signature(model).inputs)
    for samples in (array, [array], {name: array}, {x.name: array}):
        assert flatten_samples(build_signature(model, samples))[name].shape == (4, 2)
    with pytest.raises(InputError, match=r"must be a mapping from names .* Received: 2 arrays"):
        build_signature(model, [array, array])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"key": np.ones((2, 5, 6))}, r"names \['key'\], which .* not take. It takes \['keys', 'queries'"),
        ({"valid_lens": np.array([1.0, 2.0])}, "`valid_lens` must be of dtype int32. Received: float64"),
        ({"keys": np.ones((2, 5, 7))}, r"`keys` must have shape .* Received: \(2, 5, 7\)"),
        ({"keys": np.ones((2, 5))}, "`keys` must have shape"),
        ({"keys": np.ones((2, 0, 6))}, r"one element along each axis\. Received: \(2, 0, 6\)\.$"),
        ({"keys": np.ones((3, 5, 6))}, r"agree in their batch axis. Received batches of \[2, 3\]"),
        ({"valid_lens": np.array([1, 2**40])}, "`valid_lens` holds integers that do not fit int32"),
    ],
)
def test_samples_of_wrong_names_shapes_or_dtypes_are_refused(changed, message):
    signature = build_signature(dict_inputs_and_outputs(), SAMPLES | changed)
    with pytest.raises(InputError, match=message):
        flatten_samples(signature)
