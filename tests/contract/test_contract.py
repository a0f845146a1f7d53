"""Promises 1 to 3 of every public layer: normalized weights, fully masked queries and no leaks from masked entries.

The further promises are in test_contract_*.py; the table of layers is in layer_contract.py.
"""

import inspect

import keras
import numpy as np
import pytest
import reference
from backends import COMPILED_MODES, MODES, get_precision, x64
from layer_contract import (
    CASES,
    COVERED,
    VARIANTS,
    B,
    Dv,
    Tk,
    Tq,
    compute_expected,
    compute_layer_gradients,
    compute_outputs,
    every_case,
    parametrize_in_turn,
)
from tolerances import assert_close, assert_identical

import keras_attn

PADDING = {  # the same padding for all queries as different masks: keys 3 and 4 of entry 0, and key 4 of entry 1
    "valid_lens": {"valid_lens": np.array([3, 4])},
    "keys_mask": {"keys_mask": np.arange(Tk) < np.array([[3], [4]])},
    "values_mask": {"values_mask": np.arange(Tk) < np.array([[3], [4]])},
    "attention_mask": {"attention_mask": (np.arange(Tk) < np.array([[3], [4]]))[:, None, :]},
}
PADDED = np.arange(Tk) >= np.array([[3], [4]])
POISON = {"nan": np.nan, "inf": np.inf, "minus_inf": -np.inf, "1e30": 1e30}
POISONED = {f"{kind}-{name}": (PADDING[kind], poison) for kind in PADDING for name, poison in POISON.items()}


def poison_padding(inputs: dict, names: tuple[str, ...], poison: float) -> dict:
    """Return the inputs with `poison` in the padded rows of the named tensors."""
    return {
        name: np.where(PADDED[..., None], np.float32(poison), array) if name in names else array
        for name, array in inputs.items()
    }


def test_table_covers_every_public_layer():
    public = {getattr(keras_attn, name) for name in keras_attn.__all__}
    assert {cls for cls in public if inspect.isclass(cls) and issubclass(cls, keras.layers.Layer)} == COVERED


BIAS = 2 * np.random.default_rng(5).normal(size=(B, Tq, Tk)).astype("float32")
DTYPES = {name: name for name in ("float32", "float16", "bfloat16")}


@parametrize_in_turn("dtype", {"float64": pytest.param("float64", marks=x64), **DTYPES})
def test_weights_are_a_distribution_over_unmasked_keys(case, dtype):
    masks = {"valid_lens": np.array([[1, 2, 5], [4, 0, 3]])}
    layer, inputs = case.layer(dtype=dtype), case.inputs()
    _, weights = compute_outputs(layer, inputs, masks)
    sums = weights.astype("float64").sum(-1)
    is_unmasked = np.arange(Tk) < masks["valid_lens"][..., None]
    assert np.all(weights[~is_unmasked] == 0), "masked weights must be exact zeros"
    assert np.all(weights >= 0)
    # Each of up to Tk weights is rounded once to the dtype; the sum itself is in float64 here.
    spacings = {"float64": 2.0**-52, "float32": 2.0**-23, "float16": 2.0**-10, "bfloat16": 2.0**-7}
    spacing = spacings[get_precision(dtype)]
    np.testing.assert_allclose(sums, is_unmasked.any(-1), atol=Tk * spacing, rtol=0)
    biased = compute_outputs(layer, inputs, masks | {"score_bias": BIAS})
    for poison in POISON.values():  # in the bias of masked pairs
        dirty = compute_outputs(layer, inputs, masks | {"score_bias": np.where(is_unmasked, BIAS, np.float32(poison))})
        assert_identical(dirty[0], biased[0])
        assert_identical(dirty[1], biased[1])


MODES_AND_BIASES = {mode: (mode, False) for mode in MODES} | {f"{mode}-bias": (mode, True) for mode in MODES}


