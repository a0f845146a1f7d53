"""A state of keys and values that grows by the steps of a decoder: equality with the full pass, masks, bad states."""

import keras
import numpy as np
import pytest
from backends import COMPILED_MODES, compile_function, compute_gradients
from keras import ops
from layer_contract import CASES, VARIANTS, compute_outputs, draw_normal, parametrize_in_turn, save_and_load, to_numpy
from tolerances import assert_close, assert_identical

from keras_attn import (
    AdditiveAttention,
    CosineAttention,
    DotProductAttention,
    LocationSensitiveAttention,
    MultiHeadAttention,
)

B, T = 2, 6
CHUNKS = {"one by one": [1, 1, 1, 1, 1, 1], "a prompt, then one by one": [3, 1, 1, 1], "in parts": [2, 3, 1]}
ORDERS = {
    "causal": {"use_causal_mask": True},
    "window": {"window": (2, 0)},
    "causal window": {"use_causal_mask": True, "window": (1, 1)},
}
CAPACITIES = {"grows": None, "just fits": T, "has room": T + 2}
every_capacity = pytest.mark.parametrize("capacity", CAPACITIES.values(), ids=CAPACITIES)


def steps_of(case):
    """Queries, keys and values of as many steps each."""
    return case.inputs(leading=(B,), Tq=T, Tk=T)


def decoded(layer, inputs, chunks, capacity, **order):
    """The output and the weights, put together from calls on a state: the weights of unfilled places are cut off."""
    state, start, found = None, 0, []
    for size in chunks:
        some = {name: array[:, start : start + size] for name, array in inputs.items()}
        if state is None:
            state = layer.precompute(some["keys"], some["values"], capacity=capacity)
        else:
            state = layer.append(state, some["keys"], some["values"])
        if not size:  # of a state that begins empty
            continue
        output, weights = layer(some["queries"], state, return_attention_scores=True, **order)
        weights = to_numpy(weights)
        assert np.all(weights[..., start + size :] == 0)
        room = [(0, 0)] * (weights.ndim - 1) + [(0, T - start - size)]
        found.append((to_numpy(output), np.pad(weights[..., : start + size], room)))
        start += size
    outputs_, weights_ = zip(*found, strict=True)
    return np.concatenate(outputs_, -2), np.concatenate(weights_, -2)


def assert_equal_to_the_full_pass(layer, inputs, chunks, capacity, **order):
    whole = layer(*inputs.values(), return_attention_scores=True, **order)
    for actual, exact in zip(decoded(layer, inputs, chunks, capacity, **order), whole, strict=True):
        assert_close(actual, to_numpy(exact), "float32")


@parametrize_in_turn("capacity", CAPACITIES, CASES + VARIANTS, num_slow_values=1)
def test_step_by_step_equals_the_full_pass(case, capacity):
    assert_equal_to_the_full_pass(case.layer(), steps_of(case), CHUNKS["one by one"], capacity, **ORDERS["causal"])


def three_times(x):
    return dict.fromkeys(("queries", "keys", "values"), x)


NINE = [(a, b, (a + b) % 3, (a + 2 * b) % 3) for a in range(3) for b in range(3)]  # each two values of two once


@pytest.mark.parametrize(
    ("chunks", "order", "capacity", "groups"),
    [([*CHUNKS][a], [*ORDERS][b], [*CAPACITIES][c], (None, 2, 1)[d]) for a, b, c, d in NINE],
)
def test_heads_equal_the_full_pass_in_any_parts_and_order(chunks, order, capacity, groups):
    layer, inputs = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=groups), three_times(draw_normal(B, T, 8))
    assert_equal_to_the_full_pass(layer, inputs, CHUNKS[chunks], CAPACITIES[capacity], **ORDERS[order])


@pytest.mark.parametrize(
    "make",
    [lambda: AdditiveAttention(5, query_block_size=2), CosineAttention, lambda: LocationSensitiveAttention(5, 2, 3)],
    ids=["additive", "cosine", "location"],
)
def test_heads_of_every_score_grow_from_an_empty_state(make):
    layer = MultiHeadAttention(make(), 2)
    assert_equal_to_the_full_pass(
        layer, three_times(draw_normal(B, T, 8)), [0, 2, 1, 1, 1, 1], T + 2, **ORDERS["causal"]
    )


