"""Golden cases of decoding steps: fill levels of states of fixed capacity, and caches that are empty first."""

import keras
import numpy as np
import pytest
from golden_case_helpers import build_integer_input, build_sequence_input, generate_cases
from keras import ops

from keras_attn import DotProductAttention, MultiHeadAttention
from keras_attn_export import InputError
from keras_attn_export._golden_cases.edge_cases import EMPTY_CACHE

CAPACITY, WIDTH = 6, 4


def step(appends=1, beside=(), positions=1, capacity=CAPACITY):
    attend = MultiHeadAttention(DotProductAttention(), 2)
    attend.build((None, 1, WIDTH), (None, None, WIDTH), (None, None, WIDTH))
    x = keras.Input((positions, WIDTH), name="x")
    names = ("projected_keys", "projected_values")
    past = {name: keras.Input((2, capacity, WIDTH // 2), name=name) for name in names}
    past["length"] = keras.Input((), dtype="int32", name="filled")
    present = past
    for _ in range(appends):
        present = attend.append(present, x, x)
    outputs = {"found": attend(x, present)} | ({"next": present["length"]} if appends else {})
    outputs |= {f"sum of {other.name}": ops.sum(other, axis=1) for other in beside}
    return keras.Model([x, *past.values(), *beside], outputs)


def lengths_in(model):
    found = generate_cases(model)
    assert not found.refused
    assert not found.counted_axes  # it counts along no axis that is dynamic
    return {case.name: set(case.inputs["filled"].tolist()) for case in found.cases}


@pytest.mark.slow
@pytest.mark.parametrize(("appends", "positions"), [(0, 1), (1, 1), (2, 2)])
def test_lengths_leave_room_for_appended_steps(appends, positions):
    found, full = lengths_in(step(appends=appends, positions=positions)), CAPACITY - appends * positions
    assert found["lengths full"] == {full}
    assert found["lengths zero"] == {0}
    assert found["lengths over-full"] == {full + 3}  # where Keras gives NaN, and so must the file
    assert found["base"] <= set(range(full + 1))


@pytest.mark.slow
def test_lengths_leave_room_for_any_number_of_positions():
    golden = generate_cases(step(positions=None))
    lengths = {case.name: case.inputs for case in golden.cases if case.name in ("base", "x_length 1", "lengths full")}
    for inputs in lengths.values():
        assert inputs["filled"].max() == CAPACITY - inputs["x"].shape[1]
    assert all(golden.inputs[name]["moves"] for name in ("projected_keys", "projected_values"))


@pytest.mark.slow
def test_samples_bound_the_lengths_of_a_state():
    model = step(positions=3)
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
def test_length_counts_along_no_axis_of_equal_size():
    notes = [build_sequence_input("notes")]
    found = generate_cases(step(beside=notes))
    full = [case.name for case in found.cases].index("lengths full")
    length = found.sizes[full]["notes_length"]
    assert lengths_in(step(capacity=length + 1, beside=notes))["lengths full"] == {length}


def test_caches_of_one_length_are_empty_in_one_case():
    keys, values, new = (keras.Input((2, size, 4), name=name) for name, size in (("k", None), ("v", None), ("new", 1)))
    k, v = (ops.concatenate([each, new], axis=2) for each in (keys, values))
    product = ops.matmul(ops.transpose(k, (0, 1, 3, 2)), v)
    found = generate_cases(keras.Model([keys, values, new], {"longer k": k, "longer v": v, "product": product}))
    is_empty = {each.name: [each.inputs[name].shape[2] == 0 for name in ("k", "v")] for each in found.cases}
    assert is_empty == {each.name: [each.name == EMPTY_CACHE] * 2 for each in found.cases}
    assert not found.refused
    empty = next(each for each in found.cases if each.name == EMPTY_CACHE)
    assert empty.inputs["new"].shape[0] > 1
    for name in ("longer k", "longer v"):
        np.testing.assert_array_equal(empty.outputs[name], empty.inputs["new"])


def test_empty_cache_is_left_out_if_keras_cannot_run_it():
    past, new = build_sequence_input("past"), keras.Input((1, 4), name="new")
    present = ops.concatenate([past, new], axis=1)
    largest = ops.max(past, axis=1)  # of no step there is none
    found = generate_cases(keras.Model([past, new], {"present": present, "largest": largest}))
    assert EMPTY_CACHE in found.refused
    assert len(found.cases) > 3
