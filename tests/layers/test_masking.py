"""Masks, and the softmax over the keys that take part."""

import keras
import numpy as np
import pytest
from backends import gradients_of, in_64_bits
from keras import ops
from tolerances import assert_close, assert_identical

from keras_attn import MaskedSoftmax, masked_softmax
from keras_attn._masking import causal_mask, combine_masks, hide, lengths_mask
from keras_attn._types import Masks, Pairs

NO_MASKS = Masks(None, None, None, None, None)
ALL_PAIRS = Pairs()


def numpy_of(tensor):
    return ops.convert_to_numpy(tensor)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "int64"])
def test_lengths_of_each_example_keep_a_query_axis_of_one(dtype):
    mask = numpy_of(lengths_mask(ops.convert_to_tensor(np.array([2, 0, 7], dtype)), 3, 4))
    assert_identical(mask, np.array([[[1, 1, 0, 0]], [[0, 0, 0, 0]], [[1, 1, 1, 1]]], bool))


def test_lengths_below_zero_mask_all():
    assert not numpy_of(lengths_mask(ops.convert_to_tensor([-1]), 3, 4)).any()


def test_a_length_of_one_byte_does_not_wrap_the_key_positions():
    mask = numpy_of(lengths_mask(ops.convert_to_tensor(np.array([255], "uint8")), 3, 300))
    assert mask.sum() == 255


def test_rank_and_not_size_tells_lengths_of_queries_from_lengths_of_examples():
    lens = ops.convert_to_tensor([[1, 2], [3, 0]])  # B == Tq == 2
    mask = numpy_of(lengths_mask(lens, 3, 3))
    assert_identical(mask, np.array([[[1, 0, 0], [1, 1, 0]], [[1, 1, 1], [0, 0, 0]]], bool))
    assert_identical(numpy_of(lengths_mask(lens, 4, 3)), mask[:, :, None])


@pytest.mark.parametrize(("num_queries", "num_keys"), [(2, 4), (4, 2)])
def test_causal_mask_is_aligned_at_the_upper_left(num_queries, num_keys):
    assert_identical(numpy_of(causal_mask(num_queries, num_keys)), np.tri(num_queries, num_keys, dtype=bool))


def test_masks_of_keys_alone_are_not_spread_over_the_queries():
    keys_mask = ops.ones((2, 5), "bool")
    masks = NO_MASKS._replace(valid_lens=ops.convert_to_tensor([1, 2]), keys_mask=keys_mask, values_mask=keys_mask)
    assert combine_masks(masks, ALL_PAIRS, 3, 5, 3).shape == (2, 1, 5)


def test_no_mask_is_none():
    assert combine_masks(NO_MASKS, ALL_PAIRS, 3, 5, 3) is None


@pytest.mark.parametrize("shape", [(), (5,), (3, 1), (2, 1, 1, 5)])
def test_a_mask_of_any_rank_gets_a_query_axis(shape):
    masks = NO_MASKS._replace(attention_mask=ops.ones(shape, "bool"))
    mask = combine_masks(masks, ALL_PAIRS, 3, 5, 4)
    assert len(mask.shape) == max(2, len(shape))


def test_hidden_nan_reaches_neither_output_nor_gradient():
    x, visible = ops.convert_to_tensor([[[1.0, 2.0], [np.nan, np.inf]]]), ops.convert_to_tensor([[True, False]])
    assert_identical(numpy_of(hide(x, visible)), np.float32([[[1, 2], [0, 0]]]))
    (gradient,) = gradients_of(lambda x: ops.sum(hide(x, visible)), 1)(x)
    assert_identical(numpy_of(gradient), np.float32([[[1, 1], [0, 0]]]))


def test_worked_example_with_lengths_of_examples_and_of_queries():
    scores = np.random.default_rng(0).random((2, 2, 4), "float32")
    for lens in ([2, 3], [[1, 3], [2, 4]]):
        weights = numpy_of(masked_softmax(scores, lens))
        takes_part = np.arange(4) < np.reshape(lens, (2, -1, 1))
        assert_identical(weights > 0, np.broadcast_to(takes_part, weights.shape))
        assert_close(weights.sum(-1), np.ones((2, 2), "float32"))


