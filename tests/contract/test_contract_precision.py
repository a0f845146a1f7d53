"""Promises 4 and 9 of every public layer: half precision, mixed policies, and LoRA and int8 in Dense sublayers."""

import keras
import numpy as np
import pytest
import reference
from backends import FIT_MODES
from layer_contract import (
    CASES,
    B,
    Tk,
    Tq,
    build_lengths_model,
    call_layer,
    compute_expected,
    compute_layer_gradients,
    compute_outputs,
    draw_weights,
    parametrize_in_turn,
    read_weights,
    save_and_load,
    to_float64,
    to_numpy,
)
from tolerances import assert_close, assert_identical

HALVES = {
    "float16": ("float16", "float16"),  # policy: dtype of compute, of variables
    "bfloat16": ("bfloat16", "bfloat16"),
    "mixed_float16": ("float16", "float32"),
    "mixed_bfloat16": ("bfloat16", "float32"),
}
every_half = parametrize_in_turn("policy", {name: name for name in HALVES}, num_slow_values=1)
every_mixed = parametrize_in_turn("policy", {name: name for name in HALVES if "mixed" in name}, num_slow_values=0)
MASKS = {"valid_lens": np.array([[1, 0, 5], [4, 3, 0]])}
EMPTY_ROWS = {
    "by_query": MASKS,
    "by_batch": {"valid_lens": np.array([0, 3])},
    "causal": {"causal": True, "valid_lens": np.array([0, 9])},
}


def list_dense_sublayers(layer) -> list:
    return [sublayer for sublayer in layer._flatten_layers() if isinstance(sublayer, keras.layers.Dense)]


DENSE_CASES = [case for case in CASES if list_dense_sublayers(case.layer())]


@every_half
def test_half_precision_agrees_with_the_oracle(case, policy):
    layer, inputs = case.layer(dtype=policy), case.inputs()
    compute, storage = HALVES[policy]
    for variable in layer.trainable_variables:
        assert variable.dtype == storage
        variable.assign(0.25 * variable)  # small scores, because a score of 10 has a rounding error of 0.04 in bfloat16
    rounded = {name: to_float64(keras.ops.cast(array, compute)) for name, array in inputs.items()}
    output, weights = compute_outputs(layer, inputs, MASKS)
    expected_output, expected_weights = compute_expected(case, layer, rounded, MASKS)
    assert_close(output, expected_output, compute)
    assert_close(weights, expected_weights, compute)
    assert np.array_equal(weights == 0, expected_weights == 0)
    assert_identical(to_numpy(call_layer(layer, inputs, MASKS)), output)


LARGE = {
    f"{policy}-{kind}-{training}": (policy, masks, training)
    for policy in HALVES
    for kind, masks in EMPTY_ROWS.items()
    for training in (False, True)
}


@parametrize_in_turn("large", LARGE)
def test_half_precision_is_finite_with_large_scores_and_rows_without_keys(case, large):
    """Scores of hundreds to thousands; a fill of -1e9 or -1e6 would be -inf in float16, and a row of them NaN."""
    policy, masks, training = large
    layer, inputs = case.layer(dtype=policy, dropout=0.5, seed=2), case.inputs()
    for variable in layer.trainable_variables:
        variable.assign((3.0 if case.name == "one_head" else 10.0) * variable)  # two weights scale its scores
    inputs |= {name: 10 * inputs[name] for name in ("queries", "keys")}
    output, weights = compute_outputs(layer, inputs, masks, training=training)
    is_empty = ~reference.compute_mask((B,), Tq, Tk, **masks).any(-1)
    assert np.isfinite(output.astype("float32")).all()
    np.testing.assert_allclose(weights.astype("float64").sum(-1), ~is_empty, atol=Tk * 2.0**-8)
    assert np.all(output[is_empty] == 0)
    for name, gradient in compute_layer_gradients(layer, inputs, masks).items():
        assert np.isfinite(gradient.astype("float32")).all(), name


@every_half
def test_half_precision_does_not_leak(case, policy):
    layer, inputs, masks = case.layer(dtype=policy), case.inputs(), {"valid_lens": np.array([3, 0])}
    clean = compute_outputs(layer, inputs, masks)
    for poison in (np.nan, np.inf, 1e30):  # 1e30 is infinity in float16
        dirty = {name: array.copy() for name, array in inputs.items()}
        for name in ("keys", "values"):
            dirty[name][0, 3:] = dirty[name][1] = poison
        for array, clean_array in zip(compute_outputs(layer, dirty, masks), clean, strict=True):
            assert_identical(array, clean_array)


