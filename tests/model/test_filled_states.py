"""How many steps there are in a state of fixed capacity is drawn so that there is room for those of a call."""

import keras
import pytest
from keras import ops

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention
from keras_attn_export import InputError
from keras_attn_export._model.golden_cases import golden_cases
from keras_attn_export._model.signature import model_signature

CAPACITY, WIDTH = 6, 4
NAMES = ("projected_keys", "projected_values")


def step(attend, past, *, appends=True, beside=()):
    attend.build((None, 1, WIDTH), (None, None, WIDTH), (None, None, WIDTH))
    x = keras.Input((1, WIDTH), name="x")
    past = past | {"length": keras.Input((), dtype="int32", name="filled")}
    present = attend.append(past, x, x) if appends else past
    outputs = {"found": attend(x, present)} | ({"next": present["length"]} if appends else {})
    outputs |= {f"sum of {other.name}": ops.sum(other, axis=1) for other in beside}
    return keras.Model([x, *past.values(), *beside], outputs)


def cases_of(model):
    found = golden_cases(model, model_signature(model, None), None)
    assert not found.refused
    assert not found.lengths  # it counts along no axis that is dynamic
    return found


def lengths_in(model):
    return {case.name: set(case.inputs["filled"].tolist()) for case in cases_of(model).cases}


def with_heads(capacity=CAPACITY):
    return MultiHeadAttention(DotProductAttention(), 2), {
        name: keras.Input((2, capacity, WIDTH // 2), name=name) for name in NAMES
    }


def without_heads():
    attend = AdditiveAttention(3)
    return attend, {
        "projected_keys": keras.Input((CAPACITY, 3), name="projected_keys"),
        "projected_values": keras.Input((CAPACITY, WIDTH), name="projected_values"),
    }


@pytest.mark.parametrize("made", [with_heads, without_heads])
def test_there_is_room_for_a_step(made):
    found = lengths_in(step(*made()))
    assert found["lengths full"] == {CAPACITY - 1}
    assert found["lengths zero"] == {0}
    assert found["lengths over-full"] == {CAPACITY + 2}  # where Keras gives NaN, and so must the file
    assert found["base"] <= set(range(CAPACITY))


def test_without_more_steps_all_may_be_filled():
    assert lengths_in(step(*with_heads(), appends=False))["lengths full"] == {CAPACITY}


def test_a_length_counts_along_no_axis_that_is_as_long_by_chance():
    def model(capacity):
        return step(*with_heads(capacity), beside=[keras.Input((None, 3), name="notes")])

    found = cases_of(model(CAPACITY))
    full = [case.name for case in found.cases].index("lengths full")
    length = found.sizes[full]["notes_length"]
    assert lengths_in(model(length + 1))["lengths full"] == {length}


def test_other_integers_still_need_samples():
    x, count = keras.Input((3,), name="x"), keras.Input((), dtype="int32", name="length")
    model = keras.Model([x, count], x * ops.expand_dims(ops.cast(count, "float32"), 1))
    with pytest.raises(InputError, match=r"`length` \(int32"):
        golden_cases(model, model_signature(model, None), None)
