"""Promise 6 of every public layer: symbolic shapes and dtypes equal real ones, and equal sizes confuse no axes."""

import keras
import numpy as np
import pytest
from backends import COMPILED_MODES, compile_function, run_only_on, x64
from layer_contract import (
    CASES,
    VARIANTS,
    B,
    Dv,
    Tk,
    Tq,
    call_layer,
    compute_expected,
    compute_outputs,
    every_case,
    parametrize_in_turn,
    to_numpy,
)
from tolerances import assert_close

LEADING = {"rank3": (2,), "rank4": (2, 4), "rank5": (2, 1, 4)}
COINCIDENCES = {  # equal sizes of different axes
    "B_is_Tq": {"leading": (Tq,)},
    "B_is_Tk": {"leading": (Tk,)},
    "Tq_is_Tk": {"Tq": Tk},
    "B_is_Tq_is_Tk": {"leading": (Tk,), "Tq": Tk},
    "Dv_is_Tk": {"Dv": Tk},
    "all_are_one": {"leading": (1,), "Tq": 1, "Tk": 1, "Dv": 1},
    "heads_are_batch": {"leading": (Tq, Tq)},
}


def assert_agreement(case, inputs, masks):
    layer = case.layer(inputs)
    output, weights = compute_outputs(layer, inputs, masks)
    expected_output, expected_weights = compute_expected(case, layer, inputs, masks)
    assert_close(output, expected_output, "float32")
    assert_close(weights, expected_weights, "float32")


@parametrize_in_turn("leading", LEADING, num_slow_values=1)
def test_any_number_of_leading_axes_is_accepted(case, leading):
    rng = np.random.default_rng(1)
    inputs = case.inputs(leading=leading)
    for masks in (
        {"valid_lens": rng.integers(0, Tk + 1, size=leading)},
        {"valid_lens": rng.integers(0, Tk + 1, size=(*leading, Tq)), "causal": True},
        {"attention_mask": rng.random((Tq, Tk)) < 0.6},
        {"attention_mask": rng.random((*leading, 1, Tk)) < 0.6},
        {"queries_mask": rng.random((*leading, Tq)) < 0.6, "keys_mask": rng.random((*leading, Tk)) < 0.6},
    ):
        assert_agreement(case, inputs, masks)


@parametrize_in_turn("sizes", COINCIDENCES)
def test_axes_of_the_same_size_are_not_confused(case, sizes):
    inputs, rng = case.inputs(**sizes), np.random.default_rng(2)
    *leading, queries, _ = inputs["queries"].shape
    keys = inputs["keys"].shape[-2]
    for shape in (leading, (*leading, queries)):
        assert_agreement(case, inputs, {"valid_lens": rng.integers(0, keys + 1, size=shape)})
    assert_agreement(case, inputs, {"attention_mask": rng.random((queries, keys)) < 0.5, "causal": True})


EMPTY = {str(sizes): sizes for sizes in ({"Tk": 0}, {"Tq": 0}, {"leading": (0,)}, {"leading": (0, 2)})}


@parametrize_in_turn("sizes", EMPTY, CASES + VARIANTS, num_slow_values=1)
def test_axis_of_size_zero_gives_zeros(case, sizes):
    """Without keys all rows are fully masked: zeros, not NaN."""
    inputs, layer = case.inputs(**sizes), case.layer()
    *leading, queries, _ = inputs["queries"].shape
    for masks in ({}, {"causal": True}, {"valid_lens": np.zeros(leading, "int32")}):
        output, weights = compute_outputs(layer, inputs, masks)
        assert_close(output, np.zeros((*leading, queries, Dv)), "float32")
        assert_close(weights, np.zeros((*leading, queries, inputs["keys"].shape[-2])), "float32")


STATIC_SIZES = {  # B, Tq and Tk; None for a dynamic size
    "nothing": (None, None, None),
    "batch": (B, None, None),
    "queries": (None, Tq, None),
    "keys": (None, None, Tk),
    "everything": (B, Tq, Tk),
}