def by_position(heads, role, offset):
    """Heads times a number of the position, which is unlike for queries, keys and values."""
    own = ops.expand_dims(ops.convert_to_tensor(offset), -1) + ops.arange(ops.shape(heads)[-2], dtype="int32")
    own = ops.expand_dims(own if len(own.shape) == 1 else ops.expand_dims(own, 1), -1)
    return heads * (1 + {"queries": 0.3, "keys": 0.1, "values": 0.2}[role] * ops.cast(own, "float32"))


def attending(num_heads=2, **options):
    """Inputs, heads, and what they give for all steps at once."""
    x = draw_normal(B, T, 8)
    layer = MultiHeadAttention(DotProductAttention(dtype=options.get("dtype")), num_heads, **options)
    return x, layer, to_numpy(layer(x, x, x, use_causal_mask=True))


@every_capacity
def test_positions_of_processed_heads_continue_in_a_state(capacity):
    """Those of values too, which other layers here leave as they are."""
    x = draw_normal(B, T, 8)
    layer = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=2, process_heads=by_position)
    assert_equal_to_the_full_pass(layer, three_times(x), [2, 1, 3], capacity, **ORDERS["causal"])
    whole = to_numpy(layer(x, x, x, use_causal_mask=True))
    layer.process_heads = None
    assert np.abs(to_numpy(layer(x, x, x, use_causal_mask=True)) - whole).max() > 0.01


def test_each_example_of_fixed_capacity_has_its_own_length():
    """As where prompts differ: each example goes on at its own length."""
    x, layer, whole = attending()
    state = layer.precompute(x[:, :4], x[:, :4], capacity=T)
    state["length"] = ops.convert_to_tensor(np.array([2, 4], "int32"))  # of the first example two are padding
    steps = np.stack([x[0, 2:4], x[1, 4:6]])
    state = layer.append(state, steps, steps)
    output = to_numpy(layer(steps, state, use_causal_mask=True))
    assert_close(output, np.stack([whole[0, 2:4], whole[1, 4:6]]), "float32")
    np.testing.assert_array_equal(to_numpy(state["length"]), [4, 6])


@every_capacity
def test_masks_and_lengths_apply_to_a_state(capacity):
    rng = np.random.default_rng(0)
    x, seen = rng.normal(size=(B, T, 8)).astype("float32"), rng.random((B, T)) < 0.6
    layer = MultiHeadAttention(DotProductAttention(), 2)
    masks = {"attention_mask": seen[:, None, :], "valid_lens": np.array([0, 5])}
    whole = to_numpy(layer(x, x, x, use_causal_mask=True, **masks))
    state = layer.precompute(x[:, :4], x[:, :4], capacity=capacity)
    state = layer.append(state, x[:, 4:], x[:, 4:])
    room = (capacity or T) - T
    masks["attention_mask"] = np.pad(masks["attention_mask"], [(0, 0), (0, 0), (0, room)], constant_values=True)
    assert_close(to_numpy(layer(x[:, 4:], state, use_causal_mask=True, **masks)), whole[:, 4:], "float32")


@parametrize_in_turn("order", ORDERS, CASES + VARIANTS, num_slow_values=1)
def test_offset_places_queries_at_any_position(case, order):
    layer, inputs = case.layer(), steps_of(case)
    whole = compute_outputs(
        layer, inputs, {"causal": order.get("use_causal_mask", False), "window": order.get("window")}
    )
    some = inputs | {"queries": inputs["queries"][:, 2:5]}
    for offset in (2, np.int32(2), np.array([2, 2])):
        found = layer(**some, offset=offset, return_attention_scores=True, **order)
        for actual, exact in zip(found, whole, strict=True):
            assert_close(to_numpy(actual), exact[..., 2:5, :], "float32")


