"""The contract of `masked_softmax` and `MaskedSoftmax`, whose input is scores, and the combination of masks."""

import inspect

import keras
import numpy as np
import pytest
import reference
from backends import compile_function, compute_gradients, every_compiled_mode, x64
from keras import ops
from layer_contract import build_error_pattern, to_float64, to_numpy
from tolerances import assert_close, assert_identical

import keras_attn
from keras_attn._maths.masks import combine_masks
from keras_attn._types import BandMask, Masks

B, Tq, Tk = 2, 3, 5
LENGTHS = {
    "none": None,
    "by_batch": np.array([3, 0]),
    "by_query": np.array([[1, 0, 9], [-2, 5, 4]]),
}
MASKS = {
    "none": None,
    "by_key": np.array([True, False, True, True, True]),
    "by_query": np.array([[True], [False], [True]]),
    "full": np.random.default_rng(8).random((B, Tq, Tk)) < 0.5,
}


def apply_function(scores, valid_lens=None, mask=None):
    return keras_attn.masked_softmax(scores, valid_lens, mask=mask)


def apply_layer(scores, valid_lens=None, mask=None):
    return keras_attn.MaskedSoftmax(dtype=keras.backend.standardize_dtype(scores.dtype))(
        scores, valid_lens, attention_mask=mask
    )


both_forms = pytest.mark.parametrize("softmax", [apply_function, apply_layer], ids=["function", "layer"])


def draw_scores(shape=(B, Tq, Tk), scale=1.0):
    return (scale * np.random.default_rng(2).normal(size=shape)).astype("float32")


@both_forms
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("lengths", LENGTHS)
def test_softmax_agrees_with_the_oracle(softmax, lengths, mask):
    scores = draw_scores()
    weights = to_numpy(softmax(scores, LENGTHS[lengths], MASKS[mask]))
    expected = reference.masked_softmax(scores, LENGTHS[lengths], MASKS[mask])
    assert_close(weights, expected, "float32")
    assert np.array_equal(weights == 0, expected == 0)


@both_forms
@pytest.mark.parametrize(
    "lengths",
    [
        np.uint8([200, 255]),
        np.int8([127, -128]),
        np.uint32([2**31, 5]),
        np.int32([2**31 - 1, -(2**31)]),
        np.int64([2**40, -(2**40)]),
    ],
    ids=lambda lengths: lengths.dtype.name,
)
def test_lengths_of_small_dtypes_do_not_wrap_around(softmax, lengths):
    """With 300 keys a comparison in the dtype of the lengths, or in int32, would wrap around."""
    scores = draw_scores((B, Tq, 300))
    expected = reference.masked_softmax(scores, lengths)
    weights = to_numpy(softmax(scores, lengths))
    assert_close(weights, expected, "float32")
    assert np.array_equal(weights == 0, expected == 0)


@both_forms
@pytest.mark.parametrize("leading", [(), (2,), (Tq,), (2, 4)], ids=["rank2", "rank3", "batch as large", "rank4"])
def test_any_number_of_leading_axes_is_accepted(softmax, leading):
    scores, rng = draw_scores((*leading, Tq, Tk)), np.random.default_rng(4)
    for shape in (leading, (*leading, Tq)):
        lengths = rng.integers(0, Tk + 1, size=shape)
        assert_close(to_numpy(softmax(scores, lengths)), reference.masked_softmax(scores, lengths), "float32")


@both_forms
@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf, 1e30])
def test_poison_in_masked_scores_does_not_change_results(softmax, poison):
    scores, lengths = draw_scores(), np.array([[1, 2, 0], [4, 3, 2]])
    dirty = np.where(np.arange(Tk) < lengths[..., None], scores, np.float32(poison))
    assert_identical(to_numpy(softmax(dirty, lengths)), to_numpy(softmax(scores, lengths)))
    upstream = np.arange(1, Tk + 1, dtype="float32")
    gradient = compute_gradients(lambda scores: ops.sum(ops.multiply(softmax(scores, lengths), upstream)), 1)
    gradients = [to_numpy(gradient(ops.convert_to_tensor(array))[0]) for array in (scores, dirty)]
    assert_identical(gradients[1], gradients[0])
    assert np.all(gradients[0][0, 2] == 0), "no gradient from the row without keys"
    assert np.all(gradients[0][np.arange(Tk) >= lengths[..., None]] == 0)
    assert np.any(gradients[0] != 0)


EVERY_DTYPE = ["float16", "bfloat16", "float32", pytest.param("float64", marks=x64)]


@both_forms
@pytest.mark.parametrize("dtype", EVERY_DTYPE)
def test_large_scores_and_empty_rows_agree_with_the_oracle(softmax, dtype):
    """Scores up to 6e4, near the maximum of float16, in which fill values of -1e9 and -1e6 are -inf."""
    scores = keras.ops.cast(draw_scores(scale=2e4).clip(-6e4, 6e4), dtype)
    lengths = np.array([[1, 5, 0], [4, 0, 5]])
    weights = to_numpy(softmax(scores, lengths))
    expected = reference.masked_softmax(to_float64(scores), lengths)
    assert_close(weights, expected, dtype)


@both_forms
@pytest.mark.parametrize("lowest", [-1e6, -1e9, -1e30])
def test_scores_below_usual_fill_values_keep_their_weights(softmax, lowest):
    """Masked scores filled with -1e6 or -1e9 would exceed these scores, and receive their weight."""
    scores, lengths = np.float32(lowest) * (1 + np.abs(draw_scores())), np.array([[2, 5, 0], [1, 3, 4]])
    weights = to_numpy(softmax(scores, lengths))
    assert_close(weights, reference.masked_softmax(scores, lengths), "float32")
    assert_close(weights.sum(-1), (lengths > 0).astype("float32"))


