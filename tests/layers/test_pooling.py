"""The base layer: masks on the way in, shapes, errors, dropout, and what a subclass has to give."""

import keras
import numpy as np
import pytest
from backends import carrying, compiled, every_mode, gradients_of, mask_of
from keras import ops
from tolerances import assert_close, assert_identical

from keras_attn import AdditiveAttention, AttentionPooling, DotProductAttention

B, Tq, Tk, Dq, Dk, Dv = 2, 3, 5, 4, 6, 7
KEY_MASK = np.array([[1, 1, 0, 0, 0], [1, 0, 1, 1, 0]], bool)


class UniformAttention(AttentionPooling):
    """All scores zero: the weights show the mask and nothing else."""

    def score(self, queries, keys):
        return ops.zeros((*ops.shape(queries)[:-1], ops.shape(keys)[-2]), queries.dtype)


def arrays(seed=0):
    rng = np.random.default_rng(seed)
    return [rng.normal(size=shape).astype("float32") for shape in ((B, Tq, Dq), (B, Tk, Dk), (B, Tk, Dv))]


def symbols(**shapes):
    shapes = {"queries": (Tq, Dq), "keys": (Tk, Dk), "values": (Tk, Dv), **shapes}
    return {name: keras.Input(shape, name=name) for name, shape in shapes.items()}


def weights_of(layer, *inputs, **options):
    return ops.convert_to_numpy(layer(*inputs, return_attention_scores=True, **options)[1])


def test_every_mask_is_intersected():
    queries, keys, values = arrays()
    causal = np.tri(Tq, Tk, dtype=bool)
    pairs = np.random.default_rng(1).random((B, Tq, Tk)) > 0.3
    weights = weights_of(
        UniformAttention(),
        queries,
        carrying(keys, KEY_MASK),
        carrying(values, ~np.eye(Tk, dtype=bool)[:B]),
        np.array([4, 2]),
        attention_mask=pairs,
        use_causal_mask=True,
        queries_mask=np.array([[1, 1, 1], [0, 1, 1]], bool),
    )
    expected = causal & pairs & KEY_MASK[:, None] & ~np.eye(Tk, dtype=bool)[:B, None]
    expected &= (np.arange(Tk) < np.array([[4], [2]]))[:, None]
    expected[1, 0] = False
    assert expected.any()
    assert_identical(weights > 0, expected)


def test_an_explicit_mask_takes_the_place_of_the_one_keras_carries():
    queries, keys, values = arrays()
    weights = weights_of(UniformAttention(), queries, carrying(keys, ~KEY_MASK), values, keys_mask=KEY_MASK)
    assert_identical(weights[:, 0] > 0, KEY_MASK)


def test_an_explicit_queries_mask_zeroes_rows():
    queries, keys, values = arrays()
    queries[1, 2] = np.nan
    mask = np.array([[1, 1, 1], [1, 1, 0]], bool)
    output = ops.convert_to_numpy(DotProductAttention()(queries, keys[..., :Dq], values, queries_mask=mask))
    assert_identical(np.any(output != 0, axis=-1), mask)


@every_mode
def test_an_explicit_queries_mask_goes_on_with_the_output(mode):
    queries, keys, values = arrays()
    mask = np.array([[1, 1, 1], [1, 1, 0]], bool)

    def outputs():
        output = DotProductAttention()(queries, keys[..., :Dq], values, queries_mask=mask)
        return output, mask_of(output), keras.layers.GlobalAveragePooling1D()(output)

    output, carried, mean = (ops.convert_to_numpy(x) for x in compiled(outputs, mode)())
    assert_identical(carried, mask)
    assert_close(mean[1], output[1, :2].mean(0))


def test_an_embedding_masks_queries_keys_and_values_in_a_functional_model():
    tokens = keras.Input((None,), dtype="int32")
    embedded = keras.layers.Embedding(9, 4, mask_zero=True)(tokens)
    output, weights = DotProductAttention()(embedded, embedded, embedded, return_attention_scores=True)
    model = keras.Model(tokens, [weights, keras.layers.GlobalAveragePooling1D()(output)])
    weights, mean = (ops.convert_to_numpy(x) for x in model(np.array([[1, 2, 0, 0], [3, 0, 0, 0]])))
    takes_part = np.array([[1, 1, 0, 0], [1, 0, 0, 0]], bool)
    assert_identical(weights > 0, takes_part[:, :, None] & takes_part[:, None])
    table = ops.convert_to_numpy(model.layers[1].embeddings)
    assert_close(mean[1], table[3])