@every_capacity
def test_gradients_pass_through_appended_steps(capacity):
    x, layer, _ = attending()

    def whole(x):
        return ops.sum(ops.square(layer(x, x, x, use_causal_mask=True)))

    def in_steps(x):
        state = layer.precompute(x[:, :4], x[:, :4], capacity=capacity)
        found = [layer(x[:, :4], state, use_causal_mask=True)]
        state = layer.append(state, x[:, 4:], x[:, 4:])
        found.append(layer(x[:, 4:], state, use_causal_mask=True))
        return ops.sum(ops.square(ops.concatenate(found, axis=1)))

    exact, actual = (
        compute_gradients(each, 1, layer.trainable_variables)(ops.convert_to_tensor(x)) for each in (whole, in_steps)
    )
    for one, other in zip(actual, exact, strict=True):
        assert_close(to_numpy(one), to_numpy(other), "float32", tolerance=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", COMPILED_MODES)
def test_compiled_step_of_fixed_capacity_equals_the_full_pass(mode):
    x, layer, whole = attending(4, num_kv_heads=2)

    def step(x, keys, values, length):
        state = {"projected_keys": keys, "projected_values": values, "length": length}
        state = layer.append(state, x, x)
        return layer(x, state, use_causal_mask=True), *state.values()

    run = compile_function(step, mode, variables=layer.variables)
    state = list(layer.precompute(x[:, :1], x[:, :1], capacity=T).values())
    for n in range(1, T):
        output, *state = run(ops.convert_to_tensor(x[:, n : n + 1]), *state)
        assert_close(to_numpy(output), whole[:, n : n + 1], "float32")


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [None, T])
def test_step_as_a_functional_model_is_saved_and_loaded(capacity, tmp_path):
    x, layer, whole = attending(4, num_kv_heads=2)
    now = keras.Input((1, 8), name="x")
    state = {name: keras.Input((2, capacity, 2), name=name) for name in ("projected_keys", "projected_values")}
    if capacity:
        state["length"] = keras.Input((), dtype="int32", name="length")
    grown = layer.append(state, now, now)
    assert tuple(grown["projected_keys"].shape) == (None, 2, capacity, 2)
    model = keras.Model({"x": now, **state}, {"output": layer(now, grown, use_causal_mask=True), **grown})
    for step in (model, save_and_load(model, tmp_path)):
        held = layer.precompute(x[:, :1], x[:, :1], capacity=capacity)
        for n in range(1, T):
            held = step({"x": ops.convert_to_tensor(x[:, n : n + 1]), **held})
            assert_close(to_numpy(held.pop("output")), whole[:, n : n + 1], "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16"])
def test_state_keeps_half_precision(dtype):
    x, layer, whole = attending(dtype=dtype)
    whole = whole.astype("float32")
    for capacity in (None, T):
        state = layer.precompute(x[:, :4], x[:, :4], capacity=capacity)
        state = layer.append(state, x[:, 4:], x[:, 4:])
        assert keras.backend.standardize_dtype(state["projected_keys"].dtype) == layer.compute_dtype
        found = to_numpy(layer(x[:, 4:], state, use_causal_mask=True)).astype("float32")
        np.testing.assert_allclose(found, whole[:, 4:], atol=0.05)


def built(num_heads=2):
    x = np.ones((B, 3, 8), "float32")
    layer = MultiHeadAttention(DotProductAttention(), num_heads)
    layer(x, x, x)
    return layer, x


def of_lengths(layer, x, lengths):
    return {**layer.precompute(x, x, capacity=8), "length": ops.convert_to_tensor(np.array(lengths))}


KEPT = r"`state` must be a dict.*"
REFUSED = [
    (lambda layer, x: layer(x, layer.precompute(x, x), x), "`values` must be None if the state in place of"),
    (lambda layer, x: layer.append(layer.precompute(x), x, x), KEPT + "projected_keys"),
    (lambda layer, x: layer.append(x, x, x), KEPT + "Received: ndarray"),
    (lambda layer, x: layer.precompute(x, capacity=4), "`values` must be a tensor"),
    (lambda layer, x: layer.precompute(x, x, capacity=2), "at least the number of keys.*capacity=2 for 3"),
    (lambda layer, x: layer(x, built(4)[0].precompute(x, x)), "must have size 2.*of this layer's `precompute`"),
    (lambda layer, x: layer(x, of_lengths(layer, x, [2, 2, 2])), "must have shape B"),
    (lambda layer, x: layer.append(of_lengths(layer, x, [2.0, 2.0]), x, x), "must be integers"),
    (lambda layer, x: layer.append(built(4)[0].precompute(x, x), x, x), "with the layer that made it"),
    (lambda layer, x: layer.precompute(x[:, :1], x[:, :2]), "must agree in all axes but the last"),
    (lambda layer, x: layer(x, x, x, use_causal_mask=True, offset=np.arange(3)), "`offset` must be one"),
    (lambda layer, x: layer.precompute(x, x, capacity=2.5), "`capacity` must be an integer"),
    (lambda layer, x: layer(x, x, x, use_causal_mask=True, offset=1.5), "`offset` must be integers"),
]


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_bad_states_and_capacities_are_refused(call, said):
    layer, x = built()
    with pytest.raises(TypeError if said.endswith(("an integer", "integers")) else ValueError, match=said):
        call(layer, x)


