"""Key/value cache of a decoder: equality with the full pass, positions, masks, gradients and invalid states."""

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
CHUNK_SIZES = {"one by one": [1, 1, 1, 1, 1, 1], "a prompt, then one by one": [3, 1, 1, 1], "in parts": [2, 3, 1]}
BAND_MASKS = {
    "causal": {"use_causal_mask": True},
    "window": {"window": (2, 0)},
    "causal window": {"use_causal_mask": True, "window": (1, 1)},
}
CAPACITIES = {"grows": None, "just fits": T, "has room": T + 2}
every_capacity = pytest.mark.parametrize("capacity", CAPACITIES.values(), ids=CAPACITIES)


def draw_steps(case):
    """Return queries, keys and values of T steps each."""
    return case.inputs(leading=(B,), Tq=T, Tk=T)


def decode_in_chunks(layer, inputs, chunk_sizes, capacity, **masks):
    """Return outputs (B, T, Dv) and weights (..., T, T) of calls on a growing state."""
    state, start, results = None, 0, []
    for size in chunk_sizes:
        chunk = {name: array[:, start : start + size] for name, array in inputs.items()}
        if state is None:
            state = layer.precompute(chunk["keys"], chunk["values"], capacity=capacity)
        else:
            state = layer.append(state, chunk["keys"], chunk["values"])
        if not size:  # the first chunk may be empty
            continue
        output, weights = layer(chunk["queries"], state, return_attention_scores=True, **masks)
        weights = to_numpy(weights)
        assert np.all(weights[..., start + size :] == 0)
        padding = [(0, 0)] * (weights.ndim - 1) + [(0, T - start - size)]
        results.append((to_numpy(output), np.pad(weights[..., : start + size], padding)))
        start += size
    return [np.concatenate(arrays, -2) for arrays in zip(*results, strict=True)]


def assert_equal_to_full_pass(layer, inputs, chunk_sizes, capacity, **masks):
    full_pass = layer(*inputs.values(), return_attention_scores=True, **masks)
    decoded = decode_in_chunks(layer, inputs, chunk_sizes, capacity, **masks)
    for actual, expected in zip(decoded, full_pass, strict=True):
        assert_close(actual, to_numpy(expected), "float32")


@parametrize_in_turn("capacity", CAPACITIES, CASES + VARIANTS, num_slow_values=1)
def test_single_steps_equal_the_full_pass(case, capacity):
    assert_equal_to_full_pass(case.layer(), draw_steps(case), [1] * T, capacity, use_causal_mask=True)


def draw_self_attention_inputs():
    return dict.fromkeys(("queries", "keys", "values"), draw_normal(B, T, 8))


# Nine of 81 combinations: any two values of two different parameters occur together once.
COMBINATIONS = [(a, b, (a + b) % 3, (a + 2 * b) % 3) for a in range(3) for b in range(3)]


@pytest.mark.parametrize(
    ("chunks", "band", "capacity", "groups"),
    [([*CHUNK_SIZES][a], [*BAND_MASKS][b], [*CAPACITIES][c], (None, 2, 1)[d]) for a, b, c, d in COMBINATIONS],
)
def test_heads_equal_the_full_pass_for_any_chunks_and_band_mask(chunks, band, capacity, groups):
    layer, inputs = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=groups), draw_self_attention_inputs()
    assert_equal_to_full_pass(layer, inputs, CHUNK_SIZES[chunks], CAPACITIES[capacity], **BAND_MASKS[band])


@pytest.mark.parametrize(
    "build_attention",
    [lambda: AdditiveAttention(5, query_block_size=2), CosineAttention, lambda: LocationSensitiveAttention(5, 2, 3)],
    ids=["additive", "cosine", "location"],
)
def test_heads_of_every_score_grow_from_an_empty_state(build_attention):
    layer, inputs = MultiHeadAttention(build_attention(), 2), draw_self_attention_inputs()
    assert_equal_to_full_pass(layer, inputs, [0, 2, 1, 1, 1, 1], T + 2, **BAND_MASKS["causal"])


def scale_by_position(heads, role, offset):
    """Multiply heads by a factor that depends on the position, and on the role: queries, keys or values."""
    positions = ops.expand_dims(ops.convert_to_tensor(offset), -1) + ops.arange(ops.shape(heads)[-2], dtype="int32")
    positions = ops.expand_dims(positions if len(positions.shape) == 1 else ops.expand_dims(positions, 1), -1)
    return heads * (1 + {"queries": 0.3, "keys": 0.1, "values": 0.2}[role] * ops.cast(positions, "float32"))