@x64
@parametrize_in_turn("mode_and_bias", MODES_AND_BIASES, CASES + VARIANTS, num_slow_values=1)
def test_gradients_equal_finite_differences_of_the_oracle(case, mode_and_bias):
    """Directional derivatives in float64: central differences of the oracle against gradients of the layer."""
    mode, has_bias = mode_and_bias
    masks = {"valid_lens": np.array([[1, 2, 5], [4, 0, 3]]), "causal": True}
    layer, step, rng = case.layer(dtype="float64"), 1e-6, np.random.default_rng(3)
    relative, absolute = (1e-6, 1e-8) if get_precision("float64") == "float64" else (1e-5, 1e-5)
    inputs = {name: array.astype("float64") for name, array in case.inputs().items()}
    inputs |= {"score_bias": BIAS.astype("float64")} if has_bias else {}
    upstream = rng.normal(size=(*inputs["queries"].shape[:-1], inputs["values"].shape[-1]))
    computed = compute_layer_gradients(layer, inputs, masks, upstream=upstream, mode=mode)

    def loss(shifted: dict) -> float:
        return float(np.sum(upstream * compute_expected(case, layer, shifted, masks)[0]))

    for name, array in inputs.items():
        direction = rng.normal(size=array.shape)
        shifts = [loss(inputs | {name: array + sign * step * direction}) for sign in (1, -1)]
        difference = (shifts[0] - shifts[1]) / (2 * step)
        assert np.sum(computed[name] * direction) == pytest.approx(difference, rel=relative, abs=absolute), name
    if has_bias:
        is_unmasked = reference.compute_mask((B,), Tq, Tk, **masks)
        assert np.all(computed["score_bias"][~is_unmasked] == 0)
    for variable in layer.trainable_variables:
        value, direction = keras.ops.convert_to_numpy(variable), rng.normal(size=variable.shape)
        shifts = []
        for sign in (1, -1):
            variable.assign(value + sign * step * direction)
            shifts.append(loss(inputs))
        variable.assign(value)
        difference = (shifts[0] - shifts[1]) / (2 * step)
        gradient = np.sum(computed[variable.path] * direction)
        assert gradient == pytest.approx(difference, rel=relative, abs=absolute), variable.path


EMPTY_ROWS = {  # masks that remove all keys of entry 0
    "length_zero": {"valid_lens": np.array([0, 4])},
    "negative_length": {"valid_lens": np.array([-3, 4])},
    "lengths_by_query": {"valid_lens": np.array([[0, 0, 0], [4, 4, 4]])},
    "attention_mask": {"attention_mask": np.array([False, True]).reshape(2, 1, 1)},
    "full_attention_mask": {"attention_mask": np.broadcast_to(np.array([False, True]).reshape(2, 1, 1), (2, Tq, Tk))},
    "keys_mask": {"keys_mask": np.broadcast_to(np.array([[False], [True]]), (2, Tk))},
    "values_mask": {"values_mask": np.broadcast_to(np.array([[False], [True]]), (2, Tk))},
    "queries_mask": {"queries_mask": np.broadcast_to(np.array([[False], [True]]), (2, Tq))},
    "disjoint_masks": {"valid_lens": np.array([2, 4]), "attention_mask": np.arange(Tk) >= np.array([[[2]], [[0]]])},
}


@parametrize_in_turn("masks", EMPTY_ROWS)
def test_row_without_keys_gives_zero_weights_and_output(case, masks):
    layer, inputs = case.layer(), case.inputs()
    output, weights = compute_outputs(layer, inputs, masks)
    assert np.all(output[0] == 0)
    assert np.all(weights[0] == 0)
    assert_close(output[1], compute_expected(case, layer, inputs, masks)[0][1], "float32")
    # The second row of the batch does not depend on whether the first row has keys.
    full_output, full_weights = compute_outputs(layer, inputs, unmask_first_row(masks))
    assert np.any(full_output[0] != 0)
    assert_identical(output[1], full_output[1])
    assert_identical(weights[1], full_weights[1])