def test_a_query_that_sees_no_key_may_hold_nan():
    queries, keys, values = arrays()
    layer = AdditiveAttention(8)
    layer.build(queries.shape, keys.shape, values.shape)

    def gradient(queries):
        program = gradients_of(lambda: ops.sum(layer(queries, keys, values, np.array([0, 3]))), 0, [layer.W_q.kernel])
        return ops.convert_to_numpy(program()[0])

    expected = gradient(queries)
    queries[0] = np.nan
    assert_identical(gradient(queries), expected)


def test_keys_beyond_the_last_causal_query_may_hold_nan():
    queries, keys, values = arrays()
    expected = ops.convert_to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True))
    keys[:, Tq:], values[:, Tq:] = np.nan, np.inf
    assert_identical(ops.convert_to_numpy(UniformAttention()(queries, keys, values, use_causal_mask=True)), expected)


def test_no_keys_at_all_give_zeros():
    queries, keys, values = arrays()
    output = UniformAttention()(queries, keys[:, :0], values[:, :0], np.array([0, 2]))
    assert_identical(ops.convert_to_numpy(output), np.zeros((B, Tq, Dv), "float32"))


def test_integer_inputs_are_computed_in_the_dtype_of_the_layer():
    values = np.arange(B * Tk * Dv).reshape(B, Tk, Dv)
    output = UniformAttention()(*arrays()[:2], values, np.array([2, 2]))
    assert_close(ops.convert_to_numpy(output)[:, 0], values[:, :2].mean(1).astype("float32"))


def test_lengths_may_be_a_list_given_by_name():
    assert_identical(weights_of(UniformAttention(), *arrays(), valid_lens=[1, Tk])[:, 0, -1], np.float32([0, 0.2]))


def test_a_constant_mask_survives_a_reload(tmp_path):
    inputs = symbols()
    mask = np.random.default_rng(0).random((Tq, Tk)) > 0.5
    model = keras.Model(inputs, AdditiveAttention(8)(**inputs, attention_mask=mask))
    model.save(tmp_path / "model.keras")
    values = dict(zip(inputs, arrays(), strict=True))
    reloaded = keras.models.load_model(tmp_path / "model.keras")
    assert_identical(ops.convert_to_numpy(reloaded(values)), ops.convert_to_numpy(model(values)))


def test_known_sizes_come_from_whichever_input_knows_them():
    queries = keras.Input(batch_shape=(None, None, Dq))
    keys, values = keras.Input(batch_shape=(B, None, Dq)), keras.Input(batch_shape=(None, Tk, None))
    output, weights = DotProductAttention()(queries, keys, values, return_attention_scores=True)
    assert (output.shape, weights.shape) == ((B, None, None), (B, None, Tk))


def test_compute_output_shape_of_both_return_forms():
    shapes = (None, Tq, Dq), (None, Tk, Dk), (None, Tk, Dv)
    layer = UniformAttention()
    assert layer.compute_output_shape(*shapes) == (None, Tq, Dv)
    assert layer.compute_output_shape(*shapes, return_attention_scores=True) == ((None, Tq, Dv), (None, Tq, Tk))


@pytest.mark.parametrize(
    ("shapes", "sentence"),
    [
        ({"queries": (Dq,)}, r"`queries` must have at least 3 axes.*queries shape \(None, 4\)"),
        ({"keys": (2, Tk, Dk)}, r"`keys` must have the batch axes of `queries`.*keys shape \(None, 2, 5, 6\)"),
        ({"values": (4, Dv)}, r"`keys` and `values` must agree in Tk.*values shape \(None, 4, 7\)"),
    ],
)
def test_shapes_that_do_not_agree_are_refused_while_a_model_is_built(shapes, sentence):
    inputs = symbols(**shapes)
    with pytest.raises(ValueError, match=sentence):
        UniformAttention()(**inputs)


@pytest.mark.parametrize(
    ("name", "shape", "dtype", "error", "sentence"),
    [
        ("valid_lens", (), "float32", TypeError, r"`valid_lens` must be integers.*dtype float32"),
        ("valid_lens", (Tk,), "int32", ValueError, r"`valid_lens` must have shape.*\(None, 5\).*\(None, 3, 5\)"),
        ("attention_mask", (Tq, Tk), "int32", TypeError, r"`attention_mask` must be boolean.*dtype int32"),
        ("attention_mask", (Tk, Tq), "bool", ValueError, r"`attention_mask` must broadcast.*\(None, 5, 3\)"),
        ("queries_mask", (Tk,), "bool", ValueError, r"`queries_mask` must have the shape of `queries`.*\(None, 5\)"),
        ("keys_mask", (Tk,), "float32", TypeError, r"`keys_mask` must be boolean.*dtype float32"),
        ("values_mask", (Tk, Dv), "bool", ValueError, r"`values_mask` must have the shape of `values`"),
    ],
)
def test_bad_masks_are_refused_while_a_model_is_built(name, shape, dtype, error, sentence):
    inputs = {**symbols(), name: keras.Input(shape, dtype=dtype)}
    with pytest.raises(error, match=sentence):
        UniformAttention()(**inputs)