@parametrize_in_turn(
    "sizes", {f"{name}-{flag}": (*sizes, flag) for name, sizes in STATIC_SIZES.items() for flag in (False, True)}
)
def test_symbolic_shapes_and_dtypes_equal_those_of_the_result(case, sizes):
    batch, queries, keys, returns_weights = sizes
    shapes = {"queries": (queries, case.Dq), "keys": (keys, case.Dk), "values": (keys, Dv)}
    symbolic_inputs = {name: keras.Input(batch_shape=(batch, *shape)) for name, shape in shapes.items()}
    layer = case.make()
    symbolic = layer(**symbolic_inputs, return_attention_scores=returns_weights)
    expected_shapes = [(batch, queries, Dv), (batch, queries, keys)] if returns_weights else [(batch, queries, Dv)]
    assert isinstance(symbolic, tuple if returns_weights else keras.KerasTensor)
    symbolic = list(symbolic) if returns_weights else [symbolic]
    assert [tensor.shape for tensor in symbolic] == expected_shapes

    shapes = [tensor.shape for tensor in symbolic_inputs.values()]
    computed = layer.compute_output_shape(*shapes, return_attention_scores=returns_weights)
    assert list(computed if returns_weights else [computed]) == expected_shapes

    real = keras.tree.flatten(call_layer(layer, case.inputs(), return_attention_scores=returns_weights))
    for tensor, result in zip(symbolic, real, strict=True):
        assert tensor.dtype == keras.backend.standardize_dtype(result.dtype) == "float32"
        assert len(tensor.shape) == len(result.shape)
        assert all(size in (None, actual) for size, actual in zip(tensor.shape, result.shape, strict=True))


@every_case
def test_static_size_of_one_input_reaches_the_outputs(case):
    """Tk is static in the values alone and B in the keys alone; both are static in the outputs."""
    shapes = (None, Tq, case.Dq), (B, None, case.Dk), (None, Tk, Dv)
    inputs = [keras.Input(batch_shape=shape) for shape in shapes]
    output, weights = case.make()(*inputs, return_attention_scores=True)
    assert output.shape == (B, Tq, Dv)
    assert weights.shape == (B, Tq, Tk)


@run_only_on("tensorflow", reason="no other backend traces with dynamic sizes")
@parametrize_in_turn("sizes", STATIC_SIZES, num_slow_values=1)
def test_tf_function_keeps_static_shapes(case, sizes):
    import tensorflow as tf

    batch, queries, keys = sizes
    layer = case.layer()

    def compute(queries, keys, values, valid_lens):
        masks = {"valid_lens": valid_lens, "causal": True}
        return call_layer(
            layer, {"queries": queries, "keys": keys, "values": values}, masks, return_attention_scores=True
        )

    shapes = (batch, queries, case.Dq), (batch, keys, case.Dk), (batch, keys, Dv)
    signature = [*map(tf.TensorSpec, shapes), tf.TensorSpec((batch,), "int32")]
    traced = tf.function(compute, input_signature=signature).get_concrete_function()
    output, weights = traced.structured_outputs
    assert output.shape.as_list() == [batch, queries, Dv]
    assert weights.shape.as_list() == [batch, queries, keys]


@pytest.mark.slow
@parametrize_in_turn("mode", {mode: mode for mode in COMPILED_MODES}, num_slow_values=0)
def test_one_program_accepts_every_size(case, mode):
    layer = case.layer()
    signature = [((None, None, None, size), "float32") for size in (case.Dq, case.Dk, Dv)]
    signature.append(((None, None, None), "int32"))

    def compute(queries, keys, values, valid_lens):
        return layer(queries, keys, values, valid_lens, return_attention_scores=True)

    program = compile_function(compute, mode, signature=signature)
    for leading, queries, keys in (((2, 4), Tq, Tk), ((3, 1), 1, 7)):
        inputs = case.inputs(leading=leading, Tq=queries, Tk=keys)
        lengths = np.random.default_rng(3).integers(0, keys + 1, size=(*leading, queries)).astype("int32")
        result = program(*map(keras.ops.convert_to_tensor, (*inputs.values(), lengths)))
        for tensor, oracle in zip(result, compute_expected(case, layer, inputs, {"valid_lens": lengths}), strict=True):
            assert_close(to_numpy(tensor), oracle, "float32")


POLICIES = {"float16": "float16", "float64": pytest.param("float64", marks=x64), "mixed": "mixed_bfloat16"}


@parametrize_in_turn("policy", POLICIES, num_slow_values=1)
def test_symbolic_dtype_follows_the_policy(case, policy):
    layer = case.make(dtype=policy)
    symbolic_inputs = {name: keras.Input(array.shape[1:], dtype="float32") for name, array in case.inputs().items()}
    symbolic = layer(**symbolic_inputs, return_attention_scores=True)
    real = call_layer(layer, case.inputs(), return_attention_scores=True)
    for tensor, result in zip(symbolic, real, strict=True):
        assert tensor.dtype == keras.backend.standardize_dtype(result.dtype) == layer.compute_dtype
