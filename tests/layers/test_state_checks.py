"""What a state of keys and values carries and refuses: masks of its steps, and steps that do not fit behind it."""

import keras
import numpy as np
import pytest
from contract_cases import as_numpy, in_turn, normal
from tolerances import assert_close

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention

B, T, D = 2, 4, 8
IDS = np.array([[1, 2, 0, 0], [1, 2, 3, 4]])
CAPACITIES = {"grows": None, "just fits": T, "has room": T + 2}
PROMPTS = {f"{name}-{prompt}": (prompt, size) for name, size in CAPACITIES.items() for prompt in (4, 1)}
carries_masks = pytest.mark.skipif(keras.backend.backend() == "jax", reason="arrays of JAX carry nothing")


def masked(ids, size):
    initializer = keras.initializers.RandomNormal(seed=1)
    return keras.layers.Embedding(9, size, mask_zero=True, embeddings_initializer=initializer)(ids)


@carries_masks
@in_turn("prompt", PROMPTS, more=1)
def test_state_carries_the_masks_of_its_steps(case, prompt):
    prompt, capacity = prompt
    layer, inputs = case.layer(), case.inputs(leading=(B,), Tq=3, Tk=T)
    keys = masked(IDS, inputs["keys"].shape[-1])
    _, plain = layer(inputs["queries"], keys, inputs["values"], keys_mask=IDS != 0, return_attention_scores=True)
    state = layer.precompute(masked(IDS[:, :prompt], keys.shape[-1]), inputs["values"][:, :prompt], capacity=capacity)
    if prompt < T:
        steps = masked(IDS[:, prompt:], keys.shape[-1])
        state = layer.append(state, steps, inputs["values"][:, prompt:])
    _, weights = layer(inputs["queries"], state, return_attention_scores=True)
    assert_close(as_numpy(weights)[..., :T], as_numpy(plain), "float32")
    assert np.all(as_numpy(weights)[0, ..., 2:] == 0)


@carries_masks
@pytest.mark.parametrize("capacity", [None, T + 2])
def test_state_joins_masked_values_and_steps_without_a_mask(capacity):
    layer, x = built(), normal(B, T, D)
    state = layer.precompute(x[:, :3], masked(IDS[:, :3], D), capacity=capacity)
    state = layer.append(state, x[:, 3:], x[:, 3:])  # all of which take part
    _, weights = layer(x[:, 3:], state, return_attention_scores=True)
    assert np.array_equal(as_numpy(weights)[0, 0, 0, :4] > 0, [True, True, False, True])
    assert np.all(as_numpy(weights)[1, 0, 0, :4] > 0)


def built(layer=None):
    layer = MultiHeadAttention(DotProductAttention(), 2) if layer is None else layer
    x = normal(B, T, D)
    layer(x, x, x)
    return layer


UNLIKE = {
    "fewer values": ((B, 2, D), (B, 1, D)),
    "fewer examples": ((1, 1, D), (1, 1, D)),
    "small values": ((B, 1, D), (B, 1, 1)),
    "flat values": ((B, 1, D), (B, D)),
}
WAYS = [(None, False, False), (None, True, True), (T + 2, False, True), (T + 2, True, False)]


@pytest.mark.parametrize("unlike", UNLIKE)
@pytest.mark.parametrize(("capacity", "heads", "symbolic"), WAYS)
def test_append_refuses_steps_of_other_sizes(capacity, unlike, heads, symbolic):
    layer, x = built(None if heads else AdditiveAttention(5)), normal(B, T, D)
    state = layer.precompute(x[:, :2], x[:, :2], capacity=capacity)
    keys, values = (normal(*shape) for shape in UNLIKE[unlike])
    if symbolic:
        state = {name: keras.KerasTensor(tensor.shape, tensor.dtype) for name, tensor in state.items()}
        keys, values = (keras.KerasTensor(array.shape, "float32") for array in (keys, values))
    with pytest.raises(ValueError, match=r"must (agree in|have (the|shape|at least)|be 8)"):
        layer.append(state, keys, values)


LENGTHS = {
    "floats": (np.array([2.0, 2.0], "float32"), TypeError, "must be integers"),
    "of more examples": (np.array([2, 2, 2]), ValueError, "must have shape B"),
}


@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize(("length", "error", "said"), LENGTHS.values(), ids=LENGTHS)
def test_bad_lengths_of_a_state_are_refused(length, error, said, appends):
    layer, x = built(), normal(B, T, D)
    state = {**layer.precompute(x, x, capacity=T + 2), "length": keras.ops.convert_to_tensor(length)}
    with pytest.raises(error, match=said):
        layer.append(state, x, x) if appends else layer(x, state)


@pytest.mark.x64
def test_graph_of_any_capacity_takes_lengths_of_64_bits():
    layer, x = built(), normal(B, T, D)
    state = layer.precompute(x, x, capacity=T + 2)
    entries = {name: keras.Input((2, None, D // 2), name=name) for name in ("projected_keys", "projected_values")}
    entries["length"] = keras.Input((), dtype="int64", name="length")
    now = keras.Input((1, D), name="now")
    grown = layer.append(entries, now, now)
    model = keras.Model({"now": now, **entries}, layer(now, grown))
    exact = layer(x[:, :1], layer.append(state, x[:, :1], x[:, :1]))
    given = {name: as_numpy(tensor) for name, tensor in state.items()} | {"now": x[:, :1]}
    given["length"] = given["length"].astype("int64")
    assert_close(as_numpy(model(given)), as_numpy(exact), "float32")


@pytest.mark.parametrize("make", [lambda: None, lambda: AdditiveAttention(5)], ids=["heads", "additive"])
def test_state_that_lost_steps_gives_nan_in_that_example_alone(make):
    layer, x = built(make()), normal(B, T, D)
    state = {**layer.precompute(x, x, capacity=T), "length": np.array([T - 1, T], "int32")}
    state = layer.append(state, x[:, :1], x[:, :1])
    takes_part = np.array([[True, True], [True, False]])
    output, weights = layer(x[:, :2], state, queries_mask=takes_part, return_attention_scores=True)
    for found in (as_numpy(output), np.moveaxis(as_numpy(weights).reshape(B, -1, 2, T), 1, 2)):
        rows = found.reshape(B, 2, -1)
        assert np.all(np.isfinite(rows[0]))
        assert np.all(np.isnan(rows[1, 0]))
        assert np.all(rows[1, 1] == 0)