def unmask_first_row(masks: dict) -> dict:
    return {name: np.stack([mask[1], mask[1]]) for name, mask in masks.items()}


COMPILED_ROWS = ("length_zero", "full_attention_mask", "queries_mask")
ROWS = {f"eager-{kind}": ("eager", masks) for kind, masks in EMPTY_ROWS.items()}
ROWS |= {f"{mode}-{kind}": (mode, EMPTY_ROWS[kind]) for mode in MODES if mode != "eager" for kind in COMPILED_ROWS}


@parametrize_in_turn("mode_and_masks", ROWS)
def test_row_without_keys_gives_zero_gradient(case, mode_and_masks):
    (mode, masks), layer, inputs = mode_and_masks, case.layer(), case.inputs()
    computed = compute_layer_gradients(layer, inputs, masks, mode=mode)
    full_gradients = compute_layer_gradients(layer, inputs, unmask_first_row(masks), mode=mode)
    for name in inputs:
        assert np.all(computed[name][0] == 0), name
        assert np.any(full_gradients[name][0] != 0), name
        assert_identical(computed[name][1], full_gradients[name][1])


@parametrize_in_turn("poisoning", POISONED)
def test_poison_in_masked_keys_and_values_changes_no_output(case, poisoning):
    (masks, poison), layer, inputs = poisoning, case.layer(), case.inputs()
    clean = compute_outputs(layer, inputs, masks)
    for names in (("keys",), ("values",), ("keys", "values")):
        dirty = compute_outputs(layer, poison_padding(inputs, names, poison), masks)
        assert_identical(dirty[0], clean[0])
        assert_identical(dirty[1], clean[1])
    assert_close(clean[0], compute_expected(case, layer, inputs, masks)[0], "float32")


@parametrize_in_turn("poisoning", {name: pair for name, pair in POISONED.items() if "minus" not in name})
def test_poison_in_masked_keys_and_values_changes_no_gradient(case, poisoning):
    (masks, poison), layer, inputs = poisoning, case.layer(), case.inputs()
    clean = compute_layer_gradients(layer, inputs, masks)
    dirty = compute_layer_gradients(layer, poison_padding(inputs, ("keys", "values"), poison), masks)
    for name, gradient in clean.items():
        assert_identical(dirty[name], gradient)
    for name in ("keys", "values"):
        assert np.all(clean[name][PADDED] == 0), name
        assert np.any(clean[name][~PADDED] != 0), name


@every_case
def test_poison_in_an_entry_without_keys_does_not_change_results(case):
    """Queries, keys and values of entry 0 are NaN: the output rows of the entry stay zeros."""
    layer, inputs, masks = case.layer(), case.inputs(), {"valid_lens": np.array([0, 4])}
    clean, clean_gradients = compute_outputs(layer, inputs, masks), compute_layer_gradients(layer, inputs, masks)
    first = np.arange(B)[:, None, None] == 0
    dirty_inputs = {name: np.where(first, np.float32(np.nan), array) for name, array in inputs.items()}
    dirty = compute_outputs(layer, dirty_inputs, masks)
    dirty_gradients = compute_layer_gradients(layer, dirty_inputs, masks)
    assert_identical(dirty[0], clean[0])
    assert_identical(dirty[1], clean[1])
    for name, gradient in clean_gradients.items():
        assert_identical(dirty_gradients[name], gradient)


QUERY_MASKS = {  # masks that remove the last key for all queries but the last
    "causal": {"causal": True},
    "window": {"window": (1, 2)},
    "lengths_by_query": {"valid_lens": np.array([[1, 2, Tk], [3, 4, Tk]])},
    "attention_mask": {"attention_mask": np.arange(Tk) < np.array([[2], [3], [Tk]])},
}


LEAKS = {f"{kind}-{sign}": (masks, sign * 1e4) for kind, masks in QUERY_MASKS.items() for sign in (1, -1)}