def build_self_attention(num_heads=2, **options):
    """Return inputs (B, T, 8), a layer, and its output for all steps at once."""
    x = draw_normal(B, T, 8)
    layer = MultiHeadAttention(DotProductAttention(dtype=options.get("dtype")), num_heads, **options)
    return x, layer, to_numpy(layer(x, x, x, use_causal_mask=True))


@every_capacity
def test_positions_of_processed_heads_continue_in_a_state(capacity):
    """Unlike `RotaryEmbedding`, the function changes values too."""
    inputs = draw_self_attention_inputs()
    layer = MultiHeadAttention(DotProductAttention(), 4, num_kv_heads=2, process_heads=scale_by_position)
    assert_equal_to_full_pass(layer, inputs, [2, 1, 3], capacity, **BAND_MASKS["causal"])
    expected = to_numpy(layer(**inputs, use_causal_mask=True))
    layer.process_heads = None
    assert np.abs(to_numpy(layer(**inputs, use_causal_mask=True)) - expected).max() > 0.01


def test_each_example_of_fixed_capacity_has_its_own_length():
    """Prompts of different lengths: the steps of each example are appended at its own length."""
    x, layer, full_pass = build_self_attention()
    state = layer.precompute(x[:, :4], x[:, :4], capacity=T)
    state["length"] = ops.convert_to_tensor(np.array([2, 4], "int32"))  # the first prompt has two steps of padding
    steps = np.stack([x[0, 2:4], x[1, 4:6]])
    state = layer.append(state, steps, steps)
    output = to_numpy(layer(steps, state, use_causal_mask=True))
    assert_close(output, np.stack([full_pass[0, 2:4], full_pass[1, 4:6]]), "float32")
    np.testing.assert_array_equal(to_numpy(state["length"]), [4, 6])


@every_capacity
def test_masks_and_lengths_apply_to_a_state(capacity):
    rng = np.random.default_rng(0)
    x, keys_mask = rng.normal(size=(B, T, 8)).astype("float32"), rng.random((B, T)) < 0.6
    layer = MultiHeadAttention(DotProductAttention(), 2)
    masks = {"attention_mask": keys_mask[:, None, :], "valid_lens": np.array([0, 5])}
    full_pass = to_numpy(layer(x, x, x, use_causal_mask=True, **masks))
    state = layer.precompute(x[:, :4], x[:, :4], capacity=capacity)
    state = layer.append(state, x[:, 4:], x[:, 4:])
    padding = [(0, 0), (0, 0), (0, (capacity or T) - T)]
    masks["attention_mask"] = np.pad(masks["attention_mask"], padding, constant_values=True)
    assert_close(to_numpy(layer(x[:, 4:], state, use_causal_mask=True, **masks)), full_pass[:, 4:], "float32")


@parametrize_in_turn("band", BAND_MASKS, CASES + VARIANTS, num_slow_values=1)
def test_offset_sets_the_position_of_the_first_query(case, band):
    layer, inputs = case.layer(), draw_steps(case)
    masks = {"causal": band.get("use_causal_mask", False), "window": band.get("window")}
    full_pass = compute_outputs(layer, inputs, masks)
    chunk = inputs | {"queries": inputs["queries"][:, 2:5]}
    for offset in (2, np.int32(2), np.array([2, 2])):
        results = layer(**chunk, offset=offset, return_attention_scores=True, **band)
        for actual, expected in zip(results, full_pass, strict=True):
            assert_close(to_numpy(actual), expected[..., 2:5, :], "float32")