def test_batches_that_disagree_are_refused():
    queries, keys, values = arrays()
    with pytest.raises(ValueError, match=r"`values` must have the batch axes of `queries`.*values shape \(1, 5, 7\)"):
        UniformAttention()(queries, keys, values[:1])


SWITCHES = ["use_causal_mask", "return_attention_scores"]


@pytest.mark.parametrize("name", SWITCHES)
@pytest.mark.parametrize("value", ["no", "", 2, 0.0, np.array([True])], ids=repr)
def test_what_is_neither_true_nor_false_is_refused(name, value):
    queries, keys, values = arrays()
    for given in ({"queries": queries, "keys": keys, "values": values}, symbols()):
        with pytest.raises(TypeError, match=rf"`{name}` must be True or False\. Received: {name} of type \w+"):
            UniformAttention()(**given, **{name: value})


@pytest.mark.parametrize("value", [True, 1, np.True_])
def test_what_counts_as_true(value):
    weights = weights_of(UniformAttention(), *arrays(), use_causal_mask=value)
    assert_identical(weights[0] > 0, np.tri(Tq, Tk, dtype=bool))


@pytest.mark.parametrize("value", [False, 0, np.False_, None])
def test_what_counts_as_false(value):
    output, expected = (UniformAttention()(*arrays(), **each) for each in (dict.fromkeys(SWITCHES, value), {}))
    assert_identical(*(ops.convert_to_numpy(tensor) for tensor in (output, expected)))


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"dropout": 1.0}, ValueError, r"`dropout` must be at least 0 and less than 1\. Received: dropout=1\.0"),
        ({"dropout": -0.1}, ValueError, r"`dropout` must be at least 0"),
        ({"dropout": "0.1"}, TypeError, r"`dropout` must be a number.*type str"),
        ({"seed": 0.5}, TypeError, r"`seed` must be an integer or None.*type float"),
    ],
)
def test_bad_options_are_refused(options, error, sentence):
    with pytest.raises(error, match=sentence):
        UniformAttention(**options)


def test_a_subclass_without_a_score_is_told_so():
    with pytest.raises(NotImplementedError, match=r"AttentionPooling must define `score\(queries, keys\)`"):
        AttentionPooling()(*arrays())


def test_a_score_of_the_wrong_shape_is_told_so():
    class Transposed(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tk, Tq))

    with pytest.raises(ValueError, match=r"`Transposed.score` must return.*\(2, 3, 5\).*shape \(2, 5, 3\)"):
        Transposed()(*arrays())


def test_a_score_of_another_dtype_leaves_the_dtype_of_the_layer():
    class Wide(AttentionPooling):
        def score(self, queries, keys):
            return ops.zeros((B, Tq, Tk), "float32")

    output, weights = Wide(dtype="float16")(*arrays(), return_attention_scores=True)
    assert [keras.backend.standardize_dtype(x.dtype) for x in (output, weights)] == ["float16", "float16"]


def test_dropout_scales_what_it_keeps_and_leaves_the_returned_weights_alone():
    queries, keys, _ = arrays()
    identity = np.broadcast_to(np.eye(Tk, dtype="float32"), (B, Tk, Tk))  # so that the output is the dropped weights
    layer = UniformAttention(dropout=0.2, seed=1)
    output, weights = layer(queries, keys, identity, training=True, return_attention_scores=True)
    assert_close(np.unique(ops.convert_to_numpy(output)), np.float32([0, 0.25]))
    assert_identical(ops.convert_to_numpy(weights), np.full((B, Tq, Tk), 0.2, "float32"))
    assert_identical(ops.convert_to_numpy(layer(queries, keys, identity)), ops.convert_to_numpy(weights))


@pytest.mark.parametrize("built", [False, True])
@pytest.mark.parametrize("missing", ["keys", "values"])
def test_what_is_not_given(missing, built):
    layer = DotProductAttention()
    tensors = {name: np.ones((2, size, 4), "float32") for name, size in (("queries", 3), ("keys", 5), ("values", 5))}
    if built:
        layer(**tensors)
    with pytest.raises(ValueError, match=rf"`{missing}` must be a tensor. Received: {missing}=None"):
        layer(**tensors | {missing: None})


def test_complex_numbers():
    layer = DotProductAttention()
    queries = np.ones((2, 3, 4), "complex64")
    keys = np.ones((2, 5, 4), "float32")
    with pytest.raises(TypeError, match=r"`queries` must be real numbers. Received: queries dtype complex64"):
        layer(queries, keys, keys)