@parametrize_in_turn("leak", LEAKS)
def test_finite_garbage_does_not_leak_through_a_mask_by_query(case, leak):
    """Garbage in the key that only the last query attends to: further rows and their gradients do not change."""
    (masks, garbage), layer, inputs = leak, case.layer(), case.inputs(Tk=Tk)
    masked_key = Tq - 1 if "causal" in masks else Tk - 1
    dirty_inputs = {name: array.copy() for name, array in inputs.items()}
    dirty_inputs["keys"][:, masked_key] = dirty_inputs["values"][:, masked_key] = garbage
    clean, dirty = compute_outputs(layer, inputs, masks), compute_outputs(layer, dirty_inputs, masks)
    assert_identical(dirty[0][:, :-1], clean[0][:, :-1])
    assert_identical(dirty[1][:, :-1], clean[1][:, :-1])
    assert np.any(dirty[0][:, -1] != clean[0][:, -1]), "the last query must attend to the garbage"

    upstream = np.ones_like(clean[0])
    upstream[:, -1] = 0
    clean_gradients = compute_layer_gradients(layer, inputs, masks, upstream=upstream)
    dirty_gradients = compute_layer_gradients(layer, dirty_inputs, masks, upstream=upstream)
    for name, gradient in clean_gradients.items():
        assert_identical(dirty_gradients[name], gradient)


@parametrize_in_turn("masks", EMPTY_ROWS)
def test_row_without_keys_adds_nothing_to_the_gradient_of_the_weights(case, masks):
    layer, inputs = case.layer(), case.inputs()
    computed = compute_layer_gradients(layer, inputs, masks)
    second_row = {name: array[1:] for name, array in inputs.items()}
    upstream = np.arange(1.0, B * Tq * Dv + 1).reshape(B, Tq, Dv)[1:]
    second_masks = {name: mask[1:] for name, mask in masks.items()}
    expected = compute_layer_gradients(layer, second_row, second_masks, upstream=upstream)
    # Gradients by the values test layers without weights.
    assert_close(computed["values"][1:], expected["values"], tolerance=1e-5)  # sums over queries of numbers up to 36
    if layer.trainable_variables:
        # Relative to the largest: a bias of keys shifts all scores of a row, so its gradient is only rounding error.
        scale = max(np.abs(expected[variable.path]).max() for variable in layer.trainable_variables)
        assert np.isfinite(scale)
    for variable in layer.trainable_variables:
        assert_close(computed[variable.path] / scale, expected[variable.path] / scale)


@pytest.mark.slow
@parametrize_in_turn("mode", {mode: mode for mode in COMPILED_MODES}, num_slow_values=0)
def test_poison_changes_no_gradient_when_compiled(case, mode):
    layer, inputs, masks = case.layer(), case.inputs(), PADDING["valid_lens"]
    clean = compute_layer_gradients(layer, inputs, masks, mode=mode)
    dirty = compute_layer_gradients(layer, poison_padding(inputs, ("keys", "values"), np.nan), masks, mode=mode)
    for name, gradient in clean.items():
        assert_identical(dirty[name], gradient)


@every_case
def test_uniform_weights_give_hand_computed_means(case):
    """Equal keys give uniform weights: over rows 4j + (0, 1, 2, 3) of values, the mean of j is 0.5 and 2.5."""
    queries = np.random.default_rng(0).normal(size=(2, 1, 2 if case.Dq == case.Dk else 20)).astype("float32")
    inputs = {"queries": queries, "keys": np.ones((2, 10, 2), "float32")}
    inputs["values"] = np.repeat(np.arange(40, dtype="float32").reshape(1, 10, 4), 2, axis=0)
    output, weights = compute_outputs(case.make(dropout=0.1), inputs, {"valid_lens": np.array([2, 6])})
    assert_close(output, np.float32([[[2, 3, 4, 5]], [[10, 11, 12, 13]]]))
    assert_close(weights, np.float32([[[1 / 2] * 2 + [0] * 8], [[1 / 6] * 6 + [0] * 4]]))
