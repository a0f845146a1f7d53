"""Properties of every public layer for random sizes and masks, in float64 because rounding errors hide violations."""

import numpy as np
import pytest
from backends import COMPILES_EACH_SIZE, get_precision, x64
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from layer_contract import CASES, call_layer, compute_outputs, to_numpy
from tolerances import assert_close, assert_identical

import keras_attn

pytestmark = x64
bounded = settings(
    max_examples=2 if COMPILES_EACH_SIZE else 15,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # the examples are small already, and shrinking takes half a minute
    suppress_health_check=[HealthCheck.function_scoped_fixture],  # only the seed fixture has function scope
)

SIZES = st.fixed_dictionaries(
    {
        "leading": st.sampled_from([(1,), (2,), (3,), (2, 2)]),
        "Tq": st.integers(1, 4),
        "Tk": st.integers(1, 5),
        "Dv": st.integers(1, 3),
    }
)
ROUNDING = None if get_precision("float64") == "float64" else 1e-5  # replaces the tolerance of float64
SEEDS = st.integers(0, 2**32 - 1)


def parametrize_half(start):
    """Parametrize `case` with every second layer from index `start`."""
    return pytest.mark.parametrize("case", CASES[start::2], ids=lambda case: case.name)


def draw_example(case, sizes: dict, seed: int):
    """Return a float64 layer, its inputs, a random mask, and the generator for further draws."""
    inputs = {name: array.astype("float64") for name, array in case.inputs(seed, **sizes).items()}
    rng = np.random.default_rng(seed)
    mask = rng.random((*sizes["leading"], sizes["Tq"], sizes["Tk"])) < rng.random()
    return case.layer(inputs, dtype="float64"), inputs, mask, rng


@parametrize_half(0)
@bounded
@given(sizes=SIZES, seed=SEEDS, data=st.data())
def test_masking_a_key_equals_deleting_it(case, sizes, seed, data):
    layer, inputs, mask, _ = draw_example(case, sizes, seed)
    j = data.draw(st.integers(0, sizes["Tk"] - 1), label="key")
    keys_mask = np.broadcast_to(np.arange(sizes["Tk"]) != j, (*sizes["leading"], sizes["Tk"]))
    masked, weights = compute_outputs(layer, inputs, {"attention_mask": mask, "keys_mask": keys_mask})
    fewer_keys = inputs | {name: np.delete(inputs[name], j, axis=-2) for name in ("keys", "values")}
    deleted, fewer_weights = compute_outputs(layer, fewer_keys, {"attention_mask": np.delete(mask, j, axis=-1)})
    assert_close(masked, deleted, tolerance=ROUNDING)
    assert_close(np.delete(weights, j, axis=-1), fewer_weights, tolerance=ROUNDING)
    assert np.all(weights[..., j] == 0)
    assert np.all(weights[~mask] == 0)
    assert np.all(weights >= 0)
    assert_close(weights.sum(-1), (mask & keys_mask[..., None, :]).any(-1).astype("float64"), tolerance=ROUNDING)


@parametrize_half(1)
@bounded
@given(sizes=SIZES, seed=SEEDS)
def test_permuting_keys_with_values_does_not_change_outputs(case, sizes, seed):
    layer, inputs, mask, rng = draw_example(case, sizes, seed)
    order = rng.permutation(sizes["Tk"])
    output, weights = compute_outputs(layer, inputs, {"attention_mask": mask})
    shuffled = inputs | {name: inputs[name][..., order, :] for name in ("keys", "values")}
    output_shuffled, weights_shuffled = compute_outputs(layer, shuffled, {"attention_mask": mask[..., order]})
    assert_close(output_shuffled, output, tolerance=ROUNDING)
    assert_close(weights_shuffled, weights[..., order], tolerance=ROUNDING)


@parametrize_half(0)
@bounded
@given(sizes=SIZES, seed=SEEDS)
def test_future_keys_do_not_change_causal_rows(case, sizes, seed):
    layer, inputs, mask, rng = draw_example(case, sizes, seed)
    masks = {"attention_mask": mask, "causal": True}
    step = int(rng.integers(0, sizes["Tq"]))
    future = {name: array.copy() for name, array in inputs.items()}
    for name in ("keys", "values"):
        future[name][..., step + 1 :, :] = 100 * rng.normal(size=future[name][..., step + 1 :, :].shape)
    before, after = compute_outputs(layer, inputs, masks), compute_outputs(layer, future, masks)
    assert_identical(after[0][..., : step + 1, :], before[0][..., : step + 1, :])
    assert_identical(after[1][..., : step + 1, :], before[1][..., : step + 1, :])


@pytest.mark.slow
@parametrize_half(1)
@bounded
@given(sizes=SIZES, seed=SEEDS, scale=st.floats(-3, 3), shift=st.floats(-3, 3))
def test_output_is_linear_in_the_values(case, sizes, seed, scale, shift):
    """A shift of all values shifts the rows with keys; fully masked rows stay zeros."""
    layer, inputs, mask, _ = draw_example(case, sizes, seed)
    shifted = inputs | {"values": scale * inputs["values"] + shift}
    output = compute_outputs(layer, inputs, {"attention_mask": mask})[0]
    actual = to_numpy(call_layer(layer, shifted, {"attention_mask": mask}))
    expected = np.where(mask.any(-1)[..., None], scale * output + shift, 0.0)
    assert_close(actual, expected, tolerance=ROUNDING or 1e-11)  # cancellation loses digits


@bounded
@given(sizes=SIZES, seed=SEEDS, constants=st.sampled_from([1.0, -30.0, 1e4]))
def test_constant_added_to_the_scores_of_a_query_does_not_change_weights(sizes, seed, constants):
    rng = np.random.default_rng(seed)
    shape = (*sizes["leading"], sizes["Tq"], sizes["Tk"])
    scores, mask = rng.normal(size=shape), rng.random(shape) < 0.6
    shifted = scores + constants * rng.normal(size=(*shape[:-1], 1))
    weights = to_numpy(keras_attn.masked_softmax(scores, mask=mask))
    # A score near 1e4 keeps 12 digits after the point.
    assert_close(to_numpy(keras_attn.masked_softmax(shifted, mask=mask)), weights, "float64", tolerance=1e-10)
