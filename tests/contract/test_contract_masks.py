"""Promise 5 of every public layer: masks are combined by intersection, and no mask is ignored."""

import keras
import numpy as np
import pytest
import reference
from backends import attach_mask, read_mask
from layer_contract import (
    CASES,
    VARIANTS,
    call_layer,
    compute_expected,
    compute_outputs,
    every_case,
    parametrize_in_turn,
    to_numpy,
)
from tolerances import assert_close, assert_identical

B, Tq, Tk = 2, 6, 7  # larger than in other contract tests, so that all masks together leave some keys

# Each mask removes a pair that no other mask removes, so a test detects that a mask is ignored.
LENGTHS = {
    "": None,
    "lengths": np.array([5, 4]),
    "lengths_by_query": np.array([[7, 7, 7, 2, 7, 3], [7, 1, 7, 7, 4, 7]]),
}
MASKS = {
    "mask": {"attention_mask": np.random.default_rng(0).random((B, Tq, Tk)) < 0.8},
    "causal": {"causal": True},
    "queries": {"queries_mask": np.arange(Tq) != np.array([[2], [0]])},
    "keys": {"keys_mask": np.arange(Tk) != np.array([[1], [3]])},
    "values": {"values_mask": np.arange(Tk) != np.array([[3], [2]])},
    "window": {"window": (4, 3)},
    "segments": {
        "segment_ids": (np.array([[0, 1, 1, 0, 0, 0], [0] * Tq]), np.array([[0, 0, 0, 0, 0, 0, 1], [0] * Tk])),
    },
}
BIAS = {"bias": {"score_bias": 2 * np.random.default_rng(5).normal(size=(B, Tq, Tk)).astype("float32")}}
NAMES = [*MASKS, *BIAS]


def list_subsets():
    """Return sets of masks: none, single masks, pairs, all but one, and all, with kinds of lengths in turn."""
    count = len(NAMES)
    subsets = [(n, (name,)) for n, name in enumerate(NAMES)]
    subsets += [(n + 1, (NAMES[n], NAMES[(n + 1) % count])) for n in range(count)]
    subsets += [(n + 2, tuple(other for other in NAMES if other != name)) for n, name in enumerate(NAMES)]
    subsets += [(n, names) for n in range(len(LENGTHS)) for names in ((), tuple(NAMES))]
    with_lengths = [([*LENGTHS][n % len(LENGTHS)], names) for n, names in subsets]
    return {"+".join(filter(None, [lengths, *names])) or "none": (lengths, names) for lengths, names in with_lengths}


def build_masks(lengths: str, names: tuple[str, ...]) -> dict:
    masks = {} if LENGTHS[lengths] is None else {"valid_lens": LENGTHS[lengths]}
    for name in names:
        masks |= (MASKS | BIAS)[name]
    return masks


def repeat_batch(array):
    if isinstance(array, tuple) and isinstance(array[0], np.ndarray):
        return tuple(map(repeat_batch, array))
    return np.concatenate([array] * 10) if isinstance(array, np.ndarray) else array


@pytest.mark.parametrize("lengths", ["lengths", "lengths_by_query"])
def test_each_mask_of_the_table_removes_pairs_that_no_other_mask_removes(lengths):
    masks = build_masks(lengths, tuple(MASKS))
    intersection = reference.compute_mask((B,), Tq, Tk, **masks)
    assert intersection.any()
    for name in masks:
        remaining = {other: mask for other, mask in masks.items() if other != name}
        assert np.any(reference.compute_mask((B,), Tq, Tk, **remaining) != intersection), name


@parametrize_in_turn("subset", list_subsets(), CASES + VARIANTS, num_slow_values=3)
def test_masks_and_a_bias_agree_with_the_oracle(case, subset):
    layer, inputs, masks = case.layer(), case.inputs(Tq=Tq, Tk=Tk), build_masks(*subset)
    output, weights = compute_outputs(layer, inputs, masks)
    expected_output, expected_weights = compute_expected(case, layer, inputs, masks)
    assert_close(output, expected_output, "float32")
    assert_close(weights, expected_weights, "float32")
    assert np.array_equal(weights == 0, expected_weights == 0)
    assert_identical(to_numpy(call_layer(layer, inputs, masks)), output)
    if "keys_mask" not in masks:  # a state stores the mask of its keys
        state = layer.precompute(inputs["keys"])
        assert set(state) == {"projected_keys"}
        assert_close(compute_outputs(layer, inputs | {"keys": state}, masks)[0], expected_output, "float32")


@parametrize_in_turn("subset", list_subsets(), num_slow_values=3)
def test_masks_and_a_bias_apply_with_dropout(case, subset):
    """Values are the unit vectors, so the output is the weights after dropout: 0 or weight / (1 - rate).

    Keras ignored the causal mask in this case (keras#23038).
    """
    inputs, masks = case.inputs(Tq=Tq, Tk=Tk, Dv=Tk), build_masks(*subset)
    inputs["values"] = np.broadcast_to(np.eye(Tk, dtype="float32"), (B, Tk, Tk))
    layer = case.layer(inputs, dropout=0.3, seed=13)
    _, expected_weights = compute_expected(case, layer, inputs, masks)
    # Ten copies of the batch: even with few unmasked pairs, dropout removes some weights and keeps some.
    inputs, masks = ({name: repeat_batch(array) for name, array in group.items()} for group in (inputs, masks))
    expected_weights = repeat_batch(expected_weights)
    dropped, weights = compute_outputs(layer, inputs, masks, training=True)
    assert_close(weights, expected_weights, "float32")  # before dropout
    is_kept = dropped != 0
    assert not np.any(is_kept & (expected_weights == 0))
    assert_close(dropped, np.where(is_kept, weights / 0.7, 0), tolerance=1e-5)
    assert np.any(is_kept)
    assert np.any(~is_kept & (expected_weights > 0))
    assert_close(to_numpy(call_layer(layer, inputs, masks, training=False)), expected_weights, "float32")


