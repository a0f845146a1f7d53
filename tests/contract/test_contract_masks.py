"""Promise 5 of every public layer: masks compose by intersection, and none is dropped or overwritten."""

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

B, Tq, Tk = 2, 6, 7  # longer than elsewhere, so that all masks together still leave keys

# Each mask hides something that no other one hides, so that dropping any of them shows.
LENGTHS = {
    "": None,
    "lengths": np.array([5, 4]),
    "lengths_by_query": np.array([[7, 7, 7, 2, 7, 3], [7, 1, 7, 7, 4, 7]]),
}
OTHERS = {
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
NAMES = [*OTHERS, *BIAS]


def subsets():
    """Sets of masks: none, each alone, each with the next, all but one, and all, with lengths of each kind in turn."""
    count = len(NAMES)
    chosen = [(n, (name,)) for n, name in enumerate(NAMES)]
    chosen += [(n + 1, (NAMES[n], NAMES[(n + 1) % count])) for n in range(count)]
    chosen += [(n + 2, tuple(other for other in NAMES if other != name)) for n, name in enumerate(NAMES)]
    chosen += [(n, names) for n in range(len(LENGTHS)) for names in ((), tuple(NAMES))]
    every = [([*LENGTHS][n % len(LENGTHS)], names) for n, names in chosen]
    return {"+".join(filter(None, [lengths, *names])) or "none": (lengths, names) for lengths, names in every}


def masks_of(lengths: str, chosen: tuple[str, ...]) -> dict:
    masks = {} if LENGTHS[lengths] is None else {"valid_lens": LENGTHS[lengths]}
    for name in chosen:
        masks |= (OTHERS | BIAS)[name]
    return masks


def ten_times(array):
    if isinstance(array, tuple) and isinstance(array[0], np.ndarray):
        return tuple(map(ten_times, array))
    return np.concatenate([array] * 10) if isinstance(array, np.ndarray) else array


@pytest.mark.parametrize("lengths", ["lengths", "lengths_by_query"])
def test_each_mask_of_the_table_masks_keys_that_no_other_masks(lengths):
    masks = masks_of(lengths, tuple(OTHERS))
    everything = reference.compute_mask((B,), Tq, Tk, **masks)
    assert everything.any()
    for name in masks:
        without = {other: mask for other, mask in masks.items() if other != name}
        assert np.any(reference.compute_mask((B,), Tq, Tk, **without) != everything), name


@parametrize_in_turn("chosen", subsets(), CASES + VARIANTS, num_slow_values=3)
def test_masks_and_a_bias_agree_with_the_oracle(case, chosen):
    layer, inputs, masks = case.layer(), case.inputs(Tq=Tq, Tk=Tk), masks_of(*chosen)
    output, weights = compute_outputs(layer, inputs, masks)
    expected_output, expected_weights = compute_expected(case, layer, inputs, masks)
    assert_close(output, expected_output, "float32")
    assert_close(weights, expected_weights, "float32")
    assert np.array_equal(weights == 0, expected_weights == 0)
    assert_identical(to_numpy(call_layer(layer, inputs, masks)), output)
    if "keys_mask" not in masks:  # which a state carries itself
        state = layer.precompute(inputs["keys"])
        assert set(state) == {"projected_keys"}
        assert_close(compute_outputs(layer, inputs | {"keys": state}, masks)[0], expected_output, "float32")


@parametrize_in_turn("chosen", subsets(), num_slow_values=3)
def test_masks_and_a_bias_hold_under_dropout(case, chosen):
    """Values are the unit vectors, so that the output is the dropped weights: each is 0 or weight / (1 - rate).

    Keras once lost the causal mask here (keras#23038).
    """
    inputs, masks = case.inputs(Tq=Tq, Tk=Tk, Dv=Tk), masks_of(*chosen)
    inputs["values"] = np.broadcast_to(np.eye(Tk, dtype="float32"), (B, Tk, Tk))
    layer = case.layer(inputs, dropout=0.3, seed=13)
    _, expected_weights = compute_expected(case, layer, inputs, masks)
    # The batch ten times over, so that a mask that leaves few pairs still has some dropped and some kept.
    inputs, masks = ({name: ten_times(array) for name, array in group.items()} for group in (inputs, masks))
    expected_weights = ten_times(expected_weights)
    dropped, weights = compute_outputs(layer, inputs, masks, training=True)
    assert_close(weights, expected_weights, "float32")  # those before dropout
    kept = dropped != 0
    assert not np.any(kept & (expected_weights == 0))
    assert_close(dropped, np.where(kept, weights / 0.7, 0), tolerance=1e-5)
    assert np.any(kept)
    assert np.any(~kept & (expected_weights > 0))
    assert_close(to_numpy(call_layer(layer, inputs, masks, training=False)), expected_weights, "float32")


@every_case
def test_attention_mask_of_any_broadcasting_shape_is_taken(case):
    layer, inputs, rng = case.layer(), case.inputs(Tq=Tq, Tk=Tk), np.random.default_rng(2)
    for shape in ((Tk,), (1, Tk), (Tq, 1), (Tq, Tk), (B, 1, Tk), (B, Tq, 1), (1, Tq, Tk), (B, Tq, Tk), (1, 1, 1), ()):
        masks = {"attention_mask": rng.random(shape) < 0.7}
        assert_close(
            compute_outputs(layer, inputs, masks)[1], compute_expected(case, layer, inputs, masks)[1], "float32"
        )


@parametrize_in_turn(
    "dtype", {dtype: dtype for dtype in ("int8", "uint8", "int16", "int32", "uint32", "int64")}, num_slow_values=1
)
def test_lengths_of_any_integer_dtype_or_a_list_are_taken(case, dtype):
    layer, inputs, lengths = case.layer(), case.inputs(Tq=Tq, Tk=Tk), np.array([np.iinfo(dtype).max, 0], dtype)
    oracle = compute_expected(case, layer, inputs, {"valid_lens": lengths})[0]
    for given in (lengths, [Tk + 1, 0]):  # Keras takes a list by keyword only
        assert_close(to_numpy(layer(**inputs, valid_lens=given)), oracle, "float32")


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
    layer, inputs, mask = case.layer(), case.inputs(Tq=Tq, Tk=Tk), OTHERS["queries"]["queries_mask"]
    for weights_too in (False, True):
        result = call_layer(layer, inputs, {"queries_mask": mask}, return_attention_scores=weights_too)
        output = result[0] if weights_too else result
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
    pooled = keras.layers.GlobalAveragePooling1D()(output)  # a mean over the rows that its mask lets through
    model = keras.Model([tokens, keys, values], pooled)
    ones = np.ones((B, Tk, 1), "float32")  # a weighted mean of ones is 1 in each row with keys
    result = model([np.array([[1, 0, 2, 4], [0, 0, 3, 0]], "int32"), case.inputs(Tq=Tq, Tk=Tk)["keys"], ones])
    assert_close(to_numpy(result), np.ones((B, 1), "float32"))


@parametrize_in_turn("weights_too", {"output": False, "both": True}, num_slow_values=0)
def test_nan_in_masked_queries_changes_nothing(case, weights_too):
    layer, inputs, mask = case.layer(), case.inputs(Tq=Tq, Tk=Tk), OTHERS["queries"]["queries_mask"]
    dirty = inputs | {"queries": np.where(mask[..., None], inputs["queries"], np.float32(np.nan))}
    clean = call_layer(layer, inputs, {"queries_mask": mask}, return_attention_scores=weights_too)
    result = call_layer(layer, dirty, {"queries_mask": mask}, return_attention_scores=weights_too)
    for tensor, clean_tensor in zip(keras.tree.flatten(result), keras.tree.flatten(clean), strict=True):
        assert_identical(to_numpy(tensor), to_numpy(clean_tensor))