@every_capacity
def test_gradients_of_appended_steps_equal_the_full_pass(capacity):
    x, layer, _ = build_self_attention()

    def full_pass_loss(x):
        return ops.sum(ops.square(layer(x, x, x, use_causal_mask=True)))

    def chunked_loss(x):
        state = layer.precompute(x[:, :4], x[:, :4], capacity=capacity)
        outputs = [layer(x[:, :4], state, use_causal_mask=True)]
        state = layer.append(state, x[:, 4:], x[:, 4:])
        outputs.append(layer(x[:, 4:], state, use_causal_mask=True))
        return ops.sum(ops.square(ops.concatenate(outputs, axis=1)))

    expected, actual = (
        compute_gradients(loss, 1, layer.trainable_variables)(ops.convert_to_tensor(x))
        for loss in (full_pass_loss, chunked_loss)
    )
    for gradient, expected_gradient in zip(actual, expected, strict=True):
        assert_close(to_numpy(gradient), to_numpy(expected_gradient), "float32", tolerance=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize("mode", COMPILED_MODES)
def test_compiled_step_of_fixed_capacity_equals_the_full_pass(mode):
    x, layer, full_pass = build_self_attention(4, num_kv_heads=2)

    def step(x, keys, values, length):
        state = {"projected_keys": keys, "projected_values": values, "length": length}
        state = layer.append(state, x, x)
        return layer(x, state, use_causal_mask=True), *state.values()

    run = compile_function(step, mode, variables=layer.variables)
    state = list(layer.precompute(x[:, :1], x[:, :1], capacity=T).values())
    for n in range(1, T):
        output, *state = run(ops.convert_to_tensor(x[:, n : n + 1]), *state)
        assert_close(to_numpy(output), full_pass[:, n : n + 1], "float32")


@pytest.mark.slow
@pytest.mark.parametrize("capacity", [None, T])
def test_functional_step_model_is_saved_and_loaded(capacity, tmp_path):
    x, layer, full_pass = build_self_attention(4, num_kv_heads=2)
    new_step = keras.Input((1, 8), name="x")
    state = {name: keras.Input((2, capacity, 2), name=name) for name in ("projected_keys", "projected_values")}
    if capacity:
        state["length"] = keras.Input((), dtype="int32", name="length")
    next_state = layer.append(state, new_step, new_step)
    assert tuple(next_state["projected_keys"].shape) == (None, 2, capacity, 2)
    output = layer(new_step, next_state, use_causal_mask=True)
    model = keras.Model({"x": new_step, **state}, {"output": output, **next_state})
    for step in (model, save_and_load(model, tmp_path)):
        results = layer.precompute(x[:, :1], x[:, :1], capacity=capacity)
        for n in range(1, T):
            results = step({"x": ops.convert_to_tensor(x[:, n : n + 1]), **results})
            assert_close(to_numpy(results.pop("output")), full_pass[:, n : n + 1], "float32")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "mixed_float16"])
def test_state_keeps_half_precision(dtype):
    x, layer, full_pass = build_self_attention(dtype=dtype)
    full_pass = full_pass.astype("float32")
    for capacity in (None, T):
        state = layer.precompute(x[:, :4], x[:, :4], capacity=capacity)
        state = layer.append(state, x[:, 4:], x[:, 4:])
        assert keras.backend.standardize_dtype(state["projected_keys"].dtype) == layer.compute_dtype
        output = to_numpy(layer(x[:, 4:], state, use_causal_mask=True)).astype("float32")
        np.testing.assert_allclose(output, full_pass[:, 4:], atol=0.05)


def build_heads(num_heads=2):
    layer, x = MultiHeadAttention(DotProductAttention(), num_heads), np.ones((B, 3, 8), "float32")
    layer(x, x, x)
    return layer, x


def build_state(layer, x, lengths):
    return {**layer.precompute(x, x, capacity=8), "length": ops.convert_to_tensor(np.array(lengths))}


STATE_RULE = r"`state` must be a dict.*"
INVALID_CALLS = [  # a call, and a pattern of its error
    (lambda layer, x: layer(x, layer.precompute(x, x), x), "`values` must be None if the state in place of"),
    (lambda layer, x: layer.append(layer.precompute(x), x, x), STATE_RULE + "projected_keys"),
    (lambda layer, x: layer.append(x, x, x), STATE_RULE + "Received: ndarray"),
    (lambda layer, x: layer.precompute(x, capacity=4), "`values` must be a tensor"),
    (lambda layer, x: layer.precompute(x, x, capacity=2), "at least the number of keys.*capacity=2 for 3"),
    (lambda layer, x: layer(x, build_heads(4)[0].precompute(x, x)), "must have size 2.*of this layer's `precompute`"),
    (lambda layer, x: layer(x, build_state(layer, x, [2, 2, 2])), "must have shape B"),
    (lambda layer, x: layer.append(build_state(layer, x, [2.0, 2.0]), x, x), "must be integers"),
    (lambda layer, x: layer.append(build_heads(4)[0].precompute(x, x), x, x), "with the layer that made it"),
    (lambda layer, x: layer.precompute(x[:, :1], x[:, :2]), "must agree in all axes but the last"),
    (lambda layer, x: layer(x, x, x, use_causal_mask=True, offset=np.arange(3)), "`offset` must be one"),
    (lambda layer, x: layer.precompute(x, x, capacity=2.5), "`capacity` must be an integer"),
    (lambda layer, x: layer(x, x, x, use_causal_mask=True, offset=1.5), "`offset` must be integers"),
]


