"""Golden cases of decoding steps: lengths of caches of fixed capacity, and empty caches of dynamic length."""

import keras
import numpy as np
import pytest
from golden_case_helpers import build_integer_input, build_sequence_input, generate_cases
from keras import ops

from keras_attn import DotProductAttention, MultiHeadAttention
from keras_attn_export import InputError
from keras_attn_export._golden_cases.edge_cases import EMPTY_CACHE

CAPACITY, WIDTH = 6, 4


def build_step(appends=1, extra_inputs=(), positions=1, capacity=CAPACITY):
    """Return a decoding step that appends its positions to a cache `appends` times, and attends to the cache."""
    attend = MultiHeadAttention(DotProductAttention(), 2)
    attend.build((None, 1, WIDTH), (None, None, WIDTH), (None, None, WIDTH))
    x = keras.Input((positions, WIDTH), name="x")
    names = ("projected_keys", "projected_values")
    cache = {name: keras.Input((2, capacity, WIDTH // 2), name=name) for name in names}
    cache["length"] = keras.Input((), dtype="int32", name="filled")
    new_cache = cache
    for _ in range(appends):
        new_cache = attend.append(new_cache, x, x)
    outputs = {"context": attend(x, new_cache)} | ({"next": new_cache["length"]} if appends else {})
    outputs |= {f"sum of {tensor.name}": ops.sum(tensor, axis=1) for tensor in extra_inputs}
    return keras.Model([x, *cache.values(), *extra_inputs], outputs)


def collect_lengths(model):
    """Return the cache lengths in each golden case; no case may be refused, and no dynamic axis be counted."""
    golden = generate_cases(model)
    assert not golden.refusals
    assert not golden.counted_axes
    return {case.name: set(case.inputs["filled"].tolist()) for case in golden.cases}


@pytest.mark.slow
@pytest.mark.parametrize(("appends", "positions"), [(0, 1), (1, 1), (2, 2)])
def test_lengths_leave_room_for_appended_steps(appends, positions):
    lengths = collect_lengths(build_step(appends=appends, positions=positions))
    max_length = CAPACITY - appends * positions
    assert lengths["lengths full"] == {max_length}
    assert lengths["lengths zero"] == {0}
    assert lengths["lengths over-full"] == {max_length + 3}  # an overflow: Keras and the file return NaN
    assert lengths["base"] <= set(range(max_length + 1))


@pytest.mark.slow
def test_lengths_leave_room_for_any_number_of_positions():
    golden = generate_cases(build_step(positions=None))
    for inputs in (case.inputs for case in golden.cases if case.name in ("base", "x_length 1", "lengths full")):
        assert inputs["filled"].max() == CAPACITY - inputs["x"].shape[1]
    assert all(golden.inputs[name]["moves"] for name in ("projected_keys", "projected_values"))


@pytest.mark.slow
def test_samples_bound_the_lengths_of_a_cache():
    model = build_step(positions=3)
    shapes = {tensor.name: (2, *tensor.shape[1:]) for tensor in model.inputs}
    samples = {name: np.ones(shape, "float32") for name, shape in shapes.items()}
    samples["filled"] = np.array([0, 2], "int32")
    assert max(case.inputs["filled"].max() for case in generate_cases(model, samples).cases) == 2


def test_nan_is_refused_with_the_lengths_of_the_case():
    length = build_integer_input("length")
    model = keras.Model(length, ops.log(ops.cast(-length, "float32")))
    with pytest.raises(InputError, match=r"NaN or an empty tensor on .* `length` \(3,\), with `length` = \[4, 9, 4\]"):
        generate_cases(model, {"length": np.array([4, 9], "int32")})


@pytest.mark.slow
def test_length_of_a_cache_counts_no_axis_of_equal_size():
    notes = [build_sequence_input("notes")]
    golden = generate_cases(build_step(extra_inputs=notes))
    index = [case.name for case in golden.cases].index("lengths full")
    length = golden.sizes[index]["notes_length"]
    assert collect_lengths(build_step(capacity=length + 1, extra_inputs=notes))["lengths full"] == {length}


def test_caches_of_one_length_are_empty_in_one_case():
    keys, values, new = (keras.Input((2, size, 4), name=name) for name, size in (("k", None), ("v", None), ("new", 1)))
    k, v = (ops.concatenate([cache, new], axis=2) for cache in (keys, values))
    product = ops.matmul(ops.transpose(k, (0, 1, 3, 2)), v)
    golden = generate_cases(keras.Model([keys, values, new], {"longer k": k, "longer v": v, "product": product}))
    is_empty = {case.name: [case.inputs[name].shape[2] == 0 for name in ("k", "v")] for case in golden.cases}
    assert is_empty == {case.name: [case.name == EMPTY_CACHE] * 2 for case in golden.cases}
    assert not golden.refusals
    empty_case = next(case for case in golden.cases if case.name == EMPTY_CACHE)
    assert empty_case.inputs["new"].shape[0] > 1
    for name in ("longer k", "longer v"):
        np.testing.assert_array_equal(empty_case.outputs[name], empty_case.inputs["new"])


def test_empty_cache_is_refused_if_keras_cannot_run_it():
    past, new = build_sequence_input("past"), keras.Input((1, 4), name="new")
    present = ops.concatenate([past, new], axis=1)
    largest = ops.max(past, axis=1)  # the maximum over an axis of size 0 is an error
    golden = generate_cases(keras.Model([past, new], {"present": present, "largest": largest}))
    assert EMPTY_CACHE in golden.refusals
    assert len(golden.cases) > 3