@pytest.mark.parametrize("dtype", [dtype for dtype in EVERY_DTYPE if dtype != "bfloat16"])
def test_scores_at_the_ends_of_the_dtype_are_exact(dtype):
    largest = float(np.finfo(dtype).max)
    scores = np.array([[largest, largest, 0, 0], [-largest / 2, 0, largest, largest]], dtype)
    weights = to_numpy(keras_attn.masked_softmax(scores, mask=np.array([[1, 1, 1, 0], [1, 0, 0, 0]], bool)))
    assert_identical(weights, np.array([[0.5, 0.5, 0, 0], [1, 0, 0, 0]], dtype))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_rounds_the_float32_result_once(dtype):
    scores = ops.cast(np.linspace(-4, 4, 9, dtype="float32")[None], dtype)
    rounded = ops.cast(ops.softmax(ops.cast(scores, "float32")), dtype)
    assert_identical(to_numpy(keras_attn.masked_softmax(scores)), to_numpy(rounded))


def test_single_key_has_weight_one_without_a_warning():
    """Keras warns of a softmax over one entry, and warnings are errors in tests."""
    weights = keras_attn.masked_softmax(np.array([[[3.0], [-50.0]], [[0.0], [1e30]]], "float32"), [1, 0])
    assert_identical(to_numpy(weights), np.float32([[[1], [1]], [[0], [0]]]))


@both_forms
@every_compiled_mode
def test_one_program_accepts_dynamic_axes(softmax, mode):
    scores, lengths, mask = draw_scores(), LENGTHS["by_query"].astype("int32"), MASKS["full"]
    signature = [((None, None, None), "float32"), ((None, None), "int32"), ((None, None, None), "bool")]
    program = compile_function(softmax, mode, signature=signature)
    weights = to_numpy(program(*map(ops.convert_to_tensor, (scores, lengths, mask))))
    assert_close(weights, reference.masked_softmax(scores, lengths, mask), "float32")


def test_options_are_restored_from_the_config():
    layer = keras_attn.MaskedSoftmax(name="weights", dtype="mixed_float16")
    assert keras_attn.MaskedSoftmax.from_config(layer.get_config()).get_config() == layer.get_config()
    options = set(inspect.signature(keras_attn.MaskedSoftmax).parameters) - {"kwargs"}
    assert options <= set(layer.get_config())


BAD = [
    ("float_lengths", {"valid_lens": np.array([1.0, 2.0])}, "valid_lens"),
    ("lengths_of_the_wrong_size", {"valid_lens": np.array([1, 2, 3])}, "valid_lens"),
    ("lengths_with_a_loose_axis", {"valid_lens": np.array([[1], [2]])}, "valid_lens"),
    ("mask_that_does_not_broadcast", {"mask": np.ones((B, Tq, Tk + 1), bool)}, "mask"),
    ("transposed_mask", {"mask": np.ones((Tk, Tq), bool)}, "mask"),
    ("integer_mask", {"mask": np.ones((Tq, Tk), int)}, "mask"),
    ("float_mask", {"mask": np.ones((B, Tq, Tk), "float32")}, "mask"),
]


@pytest.mark.parametrize(("arguments", "name"), [pytest.param(*bad[1:], id=bad[0]) for bad in BAD])
def test_bad_input_is_refused(arguments, name):
    with pytest.raises((TypeError, ValueError), match=build_error_pattern(name)):
        keras_attn.masked_softmax(draw_scores(), **arguments)
    layer_name = "attention_mask" if name == "mask" else name
    layer_arguments = {"attention_mask" if key == "mask" else key: value for key, value in arguments.items()}
    for scores in (draw_scores(), keras.Input(batch_shape=(B, Tq, Tk))):
        with pytest.raises((TypeError, ValueError), match=build_error_pattern(layer_name)):
            keras_attn.MaskedSoftmax()(scores, **layer_arguments)


@pytest.mark.parametrize("scores", [np.ones(Tk, "float32"), np.ones((B, Tk), "int32")], ids=["rank 1", "integers"])
def test_bad_scores_are_refused(scores):
    with pytest.raises((TypeError, ValueError), match=build_error_pattern("scores")):
        keras_attn.masked_softmax(scores)


@both_forms
def test_softmax_layer_is_saved_and_loaded(softmax, tmp_path):
    scores, lengths = keras.Input((None, Tk), name="scores"), keras.Input((), dtype="int32", name="lengths")
    symbolic = softmax(scores, lengths)
    assert symbolic.shape == (None, None, Tk)
    assert symbolic.dtype == "float32"
    model, inputs = keras.Model([scores, lengths], symbolic), [draw_scores(), np.array([3, 0], "int32")]
    model.save(tmp_path / "softmax.keras")
    reloaded = keras.saving.load_model(tmp_path / "softmax.keras")
    assert_close(to_numpy(model(inputs)), reference.masked_softmax(*inputs), "float32")
    assert_identical(to_numpy(reloaded(inputs)), to_numpy(model(inputs)))


NO_MASKS, ALL_PAIRS = Masks(None, None, None, None, None), BandMask()


def test_masks_of_keys_are_not_broadcast_over_queries():
    keys_mask = ops.ones((2, 5), "bool")
    masks = NO_MASKS._replace(valid_lens=ops.convert_to_tensor([1, 2]), keys_mask=keys_mask, values_mask=keys_mask)
    assert combine_masks(masks, ALL_PAIRS, 3, 5, 3).shape == (2, 1, 5)
    assert combine_masks(NO_MASKS, ALL_PAIRS, 3, 5, 3) is None