@pytest.mark.parametrize(("call", "message"), INVALID_CALLS)
def test_invalid_states_and_capacities_are_rejected(call, message):
    error = TypeError if message.endswith(("an integer", "integers")) else ValueError
    with pytest.raises(error, match=message):
        call(*build_heads())


@pytest.mark.parametrize(
    ("process_heads", "message"),
    [
        (3, "must be a layer or a function, .*Received: int, which takes"),
        (keras.layers.LayerNormalization(), "must be a layer or .*Received: LayerNormalization, which takes"),
        (lambda heads, role, offset: heads[..., :1], r"must return heads of the shape.*\(2, 2, 3, 1\) for the queries"),
        (lambda heads, **_: None, "must return heads: floats .* for the queries"),
        (lambda heads, **_: np.ones((B, 2, 3, 4), "int32"), "must return heads: floats .* for the queries"),
    ],
)
def test_invalid_process_heads_is_rejected(process_heads, message):
    x = np.ones((B, 3, 8), "float32")
    with pytest.raises((TypeError, ValueError), match=f"`process_heads` {message}"):
        MultiHeadAttention(DotProductAttention(), 2, process_heads=process_heads)(x, x, x)


@keras.saving.register_keras_serializable(package="keras_attn_tests")
class ScaledHeads(keras.layers.Layer):
    """Layer that multiplies queries and keys by a trained weight."""

    def build(self, heads_shape):
        self.scale = self.add_weight(shape=(heads_shape[-1],), initializer="ones", name="scale")

    def call(self, heads, role="queries", offset=0):
        return heads if role == "values" else heads * self.scale


@pytest.mark.slow
def test_layer_as_process_heads_is_trained_and_saved(tmp_path):
    x = draw_normal(B, T, 8)
    inputs = keras.Input((None, 8))
    layer = MultiHeadAttention(DotProductAttention(), 2, process_heads=ScaledHeads())
    model = keras.Model(inputs, layer(inputs, inputs, inputs))
    assert any(variable.path.endswith("scale") for variable in model.trainable_variables)
    model.compile("sgd", "mse")
    model.fit(x, x, verbose=0, epochs=3)
    assert np.abs(to_numpy(layer.process_heads.scale) - 1).max() > 1e-6
    assert_identical(to_numpy(save_and_load(model, tmp_path)(x)), to_numpy(model(x)))


STEPS, D = 4, 8
IDS = np.array([[1, 2, 0, 0], [1, 2, 3, 4]])  # (B, STEPS); 0 is padding
STATE_SIZES = {"grows": None, "just fits": STEPS, "has room": STEPS + 2}
PROMPTS = {f"{name}-{length}": (length, size) for name, size in STATE_SIZES.items() for length in (4, 1)}
carries_masks = pytest.mark.skipif(keras.backend.backend() == "jax", reason="arrays of JAX have no mask attribute")


def embed_with_mask(ids, size):
    initializer = keras.initializers.RandomNormal(seed=1)
    return keras.layers.Embedding(9, size, mask_zero=True, embeddings_initializer=initializer)(ids)


@carries_masks
@parametrize_in_turn("prompt", PROMPTS, num_slow_values=1)
def test_state_stores_the_masks_of_its_steps(case, prompt):
    length, capacity = prompt
    layer, inputs = case.layer(), case.inputs(leading=(B,), Tq=3, Tk=STEPS)
    size, values = inputs["keys"].shape[-1], inputs["values"]
    keys = embed_with_mask(IDS, size)
    _, expected = layer(inputs["queries"], keys, values, keys_mask=IDS != 0, return_attention_scores=True)
    state = layer.precompute(embed_with_mask(IDS[:, :length], size), values[:, :length], capacity=capacity)
    if length < STEPS:
        state = layer.append(state, embed_with_mask(IDS[:, length:], size), values[:, length:])
    _, weights = layer(inputs["queries"], state, return_attention_scores=True)
    assert_close(to_numpy(weights)[..., :STEPS], to_numpy(expected), "float32")
    assert np.all(to_numpy(weights)[0, ..., 2:] == 0)