@every_case
def test_attention_mask_may_have_any_broadcasting_shape(case):
    layer, inputs, rng = case.layer(), case.inputs(Tq=Tq, Tk=Tk), np.random.default_rng(2)
    for shape in ((Tk,), (1, Tk), (Tq, 1), (Tq, Tk), (B, 1, Tk), (B, Tq, 1), (1, Tq, Tk), (B, Tq, Tk), (1, 1, 1), ()):
        masks = {"attention_mask": rng.random(shape) < 0.7}
        _, expected_weights = compute_expected(case, layer, inputs, masks)
        assert_close(compute_outputs(layer, inputs, masks)[1], expected_weights, "float32")


@parametrize_in_turn(
    "dtype", {dtype: dtype for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64")}, num_slow_values=1
)
def test_lengths_may_have_any_integer_dtype_or_be_a_list(case, dtype):
    layer, inputs, lengths = case.layer(), case.inputs(Tq=Tq, Tk=Tk), np.array([np.iinfo(dtype).max, 0], dtype)
    oracle = compute_expected(case, layer, inputs, {"valid_lens": lengths})[0]
    for valid_lens in (lengths, [Tk + 1, 0]):  # Keras accepts a list by keyword only
        assert_close(to_numpy(layer(**inputs, valid_lens=valid_lens)), oracle, "float32")


@parametrize_in_turn("name", {name: name for name in ("queries", "keys", "values")}, num_slow_values=0)
def test_explicit_mask_takes_precedence_over_an_implicit_one(case, name):
    layer, inputs = case.layer(), case.inputs(Tq=Tq, Tk=Tk)
    size = Tq if name == "queries" else Tk
    implicit = np.arange(size) != np.array([[0], [1]])
    explicit = np.arange(size) != np.array([[2], [0]])
    tensors = inputs | {name: attach_mask(inputs[name], implicit)}
    pair = layer(**tensors, **{f"{name}_mask": explicit}, return_attention_scores=True)
    assert_close(to_numpy(pair[1]), compute_expected(case, layer, inputs, {f"{name}_mask": explicit})[1], "float32")


@every_case
def test_queries_mask_zeroes_its_rows_and_is_the_mask_of_the_output(case):
    layer, inputs, mask = case.layer(), case.inputs(Tq=Tq, Tk=Tk), MASKS["queries"]["queries_mask"]
    for returns_weights in (False, True):
        result = call_layer(layer, inputs, {"queries_mask": mask}, return_attention_scores=returns_weights)
        output = result[0] if returns_weights else result
        assert np.all(to_numpy(output)[~mask] == 0)
        assert np.all(np.any(to_numpy(output)[mask] != 0, axis=-1))
        assert np.array_equal(to_numpy(read_mask(output)), mask)
    assert np.array_equal(to_numpy(layer.compute_mask(inputs["queries"], mask)), mask)
    assert layer.compute_mask(inputs["queries"], None) is None
    assert read_mask(call_layer(layer, inputs)) is None


@every_case
def test_mask_of_the_output_reaches_the_next_layer_of_a_functional_model(case):
    tokens = keras.Input((None,), dtype="int32")
    keys, values = keras.Input((None, case.Dk)), keras.Input((None, 1))
    layer = case.make()
    output = layer(keras.layers.Embedding(5, case.Dq, mask_zero=True)(tokens), keys, values)
    pooled = keras.layers.GlobalAveragePooling1D()(output)  # a mean over the unmasked rows
    model = keras.Model([tokens, keys, values], pooled)
    ones = np.ones((B, Tk, 1), "float32")  # a weighted mean of ones is 1 in each row with keys
    result = model([np.array([[1, 0, 2, 4], [0, 0, 3, 0]], "int32"), case.inputs(Tq=Tq, Tk=Tk)["keys"], ones])
    assert_close(to_numpy(result), np.ones((B, 1), "float32"))


@parametrize_in_turn("returns_weights", {"output": False, "both": True}, num_slow_values=0)
def test_nan_in_masked_queries_does_not_change_results(case, returns_weights):
    layer, inputs, mask = case.layer(), case.inputs(Tq=Tq, Tk=Tk), MASKS["queries"]["queries_mask"]
    dirty = inputs | {"queries": np.where(mask[..., None], inputs["queries"], np.float32(np.nan))}
    clean = call_layer(layer, inputs, {"queries_mask": mask}, return_attention_scores=returns_weights)
    result = call_layer(layer, dirty, {"queries_mask": mask}, return_attention_scores=returns_weights)
    for tensor, clean_tensor in zip(keras.tree.flatten(result), keras.tree.flatten(clean), strict=True):
        assert_identical(to_numpy(tensor), to_numpy(clean_tensor))