@every_mixed
def test_global_mixed_policy_reaches_the_layer_and_its_sublayers(case, policy):
    keras.config.set_dtype_policy(policy)
    layer = case.layer()
    assert all(sublayer.compute_dtype == HALVES[policy][0] for sublayer in layer._flatten_layers())
    assert all(variable.dtype == "float32" for variable in layer.trainable_variables)
    symbolic = layer(*(keras.Input(array.shape[1:]) for array in case.inputs().values()), return_attention_scores=True)
    assert [tensor.dtype for tensor in symbolic] == [HALVES[policy][0]] * 2
    assert [array.dtype.name for array in compute_outputs(layer, case.inputs())] == [HALVES[policy][0]] * 2


FIT_RUNS = {
    f"{mode}-{policy}": (policy, jit) for mode, jit in FIT_MODES.items() for policy in HALVES if "mixed" in policy
}


@pytest.mark.slow
@parametrize_in_turn("policy_and_jit", FIT_RUNS, num_slow_values=0)
def test_fit_with_a_mixed_policy_changes_every_weight(case, policy_and_jit):
    """A row without keys must not cause NaN gradients: loss scaling of mixed_float16 would skip the step."""
    policy, jit_compile = policy_and_jit
    model, layer = build_lengths_model(case, dtype=policy)
    model.compile(keras.optimizers.SGD(0.01), "mse", jit_compile=jit_compile)
    inputs = [*case.inputs().values(), np.array([3, 0], "int32")]
    before = read_weights(model)
    model.fit(inputs, np.ones((B, Tq, 1)), batch_size=B, verbose=0)
    for old, new in zip(before, read_weights(model), strict=True):
        assert np.isfinite(new).all()
        assert np.any(old != new)
    assert layer.compute_dtype == HALVES[policy][0]


@pytest.mark.slow
@pytest.mark.parametrize("case", DENSE_CASES, ids=lambda case: case.name)
def test_lora_on_every_dense_sublayer_is_trained_and_saved(case, tmp_path):
    """The oracle reads `kernel`, to which Keras adds the low-rank part."""
    (model, layer), arrays = build_lengths_model(case), case.inputs()
    inputs, before = [*arrays.values(), np.array([3, 0], "int32")], compute_outputs(layer, arrays, MASKS)[0]
    for dense in list_dense_sublayers(layer):
        dense.enable_lora(rank=2)
    assert_close(compute_outputs(layer, arrays, MASKS)[0], before)  # the initial low-rank part is zero
    trained = [dense for dense in list_dense_sublayers(layer) if dense.trainable]
    assert len(layer.trainable_variables) == sum(2 + dense.use_bias for dense in trained)
    draw_weights(layer)
    after = compute_outputs(layer, arrays, MASKS)[0]
    assert np.abs(after - before).max() > 0.01
    assert_close(after, compute_expected(case, layer, arrays, MASKS)[0], "float32")
    assert all(np.any(gradient != 0) for gradient in compute_layer_gradients(layer, arrays, MASKS).values())
    model.compile(keras.optimizers.SGD(0.1), "mse")
    before = read_weights(layer)
    model.fit(inputs, np.ones((B, Tq, 1)), batch_size=B, verbose=0)
    assert all(np.any(old != new) for old, new in zip(before, read_weights(layer), strict=True))
    assert_close(to_numpy(save_and_load(model, tmp_path)(inputs)), to_numpy(model(inputs)))


INT8_TOLERANCE = 0.1  # int8 has about 2 digits in kernels and activations; outputs are means of values of unit size


@pytest.mark.slow
@pytest.mark.parametrize("case", DENSE_CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:Layer .* does not have a `quantize` method:UserWarning")  # InputLayer of Keras
def test_int8_model_is_accurate_ignores_poison_and_is_saved(case, tmp_path):
    (model, layer), inputs, masks = build_lengths_model(case), case.inputs(), {"valid_lens": np.array([3, 0], "int32")}
    for variable in layer.trainable_variables:
        variable.assign(0.25 * variable)
    before = compute_outputs(layer, inputs, MASKS)
    model.quantize("int8")
    assert all(dense.quantization_mode == "int8" for dense in list_dense_sublayers(layer))
    output, weights = compute_outputs(layer, inputs, MASKS)
    assert np.any(output != before[0]), "the layer must use the quantized kernels"
    assert_close(output, before[0], tolerance=INT8_TOLERANCE)
    assert_close(weights, before[1], tolerance=INT8_TOLERANCE)
    assert np.array_equal(weights == 0, before[1] == 0)
    dirty = {name: array.copy() for name, array in inputs.items()}
    # Activations are scaled by the largest magnitude, which must not become NaN.
    dirty["keys"][0, 3:] = dirty["values"][0, 3:] = np.nan
    assert_identical(compute_outputs(layer, dirty, masks)[0], compute_outputs(layer, inputs, masks)[0])
    arrays = [*inputs.values(), masks["valid_lens"]]
    after = to_numpy(model(arrays))
    for _ in range(2):
        model = save_and_load(model, tmp_path)
        assert_identical(to_numpy(model(arrays)), after)