@carries_masks
@pytest.mark.parametrize("capacity", [None, STEPS + 2])
def test_state_accepts_masked_values_and_unmasked_steps(capacity):
    layer, x = build_by_call(), draw_normal(B, STEPS, D)
    state = layer.precompute(x[:, :3], embed_with_mask(IDS[:, :3], D), capacity=capacity)
    state = layer.append(state, x[:, 3:], x[:, 3:])  # without a mask: all are valid
    _, weights = layer(x[:, 3:], state, return_attention_scores=True)
    assert np.array_equal(to_numpy(weights)[0, 0, 0, :4] > 0, [True, True, False, True])
    assert np.all(to_numpy(weights)[1, 0, 0, :4] > 0)


def build_by_call(layer=None):
    """Return a layer, or multi-head attention, after a first call."""
    layer = MultiHeadAttention(DotProductAttention(), 2) if layer is None else layer
    layer(*[draw_normal(B, STEPS, D)] * 3)
    return layer


INVALID_SHAPES = {  # of keys and values
    "fewer values": ((B, 2, D), (B, 1, D)),
    "fewer examples": ((1, 1, D), (1, 1, D)),
    "small values": ((B, 1, D), (B, 1, 1)),
    "flat values": ((B, 1, D), (B, D)),
}


@pytest.mark.parametrize("shapes", INVALID_SHAPES)
@pytest.mark.parametrize(
    ("capacity", "has_heads", "is_symbolic"),
    [(None, False, False), (None, True, True), (STEPS + 2, False, True), (STEPS + 2, True, False)],
)
def test_append_rejects_steps_of_other_sizes(capacity, shapes, has_heads, is_symbolic):
    layer, x = build_by_call(None if has_heads else AdditiveAttention(5)), draw_normal(B, STEPS, D)
    state = layer.precompute(x[:, :2], x[:, :2], capacity=capacity)
    keys, values = (draw_normal(*shape) for shape in INVALID_SHAPES[shapes])
    if is_symbolic:
        state = {name: keras.KerasTensor(tensor.shape, tensor.dtype) for name, tensor in state.items()}
        keys, values = (keras.KerasTensor(array.shape, "float32") for array in (keys, values))
    with pytest.raises(ValueError, match=r"must (agree in|have (the|shape|at least)|be 8)"):
        layer.append(state, keys, values)


@pytest.mark.x64
def test_model_of_any_capacity_accepts_int64_lengths():
    layer, x = build_by_call(), draw_normal(B, STEPS, D)
    state = layer.precompute(x, x, capacity=STEPS + 2)
    inputs = {name: keras.Input((2, None, D // 2), name=name) for name in ("projected_keys", "projected_values")}
    inputs["length"] = keras.Input((), dtype="int64", name="length")
    new_step = keras.Input((1, D), name="x")
    model = keras.Model({"x": new_step, **inputs}, layer(new_step, layer.append(inputs, new_step, new_step)))
    expected = layer(x[:, :1], layer.append(state, x[:, :1], x[:, :1]))
    arrays = {name: to_numpy(tensor) for name, tensor in state.items()} | {"x": x[:, :1]}
    arrays["length"] = arrays["length"].astype("int64")
    assert_close(to_numpy(model(arrays)), to_numpy(expected), "float32")


@pytest.mark.parametrize("build_attention", [lambda: None, lambda: AdditiveAttention(5)], ids=["heads", "additive"])
def test_overflow_of_a_state_returns_nan_for_that_example_only(build_attention):
    layer, x = build_by_call(build_attention()), draw_normal(B, STEPS, D)
    state = {**layer.precompute(x, x, capacity=STEPS), "length": np.array([STEPS - 1, STEPS], "int32")}
    state = layer.append(state, x[:, :1], x[:, :1])
    queries_mask = np.array([[True, True], [True, False]])
    output, weights = layer(x[:, :2], state, queries_mask=queries_mask, return_attention_scores=True)
    for result in (to_numpy(output), np.moveaxis(to_numpy(weights).reshape(B, -1, 2, STEPS), 1, 2)):
        rows = result.reshape(B, 2, -1)
        assert np.all(np.isfinite(rows[0]))
        assert np.all(np.isnan(rows[1, 0]))
        assert np.all(rows[1, 1] == 0)