@pytest.mark.parametrize(
    ("process", "said"),
    [
        (3, "must be a layer or a function, .*Received: int, which takes"),
        (keras.layers.LayerNormalization(), "must be a layer or .*Received: LayerNormalization, which takes"),
        (lambda heads, role, offset: heads[..., :1], r"must return heads of the shape.*\(2, 2, 3, 1\) for the queries"),
        (lambda heads, **_: None, "must return heads: floats .* for the queries"),
        (lambda heads, **_: np.ones((B, 2, 3, 4), "int32"), "must return heads: floats .* for the queries"),
    ],
)
def test_bad_process_heads_is_refused(process, said):
    x = np.ones((B, 3, 8), "float32")
    with pytest.raises((TypeError, ValueError), match=f"`process_heads` {said}"):
        MultiHeadAttention(DotProductAttention(), 2, process_heads=process)(x, x, x)


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class ScaledHeads(keras.layers.Layer):
    """A weight for queries and keys."""

    def build(self, heads_shape):
        self.scale = self.add_weight(shape=(heads_shape[-1],), initializer="ones", name="scale")

    def call(self, heads, role="queries", offset=0):
        return heads if role == "values" else heads * self.scale


@pytest.mark.slow
def test_layer_that_processes_heads_is_trained_and_saved(tmp_path):
    x = draw_normal(B, T, 8)
    entry = keras.Input((None, 8))
    layer = MultiHeadAttention(DotProductAttention(), 2, process_heads=ScaledHeads())
    model = keras.Model(entry, layer(entry, entry, entry))
    assert any(variable.path.endswith("scale") for variable in model.trainable_variables)
    model.compile("sgd", "mse")
    model.fit(x, x, verbose=0, epochs=3)
    assert np.abs(to_numpy(layer.process_heads.scale) - 1).max() > 1e-6
    again = save_and_load(model, tmp_path)
    assert_identical(to_numpy(again(x)), to_numpy(model(x)))


FEW, D = 4, 8  # steps, and the size of each
SIZES = {"grows": None, "just fits": FEW, "has room": FEW + 2}
IDS = np.array([[1, 2, 0, 0], [1, 2, 3, 4]])
PROMPTS = {f"{name}-{prompt}": (prompt, size) for name, size in SIZES.items() for prompt in (4, 1)}
carries_masks = pytest.mark.skipif(keras.backend.backend() == "jax", reason="arrays of JAX carry nothing")


def masked(ids, size):
    initializer = keras.initializers.RandomNormal(seed=1)
    return keras.layers.Embedding(9, size, mask_zero=True, embeddings_initializer=initializer)(ids)


@carries_masks
@parametrize_in_turn("prompt", PROMPTS, num_slow_values=1)
def test_state_carries_the_masks_of_its_steps(case, prompt):
    prompt, capacity = prompt
    layer, inputs = case.layer(), case.inputs(leading=(B,), Tq=3, Tk=FEW)
    keys = masked(IDS, inputs["keys"].shape[-1])
    _, plain = layer(inputs["queries"], keys, inputs["values"], keys_mask=IDS != 0, return_attention_scores=True)
    state = layer.precompute(masked(IDS[:, :prompt], keys.shape[-1]), inputs["values"][:, :prompt], capacity=capacity)
    if prompt < FEW:
        steps = masked(IDS[:, prompt:], keys.shape[-1])
        state = layer.append(state, steps, inputs["values"][:, prompt:])
    _, weights = layer(inputs["queries"], state, return_attention_scores=True)
    assert_close(to_numpy(weights)[..., :FEW], to_numpy(plain), "float32")
    assert np.all(to_numpy(weights)[0, ..., 2:] == 0)


