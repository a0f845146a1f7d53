"""Inputs are drawn by what they feed, or made from samples; anything else is asked for by name."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import additive, dict_inputs_and_outputs, nested_model
from keras import layers

from keras_attn import AdditiveAttention, AttentionCell, AttentionRNN
from keras_attn_export import InputError
from keras_attn_export._model.draws import Deck, Ids
from keras_attn_export._model.golden_cases import golden_cases
from keras_attn_export._model.input_sources import LENGTHS, flat_samples, sources
from keras_attn_export._model.rounding import with_rounding
from keras_attn_export._model.signature import model_signature
from keras_attn_export._model.trial_runs import Drawer, outputs_of
from keras_attn_export._standalone.verify import Case


def drawer_of(model, samples=None):
    signature = model_signature(model, samples)
    return Drawer(model, signature, sources(model, signature, flat_samples(signature, samples)))


def qkvl_sizes(batch, queries, keys):
    return {
        ("queries", 0): batch,
        ("queries", 1): queries,
        ("keys", 0): batch,
        ("keys", 1): keys,
        ("values", 0): batch,
        ("values", 1): keys,
        ("valid_lens", 0): batch,
    }


def test_floats_are_normal():
    drawn = drawer_of(additive()).inputs(qkvl_sizes(50, 20, 30))
    assert drawn["keys"].dtype == np.float32
    assert abs(drawn["keys"].mean()) < 0.02
    assert abs(drawn["keys"].std() - 1) < 0.02


@pytest.mark.parametrize("pattern", LENGTHS)
@pytest.mark.parametrize("build", [additive, nested_model])
def test_lengths_follow_the_number_of_keys(build, pattern):
    drawn = drawer_of(build()).inputs(qkvl_sizes(7, 3, 11), pattern)
    np.testing.assert_array_equal(drawn["valid_lens"], np.resize(LENGTHS[pattern](11), 7))


def test_the_length_patterns_cover_the_contract():
    values = {value for pattern in LENGTHS.values() for value in pattern(11)}
    assert {0, 1, 11} < values
    assert min(values) < 0
    assert any(set(pattern(11)) == {0} for pattern in LENGTHS.values())  # no example has a key
    assert max(values) > 11


def test_lengths_count_the_keys_the_layer_sees():
    ids = keras.Input((None,), dtype="int32", name="ids")
    lens = keras.Input((), dtype="int32", name="lens")
    halved = layers.MaxPooling1D(2)(layers.Embedding(9, 4)(ids))
    model = keras.Model([ids, lens], AdditiveAttention(3)(halved, halved, halved, lens))
    drawn = drawer_of(model).inputs({("ids", 0): 2, ("ids", 1): 10, ("lens", 0): 2}, "full")
    np.testing.assert_array_equal(drawn["lens"], [5, 5])


def test_lengths_of_a_memory_and_of_inputs_are_told_apart():
    inputs, memory = keras.Input((None, 3), name="inputs"), keras.Input((None, 5), name="memory")
    seen, read = (keras.Input((), dtype="int32", name=name) for name in ("seen", "read"))
    decode = AttentionRNN(AttentionCell(layers.GRUCell(4), AdditiveAttention(4)))
    model = keras.Model([inputs, memory, seen, read], decode(inputs, memory, seen, input_lens=read))
    sizes = {("inputs", 0): 2, ("inputs", 1): 6, ("memory", 0): 2, ("memory", 1): 9, ("seen", 0): 2, ("read", 0): 2}
    drawer = drawer_of(model)
    drawn = drawer.inputs(sizes, "full")
    assert (drawn["seen"].tolist(), drawn["read"].tolist()) == ([9, 9], [6, 6])
    poisoned = drawer.poisoned(drawer.inputs(sizes))
    assert np.isnan(poisoned["memory"]).any()
    assert np.isnan(poisoned["inputs"]).any()


def test_integers_that_are_called_lengths_are_drawn_as_such():
    ids = keras.Input((None,), dtype="int32", name="ids")
    lens = keras.Input((), dtype="int32", name="valid_lens")
    seen = keras.ops.cumsum(keras.ops.ones_like(ids), axis=1) <= keras.ops.expand_dims(lens, 1)
    model = keras.Model([ids, lens], layers.GRU(3)(layers.Embedding(9, 4)(ids), mask=seen))
    sizes = {("ids", 0): 2, ("ids", 1): 10, ("valid_lens", 0): 2}
    assert drawer_of(model).inputs(sizes, "full")["valid_lens"].tolist() == [10, 10]
    given = {"valid_lens": np.array([3, 4])}
    assert drawer_of(model, given).inputs(sizes, "full")["valid_lens"].tolist() == [3, 4]


def test_integers_stay_within_the_embedding():
    ids = keras.Input((None,), dtype="int32", name="ids")
    model = keras.Model(ids, layers.Embedding(5, 3)(ids))
    drawn = drawer_of(model).inputs({("ids", 0): 40, ("ids", 1): 10})
    assert set(np.unique(drawn["ids"])) == set(range(5))


def test_booleans_take_both_values():
    mask = keras.Input((None, None), dtype="bool", name="mask")
    model = keras.Model(mask, keras.ops.cast(mask, "float32"))
    drawn = drawer_of(model).inputs({("mask", 0): 3, ("mask", 1): 9, ("mask", 2): 9})
    assert 0.3 < drawn["mask"].mean() < 0.7


class Lookup(layers.Layer):
    """A lookup within a layer, with positions added, as in most models of text."""

    def __init__(self, prepare=lambda x: x, rows=11, **kwargs):
        super().__init__(**kwargs)
        self.prepare = prepare
        self.table, self.positions = layers.Embedding(rows, 4), layers.Embedding(40, 4)

    def call(self, x):
        found = self.table(self.prepare(x))
        return found + self.positions(keras.ops.arange(keras.ops.shape(found)[1]))


def ids_of(model, name="ids"):
    return sources(model, model_signature(model, None), {})[name].ids


@pytest.mark.parametrize(
    ("prepare", "low", "high"),
    [
        (lambda x: x, 0, 10),
        (lambda x: keras.ops.cast(x, "int64"), 0, 10),
        (lambda x: keras.ops.reshape(x[:, 1:], (-1, 5)), 0, 10),
        (lambda x: x + 3, -3, 7),
        (lambda x: 10 - x, 0, 10),
        (lambda x: keras.ops.where(x == 0, 5, x), 0, 10),
        (lambda x: x % 11, 0, 10),
    ],
    ids=["as it is", "cast", "sliced", "shifted", "reversed", "replaced", "remainder"],
)
def test_a_lookup_within_a_layer_is_found(prepare, low, high):
    ids = keras.Input((None,), dtype="int32", name="ids")
    found = ids_of(keras.Model(ids, Lookup(prepare)(ids)))
    assert (found.low, found.high) == (low, high)


def test_floats_that_are_looked_up_are_ids():
    ids = keras.Input((None,), name="ids")
    for layer in (layers.Embedding(7, 3), Lookup(rows=7)):
        drawn = drawer_of(keras.Model(ids, layer(ids))).inputs({("ids", 0): 40, ("ids", 1): 10})["ids"]
        assert drawn.dtype == np.float32
        assert set(np.unique(drawn)) == set(range(7))


def test_rounding_does_not_turn_an_id_into_another():
    ids = keras.Input((None,), name="ids")
    model = keras.Model(ids, layers.Embedding(7, 3)(ids))
    outputs = outputs_of(model_signature(model, None))
    inputs = {"ids": np.arange(7, dtype="float32").reshape(1, 7)}
    (case,) = with_rounding(model, outputs, [Case("ids", inputs, outputs(inputs))])
    assert max(limits.max() for limits in case.rounding.values()) < 1e-6


def test_floats_that_become_the_number_of_a_bucket_are_none():
    x = keras.Input((3,), name="x")
    bucket = layers.Discretization([-2.0, -1.0, 0.0, 1.0, 2.0])(x)
    assert ids_of(keras.Model(x, layers.Embedding(7, 2)(bucket)), "x") is None


def test_a_table_that_is_also_the_last_product():
    ids = keras.Input((None,), dtype="int32", name="ids")
    table = layers.ReversibleEmbedding(13, 4)
    assert ids_of(keras.Model(ids, table(table(ids) * 50.0, reverse=True))).high == 12


def test_the_smaller_of_two_tables_bounds():
    ids = keras.Input((None,), dtype="int32", name="ids")
    assert ids_of(keras.Model(ids, layers.Embedding(20, 4)(ids) + Lookup(rows=5)(ids))).high == 4


def test_positions_that_start_at_an_input_stay_within_longer_inputs():
    start, x = keras.Input((), dtype="int32", name="start"), keras.Input((None, 4), name="x")

    class Positions(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(100, 4)

        def call(self, x, start):
            return x + self.table(start[:, None] + keras.ops.arange(keras.ops.shape(x)[1]))

    model = keras.Model([x, start], Positions()(x, start))
    assert not golden_cases(model, model_signature(model, None), None).refused


def test_a_lookup_in_a_nested_sequential():
    ids = keras.Input((None,), dtype="int32", name="ids")
    inner = keras.Sequential([layers.Embedding(9, 3), layers.Dense(4)])
    assert ids_of(keras.Model(ids, inner(ids))).high == 8


def test_a_table_that_cannot_be_watched_bounds_if_it_is_the_only_one():
    ids = keras.Input((None,), dtype="int32", name="ids")

    class InAGraph(layers.Layer):
        def __init__(self, sizes):
            super().__init__()
            self.tables = [layers.Embedding(size, 3) for size in sizes]

        def build(self, shape):
            for table in self.tables:
                table.build()

        def call(self, x):
            return tf.function(lambda x: sum(table(x) for table in self.tables))(x)

    assert ids_of(keras.Model(ids, InAGraph([6])(ids))).high == 5
    with pytest.raises(InputError, match="which integers may be in `ids`"):
        ids_of(keras.Model(ids, InAGraph([6, 8])(ids)))


def test_watching_leaves_nothing_behind():
    ids = keras.Input((None,), dtype="int32", name="ids")
    layer = Lookup()
    ids_of(keras.Model(ids, layer(ids)))
    assert "call" not in vars(layer.table)


def test_masks_and_segments_are_zeros_and_ones():
    names = ("ids", "padding_mask", "segment_ids")
    ids, mask, segments = (keras.Input((None,), dtype="int32", name=name) for name in names)
    hidden = Lookup()(ids * mask) * keras.ops.cast(mask, "float32")[..., None]
    model = keras.Model([ids, mask, segments], hidden + keras.ops.one_hot(segments, 4))
    drawn = drawer_of(model).inputs({(name, axis): 8 for name in names for axis in (0, 1)})
    assert set(np.unique(drawn["segment_ids"])) == {0, 1}
    lengths = drawn["padding_mask"].sum(1)
    np.testing.assert_array_equal(drawn["padding_mask"], np.arange(8) < lengths[:, None])
    assert sorted(lengths)[3:] == [sorted(lengths)[3], 8, 8, 8, 8]
    assert min(lengths) >= 1
    assert max(drawn["ids"].ravel()) == 10


def test_a_mask_of_floats_is_one_however_large_the_other_floats_are():
    x, mask = keras.Input((None, 3), name="x"), keras.Input((None,), name="attention_mask")
    image = keras.Input((None, 3), name="masked_image")
    scores = keras.ops.sum(x + image, -1) + (1 - mask) * -1e9  # which anything but 0 and 1 would decide alone
    model = keras.Model([x, mask, image], keras.ops.softmax(scores))
    found = golden_cases(model, model_signature(model, None), None)
    drawn = {case.name: case.inputs for case in found.cases}
    assert {"large values", "padding elsewhere"} <= set(drawn)
    assert {*np.concatenate([case["attention_mask"].ravel() for case in drawn.values()])} == {0, 1}
    assert np.abs(drawn["large values"]["masked_image"]).max() > 100


def test_an_integer_is_a_mask_by_the_argument_it_is_passed_as():
    x, seen = keras.Input((None, 4), name="x"), keras.Input((None, None), dtype="int32", name="seen")
    heads = layers.MultiHeadAttention(2, 3)(x, x, attention_mask=seen)
    drawn = drawer_of(keras.Model([x, seen], heads)).inputs(
        {("x", 0): 2, ("x", 1): 9, ("seen", 0): 2, ("seen", 1): 9, ("seen", 2): 9}
    )["seen"]
    assert set(np.unique(drawn)) == {0, 1}
    assert drawn.any(-1).all()


def test_steps_that_are_skipped_stand_at_the_end_and_once_elsewhere():
    x = keras.Input((None, 3), name="x")
    ids = keras.Input((None,), dtype="int32", name="ids")
    mean = layers.GlobalAveragePooling1D()
    masked = mean(layers.Masking(-1.0)(x)) + mean(layers.Embedding(5, 3, mask_zero=True)(ids))
    found = golden_cases(model := keras.Model([x, ids], masked), model_signature(model, None), None)
    skipped = {case.name: ((case.inputs["x"] == -1).all(-1), case.inputs["ids"] == 0) for case in found.cases}
    for steps in skipped["axes apart"]:
        assert steps.any()
        assert not steps.all(1).any()
        assert (np.diff(steps.astype(int), axis=1) >= 0).all()
    assert all((np.diff(steps.astype(int), axis=1) < 0).any() for steps in skipped["padding elsewhere"])


def test_ids_are_dealt_before_any_is_dealt_again():
    deck, rng = Deck(Ids(2, 21)), np.random.default_rng(0)
    drawn = np.concatenate([deck.draw((size,), rng) for size in (3, 8, 9, 45)])
    assert [sorted(each) for each in np.split(drawn[:60], 3)] == [list(range(2, 22))] * 3
    assert len({each.tobytes() for each in np.split(drawn[:60], 3)}) == 3


def test_a_case_has_every_id_that_no_other_has():
    ids = keras.Input((None,), dtype="int32", name="ids")
    found = golden_cases(model := keras.Model(ids, Lookup(rows=700)(ids)), model_signature(model, None), None)
    *others, last = (case.inputs["ids"] for case in found.cases)
    assert found.cases[-1].name == "every id"
    before = np.concatenate([array.ravel() for array in others])
    assert len(set(before)) == len(before)
    assert set(before) | set(last.ravel()) == set(range(700))


def test_the_case_of_every_id_is_bounded_by_its_outputs(monkeypatch):
    monkeypatch.setattr("keras_attn_export._model.more_cases.NUMBERS", 4000)
    ids = keras.Input((None,), dtype="int32", name="ids")
    scores = layers.Dense(30)(layers.Embedding(2000, 4)(ids))
    model = keras.Model(ids, scores)
    last = golden_cases(model, model_signature(model, None), None).cases[-1]
    assert last.name == "every id"
    (output,) = last.outputs.values()
    assert 3000 < output.size <= 4000


def test_every_id_is_seen_where_no_mask_hides_it():
    ids, mask = (keras.Input((None,), dtype="int32", name=name) for name in ("ids", "padding_mask"))
    hidden = Lookup()(ids) * keras.ops.cast(mask, "float32")[..., None]
    found = golden_cases(model := keras.Model([ids, mask], hidden), model_signature(model, None), None)
    last = found.cases[-1].inputs
    assert found.cases[-1].name == "every id"
    assert last["padding_mask"].all()
    assert set(last["ids"].ravel()) == set(range(11))


def test_a_static_model_has_more_than_one_case():
    x = keras.Input(batch_shape=(2, 3), name="x")
    found = golden_cases(model := keras.Model(x, layers.Dense(2)(x)), model_signature(model, None), None)
    assert len({case.inputs["x"].tobytes() for case in found.cases}) >= 5


def test_other_integers_ask_for_samples_at_once_and_say_what_is_known():
    digit = keras.Input((), dtype="int32", name="digit")
    place = keras.Input((None,), dtype="int64", name="place")
    outputs = [keras.ops.one_hot(digit, 5), keras.ops.one_hot(place, 3)]
    with pytest.raises(InputError) as caught:
        drawer_of(keras.Model([digit, place], outputs))
    said = str(caught.value)
    assert "`digit` (int32, shape (None,), feeds `" in said
    assert "`place` (int64" in said
    assert "sample_inputs={'digit': ..., 'place': ...}" in said


def test_samples_are_cropped_and_repeated():
    digit = keras.Input((), dtype="int32", name="digit")
    model = keras.Model(digit, keras.ops.one_hot(digit, 5))
    drawer = drawer_of(model, {"digit": np.array([4, 1, 3])})
    np.testing.assert_array_equal(drawer.inputs({("digit", 0): 5})["digit"], [4, 1, 3, 4, 1])
    np.testing.assert_array_equal(drawer.inputs({("digit", 0): 2})["digit"], [4, 1])


SAMPLES = {
    "queries": np.ones((2, 3, 6)),
    "keys": np.ones((2, 5, 6)),
    "values": np.ones((2, 5, 5)),
    "valid_lens": np.array([1, 2]),
}


def test_samples_take_the_models_dtypes():
    flat = flat_samples(model_signature(dict_inputs_and_outputs(), None), SAMPLES)
    assert {name: str(array.dtype) for name, array in flat.items()} == {
        "queries": "float32",
        "keys": "float32",
        "values": "float32",
        "valid_lens": "int32",
    }


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"key": np.ones((2, 5, 6))},
            r"names \['key', 'keys', .*\], of which .* not take \['key'\]. It takes \['keys', 'queries'",
        ),
        ({"valid_lens": np.array([1.0, 2.0])}, "`valid_lens` must be of dtype int32. Received: float64"),
        ({"keys": np.ones((2, 5, 7))}, r"`keys` must have shape .* Received: \(2, 5, 7\)"),
        ({"keys": np.ones((2, 5))}, "`keys` must have shape"),
        ({"keys": np.ones((2, 0, 6))}, "no axis empty"),
        ({"keys": np.ones((3, 5, 6))}, r"agree in their batch axis. Received batches of \[2, 3\]"),
        ({"valid_lens": np.array([1, 2**40])}, "`valid_lens` holds integers that do not fit int32"),
    ],
)
def test_samples_that_do_not_fit(changed, message):
    signature = model_signature(dict_inputs_and_outputs(), None)
    with pytest.raises(InputError, match=message):
        flat_samples(signature, SAMPLES | changed)