@pytest.mark.parametrize("dtype", ["float16", "float32", pytest.param("float64", marks=in_64_bits)])
def test_scores_at_the_ends_of_the_dtype(dtype):
    largest = float(np.finfo(dtype).max)
    scores = np.array([[largest, largest, 0, 0], [-largest / 2, 0, largest, largest]], dtype)
    weights = numpy_of(masked_softmax(scores, mask=np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)))
    assert_identical(weights, np.array([[0.5, 0.5, 0, 0], [1, 0, 0, 0]], dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_is_rounded_once_from_float32(dtype):
    scores = ops.cast(np.linspace(-4, 4, 9, dtype="float32")[None], dtype)
    rounded = ops.cast(ops.softmax(ops.cast(scores, "float32")), dtype)
    assert_identical(numpy_of(masked_softmax(scores)), numpy_of(rounded))


def test_a_row_with_no_key_has_zero_gradient_and_leaves_the_others_alone():
    scores = ops.convert_to_tensor([[1.0, 2.0, np.nan], [1.0, 2.0, 3.0]])
    assert_identical(numpy_of(masked_softmax(scores, [0, 2])[0]), np.zeros(3, "float32"))
    (gradient,) = gradients_of(lambda scores: ops.sum(masked_softmax(scores, [0, 2])[:, 0]), 1)(scores)
    p = 1 / (1 + np.e)
    assert_close(numpy_of(gradient), np.float32([[0, 0, 0], [p * (1 - p), -p * (1 - p), 0]]))


@pytest.mark.parametrize(
    ("arguments", "error", "sentence"),
    [
        ({"scores": np.zeros(3, "float32")}, ValueError, r"`scores` must have at least 2 axes.*Received.*\(3,\)"),
        ({"scores": np.zeros((2, 3), "int32")}, TypeError, r"`scores` must be floats.*dtype int32"),
        ({"valid_lens": np.ones(3)}, TypeError, r"`valid_lens` must be integers.*dtype float"),
        ({"valid_lens": np.ones(3, bool)}, TypeError, r"`valid_lens` must be integers.*dtype bool"),
        ({"valid_lens": np.ones((3, 1), int)}, ValueError, r"shape \(B,\) or \(B, Tq\).*\(3, 1\).*\(3, 5, 7\)"),
        ({"mask": np.ones((5, 7), int)}, TypeError, r"`mask` must be boolean.*dtype int(32|64)"),
        ({"mask": np.ones((7, 5), bool)}, ValueError, r"`mask` must broadcast.*\(7, 5\).*\(3, 5, 7\)"),
        ({"mask": np.ones((1, 3, 5, 7), bool)}, ValueError, r"`mask` must broadcast.*\(1, 3, 5, 7\)"),
    ],
)
def test_bad_input_gets_a_sentence(arguments, error, sentence):
    arguments = {"scores": np.zeros((3, 5, 7), "float32"), **arguments}
    with pytest.raises(error, match=sentence):
        masked_softmax(**arguments)


def test_the_layer_checks_while_a_model_is_built():
    scores = keras.Input((5, 7))
    with pytest.raises(ValueError, match=r"`attention_mask` must broadcast.*\(None, 7, 5\)"):
        MaskedSoftmax()(scores, attention_mask=keras.Input((7, 5), dtype="bool"))


@pytest.mark.parametrize(
    "softmax", [masked_softmax, lambda *inputs: MaskedSoftmax()(*inputs)], ids=["function", "layer"]
)
def test_in_a_functional_model_of_unknown_sizes_and_after_a_reload(softmax, tmp_path):
    inputs = [keras.Input((None, None), name="scores"), keras.Input((), dtype="int32", name="lens")]
    outputs = softmax(*inputs)
    assert outputs.shape == (None, None, None)
    model = keras.Model(inputs, outputs)
    model.save(tmp_path / "softmax.keras")
    values = [np.random.default_rng(0).normal(size=(2, 3, 4)).astype("float32"), np.array([1, 3])]
    reloaded = keras.models.load_model(tmp_path / "softmax.keras")
    assert_identical(numpy_of(reloaded(values)), numpy_of(masked_softmax(*values)))


def test_a_single_key_is_no_mistake():
    """Keras warns of a softmax over one entry, and warnings are errors here."""
    weights = masked_softmax(np.array([[[3.0], [-50.0]], [[0.0], [1e30]]], "float32"), [1, 0])
    np.testing.assert_array_equal(weights, [[[1], [1]], [[0], [0]]])