@carries_masks
@pytest.mark.parametrize("capacity", [None, FEW + 2])
def test_state_joins_masked_values_and_steps_without_a_mask(capacity):
    layer, x = called(), draw_normal(B, FEW, D)
    state = layer.precompute(x[:, :3], masked(IDS[:, :3], D), capacity=capacity)
    state = layer.append(state, x[:, 3:], x[:, 3:])  # all of which take part
    _, weights = layer(x[:, 3:], state, return_attention_scores=True)
    assert np.array_equal(to_numpy(weights)[0, 0, 0, :4] > 0, [True, True, False, True])
    assert np.all(to_numpy(weights)[1, 0, 0, :4] > 0)


def called(layer=None):
    layer = MultiHeadAttention(DotProductAttention(), 2) if layer is None else layer
    x = draw_normal(B, FEW, D)
    layer(x, x, x)
    return layer


UNLIKE = {
    "fewer values": ((B, 2, D), (B, 1, D)),
    "fewer examples": ((1, 1, D), (1, 1, D)),
    "small values": ((B, 1, D), (B, 1, 1)),
    "flat values": ((B, 1, D), (B, D)),
}
WAYS = [(None, False, False), (None, True, True), (FEW + 2, False, True), (FEW + 2, True, False)]


@pytest.mark.parametrize("unlike", UNLIKE)
@pytest.mark.parametrize(("capacity", "heads", "symbolic"), WAYS)
def test_append_refuses_steps_of_other_sizes(capacity, unlike, heads, symbolic):
    layer, x = called(None if heads else AdditiveAttention(5)), draw_normal(B, FEW, D)
    state = layer.precompute(x[:, :2], x[:, :2], capacity=capacity)
    keys, values = (draw_normal(*shape) for shape in UNLIKE[unlike])
    if symbolic:
        state = {name: keras.KerasTensor(tensor.shape, tensor.dtype) for name, tensor in state.items()}
        keys, values = (keras.KerasTensor(array.shape, "float32") for array in (keys, values))
    with pytest.raises(ValueError, match=r"must (agree in|have (the|shape|at least)|be 8)"):
        layer.append(state, keys, values)


@pytest.mark.x64
def test_graph_of_any_capacity_takes_lengths_of_64_bits():
    layer, x = called(), draw_normal(B, FEW, D)
    state = layer.precompute(x, x, capacity=FEW + 2)
    entries = {name: keras.Input((2, None, D // 2), name=name) for name in ("projected_keys", "projected_values")}
    entries["length"] = keras.Input((), dtype="int64", name="length")
    now = keras.Input((1, D), name="now")
    grown = layer.append(entries, now, now)
    model = keras.Model({"now": now, **entries}, layer(now, grown))
    exact = layer(x[:, :1], layer.append(state, x[:, :1], x[:, :1]))
    given = {name: to_numpy(tensor) for name, tensor in state.items()} | {"now": x[:, :1]}
    given["length"] = given["length"].astype("int64")
    assert_close(to_numpy(model(given)), to_numpy(exact), "float32")


@pytest.mark.parametrize("make", [lambda: None, lambda: AdditiveAttention(5)], ids=["heads", "additive"])
def test_state_that_lost_steps_gives_nan_in_that_example_alone(make):
    layer, x = called(make()), draw_normal(B, FEW, D)
    state = {**layer.precompute(x, x, capacity=FEW), "length": np.array([FEW - 1, FEW], "int32")}
    state = layer.append(state, x[:, :1], x[:, :1])
    takes_part = np.array([[True, True], [True, False]])
    output, weights = layer(x[:, :2], state, queries_mask=takes_part, return_attention_scores=True)
    for found in (to_numpy(output), np.moveaxis(to_numpy(weights).reshape(B, -1, 2, FEW), 1, 2)):
        rows = found.reshape(B, 2, -1)
        assert np.all(np.isfinite(rows[0]))
        assert np.all(np.isnan(rows[1, 0]))
        assert np.all(rows[1, 1] == 0)
