"""Input generators: chosen by the layers that read an input, by its name, or by samples; errors for other inputs."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from export_models import build_additive, build_dict_inputs_and_outputs, build_nested_model
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


def build_id_model(build_outputs, **options):
    """Return a model with one sequence of ids as its input."""
    ids = build_integer_input("ids", None, **options)
    return keras.Model(ids, build_outputs(ids))


def build_sampler(model, samples=None):
    signature = build_signature(model, samples)
    return InputSampler(signature.inputs, choose_generators(signature, flatten_samples(signature)))


def draw_inputs(sampler, *pattern, **shapes):
    """Return drawn arrays; `shapes` has the sizes of the first axes of every input."""
    sizes = {(name, axis): size for name, shape in shapes.items() for axis, size in enumerate(shape)}
    return sampler.draw(sizes, *pattern)


def list_attention_shapes(batch, queries, keys):
    return {"queries": (batch, queries), "keys": (batch, keys), "values": (batch, keys), "valid_lens": (batch,)}


def test_floats_are_drawn_from_a_normal_distribution():
    keys = draw_inputs(build_sampler(build_additive()), **list_attention_shapes(50, 20, 30))["keys"]
    assert keys.dtype == np.float32
    assert abs(keys.mean()) < 0.02
    assert abs(keys.std() - 1) < 0.02


@pytest.mark.parametrize("build", [build_additive, build_nested_model])
def test_lengths_are_drawn_up_to_the_number_of_keys(build):
    sampler = build_sampler(build())
    for pattern, lengths in LENGTH_PATTERNS.items():
        arrays = draw_inputs(sampler, pattern, **list_attention_shapes(7, 3, 11))
        np.testing.assert_array_equal(arrays["valid_lens"], np.resize(lengths(11), 7))


class Block(layers.Layer):
    """User-defined layer that calls attention."""

    def call(self, sequences, valid_lens):
        return DotProductAttention()(sequences, sequences, sequences, valid_lens)


@pytest.mark.slow
def test_lengths_count_the_keys_that_the_layer_reads():
    ids, lens = build_integer_input("ids", None), build_integer_input("lens")
    x = layers.MaxPooling1D(2)(layers.Embedding(9, 4)(ids))
    sampler = build_sampler(keras.Model([ids, lens], DotProductAttention()(x, x, x, lens)))
    np.testing.assert_array_equal(draw_inputs(sampler, "full", ids=(2, 10), lens=(2,))["lens"], [5, 5])
    x, unread, lens = build_sequence_input("x", 3), build_sequence_input("other", 3), build_integer_input("lens")
    sampler = build_sampler(keras.Model([x, unread, lens], [Block()(x, valid_lens=lens), unread]))
    np.testing.assert_array_equal(draw_inputs(sampler, "full", x=(2, 5), other=(2, 9), lens=(2,))["lens"], [5, 5])


def test_lengths_of_memory_and_inputs_count_their_own_steps():
    inputs, memory = build_sequence_input("inputs", 3), build_sequence_input("memory", 5)
    counts, steps = build_integer_input("counts"), build_integer_input("steps")
    decode = AttentionRNN(AttentionCell(layers.GRUCell(4), AdditiveAttention(4)))
    model = keras.Model([inputs, memory, counts, steps], decode(inputs, memory, counts, input_lens=steps))
    sampler = build_sampler(model)
    shapes = {"inputs": (2, 6), "memory": (2, 9), "counts": (2,), "steps": (2,)}
    arrays = draw_inputs(sampler, "full", **shapes)
    assert (arrays["counts"].tolist(), arrays["steps"].tolist()) == ([9, 9], [6, 6])
    generators = choose_generators(build_signature(model), {})
    poisoned = poison_padding(generators, draw_inputs(sampler, **shapes))
    assert np.isnan(poisoned["memory"]).any()
    assert np.isnan(poisoned["inputs"]).any()


def test_integers_named_valid_lens_are_drawn_as_lengths():
    ids, lens = build_integer_input("ids", None), build_integer_input("valid_lens")
    mask = ops.cumsum(ops.ones_like(ids), axis=1) <= ops.expand_dims(lens, 1)
    model = keras.Model([ids, lens], layers.GRU(3)(layers.Embedding(9, 4)(ids), mask=mask))
    for samples, expected in ((None, [10, 10]), ({"valid_lens": np.array([3, 4])}, [3, 4])):
        arrays = draw_inputs(build_sampler(model, samples), "full", ids=(2, 10), valid_lens=(2,))
        assert arrays["valid_lens"].tolist() == expected


class Lookup(layers.Layer):
    """Table lookup inside a layer that adds positions, as in most text models."""

    def __init__(self, prepare=lambda x: x, rows=11, **kwargs):
        super().__init__(**kwargs)
        self.prepare = prepare
        self.table, self.positions = layers.Embedding(rows, 4), layers.Embedding(40, 4)

    def call(self, x):
        vectors = self.table(self.prepare(x))
        return vectors + self.positions(ops.arange(ops.shape(vectors)[1]))


class GraphLookups(layers.Layer):
    """Lookups in a `tf.function`, where probe runs cannot record the calls of tables."""

    def __init__(self, *sizes):
        super().__init__()
        self.tables = [layers.Embedding(size, 3) for size in sizes]

    def build(self, shape):
        for table in self.tables:
            table.build()

    def call(self, x):
        return tf.function(lambda x: sum(table(x) for table in self.tables))(x)


def score_rows(x):
    """Return the products of looked-up vectors with all rows of their table."""
    table = layers.ReversibleEmbedding(13, 4)
    return table(table(x) * 50.0, reverse=True)


def find_id_range(model, name="ids"):
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
    "with the argument training": (lambda x: layers.Embedding(5, 2)(x, training=False), 0, 4),
    "scores by the same table": (score_rows, 0, 12),
    "in a tf.function": (GraphLookups(6), 0, 5),
}


@pytest.mark.parametrize(("build_outputs", "low", "high"), LOOKUPS.values(), ids=LOOKUPS)
def test_ids_are_drawn_within_the_rows_of_the_table(build_outputs, low, high):
    id_range = find_id_range(build_id_model(build_outputs))
    assert (id_range.low, id_range.high) == (low, high)
    if isinstance(build_outputs, Lookup):
        assert "call" not in vars(build_outputs.table), "the probe runs changed the layer"


def test_two_tables_in_a_graph_require_samples():
    with pytest.raises(InputError, match="Cannot choose integers for input `ids`"):
        find_id_range(build_id_model(GraphLookups(6, 8)))


@pytest.mark.parametrize("layer", [layers.Embedding(7, 3), Lookup(rows=7)])
def test_floats_that_index_a_table_are_integers_and_not_perturbed(layer):
    model = build_id_model(lambda ids: {"out": layer(ids)}, dtype="float32")
    ids = draw_inputs(build_sampler(model), ids=(40, 10))["ids"]
    assert ids.dtype == np.float32
    assert set(np.unique(ids)) == set(range(7))
    limits, _ = measure_output_limits(model, {"ids": np.arange(7, dtype="float32").reshape(1, 7)})
    assert limits.max() < 1e-6


def test_floats_that_become_bucket_numbers_are_not_ids():
    x = keras.Input((3,), name="x")
    bucket = layers.Discretization([-2.0, -1.0, 0.0, 1.0, 2.0])(x)
    assert find_id_range(keras.Model(x, layers.Embedding(7, 2)(bucket)), "x") is None


def test_positions_that_start_at_an_input_stay_within_the_table():
    start, x = build_integer_input("start"), keras.Input((None, 4), name="x")

    class Positions(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(100, 4)

        def call(self, x, start):
            return x + self.table(start[:, None] + ops.arange(ops.shape(x)[1]))

    assert not generate_cases(keras.Model([x, start], Positions()(x, start))).refusals


def test_masks_and_segments_are_drawn_as_zeros_and_ones():
    names = ("ids", "padding_mask", "segment_ids")
    ids, mask, segments = (build_integer_input(name, None) for name in names)
    hidden = Lookup()(ids * mask) * ops.cast(mask, "float32")[..., None]
    model = keras.Model([ids, mask, segments], hidden + ops.one_hot(segments, 4))
    arrays = draw_inputs(build_sampler(model), **dict.fromkeys(names, (8, 8)))
    assert set(np.unique(arrays["segment_ids"])) == {0, 1}
    lengths = arrays["padding_mask"].sum(1)
    np.testing.assert_array_equal(arrays["padding_mask"], np.arange(8) < lengths[:, None])
    assert sorted(lengths)[3:] == [sorted(lengths)[3], 8, 8, 8, 8]
    assert min(lengths) >= 1
    assert max(arrays["ids"].ravel()) == 10


def test_float_masks_stay_zeros_and_ones_in_all_cases():
    x, mask = keras.Input((None, 3), name="x"), keras.Input((None,), name="attention_mask")
    image = keras.Input((None, 3), name="masked_image")
    scores = ops.sum(x + image, -1) + (1 - mask) * -1e9  # normal floats as a mask would decide all scores
    golden = generate_cases(keras.Model([x, mask, image], ops.softmax(scores)))
    inputs = {case.name: case.inputs for case in golden.cases}
    assert {"large values", "padding elsewhere"} <= set(inputs)
    assert {*np.concatenate([arrays["attention_mask"].ravel() for arrays in inputs.values()])} == {0, 1}
    assert np.abs(inputs["large values"]["masked_image"]).max() > 100


def test_integers_passed_as_attention_mask_are_drawn_as_a_mask():
    x, pairs = keras.Input((None, 4), name="x"), build_integer_input("pairs", None, None)
    outputs = layers.MultiHeadAttention(2, 3)(x, x, attention_mask=pairs)
    mask = draw_inputs(build_sampler(keras.Model([x, pairs], outputs)), x=(2, 9), pairs=(2, 9, 9))["pairs"]
    assert set(np.unique(mask)) == {0, 1}
    assert mask[..., 0].all(), "a query is fully masked"


def test_masked_steps_are_last_and_elsewhere_in_one_case():
    x, ids = keras.Input((None, 3), name="x"), build_integer_input("ids", None)
    mean = layers.GlobalAveragePooling1D()
    outputs = mean(layers.Masking(-1.0)(x)) + mean(layers.Embedding(5, 3, mask_zero=True)(ids))
    golden = generate_cases(keras.Model([x, ids], outputs))
    padding = {case.name: ((case.inputs["x"] == -1).all(-1), case.inputs["ids"] == 0) for case in golden.cases}
    for is_padding in padding["axes apart"]:
        assert is_padding.any()
        assert not is_padding.all(1).any()
        assert (np.diff(is_padding.astype(int), axis=1) >= 0).all()
    assert all((np.diff(is_padding.astype(int), axis=1) < 0).any() for is_padding in padding["padding elsewhere"])


def test_padding_is_moved_in_the_order_of_the_inputs():
    """A set of names would have a different order, and so different random draws, in every process."""
    generators = {f"x{number}": InputGenerator(draw=None, padding=0) for number in range(8)}
    inputs = {name: np.random.default_rng(5).integers(0, 3, (6, 5)) for name in generators}
    rng = np.random.default_rng(0)
    expected = {name: move_padding(array, rng) for name, array in inputs.items()}
    np.testing.assert_equal(move_input_padding(generators, inputs), expected)


def test_every_id_is_drawn_and_unmasked():
    cases = select_finite_cases(generate_cases(build_id_model(Lookup(rows=700))))
    *drawn_arrays, last_array = (case.inputs["ids"] for case in cases)
    assert cases[-1].name == "every id"
    drawn_ids = np.concatenate([array.ravel() for array in drawn_arrays])
    assert len(set(drawn_ids)) == len(drawn_ids)
    assert set(drawn_ids) | set(last_array.ravel()) == set(range(700))
    ids, mask = build_integer_input("ids", None), build_integer_input("padding_mask", None)
    hidden = Lookup()(ids) * ops.cast(mask, "float32")[..., None]
    inputs = select_finite_cases(generate_cases(keras.Model([ids, mask], hidden)))[-1].inputs
    assert inputs["padding_mask"].all()
    assert set(inputs["ids"].ravel()) == set(range(11))


def test_cases_of_choices_have_rows_with_close_scores():
    rng = np.random.default_rng(0)
    table = rng.normal(size=(6, 4))

    def classify(inputs, bias=0.0):
        return {"label": (inputs["x"] @ table + [bias, 0, 0, 0]).argmax(-1)}

    def draw(rows):
        return {"x": rng.normal(size=(rows, 6)).astype("float32")}

    def measure_changed_share(inputs):
        return (classify(inputs)["label"] != classify(inputs, 0.02)["label"]).mean()

    inputs = draw_close_choices({"x": InputGenerator(draw=None)}, 4096, draw, classify)
    assert inputs["x"].shape == (4096, 6)
    assert measure_changed_share(inputs) > 2 * measure_changed_share(draw(2**15))


def test_static_model_has_several_cases():
    x = keras.Input(batch_shape=(2, 3), name="x")
    golden = generate_cases(keras.Model(x, layers.Dense(2)(x)))
    assert len({case.inputs["x"].tobytes() for case in golden.cases}) >= 5


def test_error_about_unknown_integers_names_the_inputs():
    digit, rank = build_integer_input("digit"), build_integer_input("rank", None, dtype="int64")
    outputs = [ops.one_hot(digit, 5), ops.one_hot(rank, 3)]
    with pytest.raises(InputError) as error:
        build_sampler(keras.Model([digit, rank], outputs))
    message = str(error.value)
    assert "`digit` (int32, shape (None,), used by `" in message
    assert "`rank` (int64" in message
    assert "sample_inputs={'digit': ..., 'rank': ...}" in message


@pytest.mark.parametrize(("dtype", "numbers"), [("uint8", range(256)), ("int8", range(-128, 128)), ("bool", range(2))])
def test_bytes_and_booleans_are_drawn_from_all_values(dtype, numbers):
    x = build_integer_input("x", None, dtype=dtype)
    array = draw_inputs(build_sampler(keras.Model(x, ops.cast(x, "float32"))), x=(20, 400))["x"]
    assert np.unique(array).tolist() == [*numbers]
    assert dtype != "bool" or 0.3 < array.mean() < 0.7


def test_samples_are_cropped_and_repeated_to_the_batch():
    digit = build_integer_input("digit")
    sampler = build_sampler(keras.Model(digit, ops.one_hot(digit, 5)), {"digit": np.array([4, 1, 3])})
    np.testing.assert_array_equal(draw_inputs(sampler, digit=(5,))["digit"], [4, 1, 3, 4, 1])
    np.testing.assert_array_equal(draw_inputs(sampler, digit=(2,))["digit"], [4, 1])


SAMPLES = {
    "queries": np.ones((2, 3, 6)),
    "keys": np.ones((2, 5, 6)),
    "values": np.ones((2, 5, 5)),
    "valid_lens": np.array([1, 2]),
}


def test_samples_are_cast_to_the_dtypes_of_the_model():
    arrays = flatten_samples(build_signature(build_dict_inputs_and_outputs(), SAMPLES))
    dtypes = {**dict.fromkeys(("queries", "keys", "values"), "float32"), "valid_lens": "int32"}
    assert {name: str(array.dtype) for name, array in arrays.items()} == dtypes


def test_samples_are_matched_by_position_or_name():
    x = keras.Input((2,))
    model, array = keras.Model(x, layers.Dense(3)(x)), np.ones((4, 2), "float32")
    (name,) = (spec.name for spec in build_signature(model).inputs)
    for samples in (array, [array], {name: array}, {x.name: array}):
        assert flatten_samples(build_signature(model, samples))[name].shape == (4, 2)
    with pytest.raises(InputError, match=r"must be a mapping from names .* Received: 2 arrays"):
        build_signature(model, [array, array])


@pytest.mark.parametrize(
    ("replacement", "message"),
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
def test_samples_of_wrong_names_shapes_or_dtypes_are_refused(replacement, message):
    signature = build_signature(build_dict_inputs_and_outputs(), SAMPLES | replacement)
    with pytest.raises(InputError, match=message):
        flatten_samples(signature)
