"""Greedy decoding as a model: the loop around an encoder and a step."""

import gc
import weakref

import backends
import keras
import numpy as np
import pytest
from decoding_models import (
    END,
    END_GROWING,
    LENGTH,
    OPTIONS,
    START,
    STATIC,
    TOKENS,
    WIDTH,
    Row,
    arrays,
    attending,
    decoded,
    draw_weights,
    firsts_of,
    fixed,
    greedy_by_loop,
    growing,
    ids_of,
    of_one_batch,
    recurrent,
    with_modes,
)
from keras import layers, ops

from keras_attn.decoding import greedy
from keras_attn.decoding._greedy import GreedyDecoding


def check(found, models, inputs, end, *, limit=LENGTH, outputs=(), start=START, rtol=1e-4):
    """Compares each row with what a plain loop writes for it alone; returns the lengths."""
    lengths = []
    for number in range(len(next(iter(inputs.values())))):
        first = start if isinstance(start, int) else int(start[number])
        tokens, score, outs = greedy_by_loop(Row(*models, inputs, number, first), end, limit)
        assert found["tokens"][number].tolist() == [*tokens, *[end or 0] * (limit - len(tokens))]
        assert found["lengths"][number] == len(tokens)
        assert found["scores"][number] == pytest.approx(score, rel=rtol, abs=1e-5)
        for name in outputs:
            kept = found[name][number]
            np.testing.assert_allclose(kept[: len(tokens)], [out[name][0] for out in outs], rtol=rtol, atol=1e-5)
            assert not kept[len(tokens) :].any()
        lengths.append(len(tokens))
    assert [str(found[name].dtype) for name in ("tokens", "lengths", "scores")] == ["int32", "int32", "float32"]
    return lengths


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "end", "limit", "mode"),
    with_modes((range(9), END, LENGTH), ([7], END, LENGTH), (range(9), END, 1), (range(3), None, 5)),
)
def test_greedy_equals_a_loop_over_each_row_alone(mode, rows, end, limit):
    models, inputs = recurrent(), {"ids": ids_of(9)["ids"][[*rows]]}
    model = greedy(*models, start=START, end=end, max_length=limit, outputs=["weights"])
    lengths = check(decoded(model, inputs, mode), models, inputs, end, limit=limit, outputs=["weights"])
    if end is None:
        assert lengths == [limit] * len(inputs["ids"])
    elif len(lengths) == 9 and limit == LENGTH:
        assert set(lengths) == {1, 3, 4, LENGTH}


@pytest.mark.slow
@backends.every_mode
def test_growing_cache_needs_dynamic_shapes(mode):
    encoder, step, state = models = growing()
    inputs, options = firsts_of(9), {"start": START, "end": END_GROWING, "max_length": LENGTH}
    if mode in STATIC:
        with pytest.raises(ValueError, match=r"The state `cache` must keep its shape .* fixed capacity"):
            decoded(greedy(*models, **options), inputs, mode)
        return
    for each in (step, of_one_batch(step, 9)):
        found = decoded(greedy(encoder, each, state, **options), inputs, mode)
        assert set(check(found, models, inputs, END_GROWING)) == {2, 3, 4, LENGTH}


@pytest.mark.slow
@backends.every_mode
def test_cache_of_fixed_capacity_decodes_in_every_mode(mode):
    """As the sentence of the refusal says."""
    first, query = keras.Input((WIDTH,), name="first"), keras.Input((WIDTH,), name="first")
    encoder = keras.Model({"first": first}, {"query": layers.Dense(WIDTH)(first)})
    token, position = (keras.Input((), dtype="int32", name=name) for name in ("token", "position"))
    cache = keras.Input((LENGTH, WIDTH), name="cache")
    here = ops.cast(ops.equal(ops.arange(LENGTH), ops.expand_dims(position, 1)), "float32")
    written = layers.Embedding(TOKENS, WIDTH)(token)
    filled = cache + ops.expand_dims(here, -1) * ops.expand_dims(written, 1)
    logits = layers.Dense(TOKENS)(ops.sum(filled, axis=1) + query)
    step = keras.Model([token, position, cache, query], {"logits": logits, "next_cache": filled})
    draw_weights(2, encoder, step)
    models, inputs = (encoder, step, {"next_cache": "cache"}), firsts_of(4)
    check(decoded(greedy(*models, **OPTIONS), inputs, mode), models, inputs, END)


@pytest.mark.slow
def test_start_names_an_input_and_missing_states_begin_as_zeros():
    encoder, step, state = recurrent()
    first = keras.Input((), dtype="int32", name="first")
    encoder = keras.Model({**encoder.input, "first": first}, {"values": encoder.output["values"]})
    inputs = {**ids_of(5), "first": np.arange(5, dtype="int32")}
    found = decoded(greedy(encoder, step, state, **{**OPTIONS, "start": "first"}), inputs)
    models = (encoder, step, state)
    check(found, models, inputs, END, start=inputs["first"])


@pytest.mark.parametrize(("logits", "mode"), with_modes(([1.0, 3.0, 3.0],), ([-0.0, 0.0, 0.0],)))
def test_first_of_equal_logits_is_taken(logits, mode):
    models, inputs = fixed(logits)
    found = decoded(greedy(*models, start=0, max_length=2), inputs, mode)
    assert (found["tokens"] == np.argmax(logits)).all()


@pytest.mark.slow
def test_encoder_output_takes_precedence_over_input_of_the_same_name():
    encoder, step, state = recurrent()
    given = keras.Input((WIDTH,), name="state")
    encoder = keras.Model({**encoder.input, "state": given}, {**encoder.output, "state": given * 0.5})
    models, inputs = (encoder, step, state), {**ids_of(4), "state": 2 * np.eye(4, dtype="float32")}
    check(decoded(greedy(*models, **OPTIONS), inputs), models, inputs, END)


@pytest.mark.slow
def test_model_reads_weights_trained_later():
    encoder, step, _ = models = recurrent()
    model, inputs = greedy(*models, **OPTIONS), ids_of(9)
    assert {id(weight) for weight in model.weights} == {id(weight) for weight in (*encoder.weights, *step.weights)}
    before = decoded(model, inputs)
    draw_weights(15, encoder, step)
    after = decoded(model, inputs)
    check(after, models, inputs, END)
    assert not np.array_equal(after["tokens"], before["tokens"])


@pytest.mark.slow
def test_dropout_is_off_in_training_too():
    models = recurrent(dropout=0.5)
    model, inputs = greedy(*models, **OPTIONS), ids_of(9)
    check(arrays(model(inputs, training=True)), models, inputs, END)


@pytest.mark.slow
def test_step_gets_no_mask_of_the_encoder():
    """The step is called as a loop outside would: with arrays, which carry no mask."""
    ids, token = keras.Input((None,), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    read, write = layers.Embedding(9, WIDTH, mask_zero=True), layers.Embedding(TOKENS, WIDTH)
    encoder = keras.Model(ids, {"values": read(ids)})
    values = keras.Input((None, WIDTH), name="values")
    mean = layers.GlobalAveragePooling1D()(values)  # of what its mask says, if it has one
    step = keras.Model([token, values], {"logits": layers.Dense(TOKENS)(write(token) + mean)})
    draw_weights(0, encoder, step)
    inputs = {"ids": np.array([[3, 5, 0, 0, 0], [1, 2, 3, 0, 0], [4, 0, 0, 0, 0]], "int32")}
    model = greedy(encoder, step, {}, **OPTIONS)
    check(decoded(model, inputs), (encoder, step, {}), inputs, END)


def test_symbolic_outputs_have_shapes_and_dtypes():
    model = greedy(*recurrent(), **OPTIONS, outputs=["weights"], name="mine")
    assert {name: (tuple(x.shape), x.dtype) for name, x in model.output.items()} == {
        "tokens": ((None, LENGTH), "int32"),
        "lengths": ((None,), "int32"),
        "scores": ((None,), "float32"),
        "weights": ((None, LENGTH, None), "float32"),
    }
    assert model.name == "mine"
    known = model(keras.Input(batch_shape=(3, 8), dtype="int32", name="ids"))
    assert [tuple(known[name].shape) for name in ("tokens", "weights")] == [(3, LENGTH), (3, LENGTH, 8)]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_step_decodes(policy):
    ids, token = keras.Input((None,), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    half = keras.dtype_policies.get(policy).compute_dtype
    encoder = keras.Model(ids, {"state": ops.sum(layers.Embedding(9, WIDTH, dtype=policy)(ids), axis=1)})
    state = keras.Input((WIDTH,), dtype=half, name="state")
    written = layers.Embedding(TOKENS, WIDTH, dtype=policy)(token)
    following = layers.Dense(WIDTH, activation="tanh", dtype=policy)(written + state)
    logits = layers.Dense(TOKENS, dtype=policy)(following)
    step = keras.Model([token, state], {"logits": logits, "next_state": following})
    draw_weights(3, encoder, step)
    model, inputs = greedy(encoder, step, {"next_state": "state"}, **OPTIONS, outputs=["next_state"]), ids_of(4)
    found = decoded(model, inputs)
    assert str(found["next_state"].dtype) == half
    check(found, (encoder, step, {"next_state": "state"}), inputs, END, rtol=0.05)  # XLA rounds less often


class Counting(layers.Layer):
    """Notes how many rows it gets."""

    def __init__(self, seen, **kwargs):
        super().__init__(**kwargs)
        self.seen = seen

    def call(self, tensor):
        if backends.BACKEND == "torch":
            self.seen.append(len(tensor))
            return tensor
        import tensorflow as tf

        def noted(array):
            self.seen.append(len(array))
            return array

        return tf.ensure_shape(tf.numpy_function(noted, [tensor], tensor.dtype), tensor.shape)


@pytest.mark.slow
@backends.only_on("tensorflow", "torch", reason="on JAX shapes are static, so that no row can leave")
@pytest.mark.parametrize(
    ("rows", "batch", "mode", "expected", "seen"),
    [
        # Five of nine rows end after two steps and leave; two of the other four never end, so that half of them stay.
        ([*range(9)], None, backends.MODES[0], [3, 1, 7, 3, 2, 7, 2, 2, 1], [9, 9, 4, 4, 4, 4, 4]),
        ([*range(9)], None, "graph", [3, 1, 7, 3, 2, 7, 2, 2, 1], [9, 9, 4, 4, 4, 4, 4]),
        ([0, 1, 3, 6], 4, backends.MODES[0], [3, 1, 3, 2], [4, 4, 4]),
    ],
)
def test_step_is_not_called_for_rows_that_have_ended(rows, batch, mode, expected, seen):
    """A step of one batch keeps its rows until the last has ended."""
    if mode not in backends.MODES:
        pytest.skip("torch is eager")
    encoder, step, state = recurrent(15)
    counting = Counting([])
    step = keras.Model(step.input, {**step.output, "logits": counting(step.output["logits"])})
    model = greedy(encoder, of_one_batch(step, batch) if batch else step, state, **OPTIONS)
    counting.seen.clear()
    assert decoded(model, {"ids": ids_of(9)["ids"][rows]}, mode)["lengths"].tolist() == expected
    assert counting.seen[-len(seen) :] == seen


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "mode"), with_modes(([*range(9)],), ([1],)))
def test_step_of_one_batch_decodes_that_batch(mode, rows):
    encoder, step, state = models = recurrent()
    model = greedy(encoder, of_one_batch(step, len(rows)), state, **OPTIONS, outputs=["weights"])
    assert model.input["ids"].shape == (len(rows), None)
    assert model.output["tokens"].shape == (len(rows), LENGTH)
    inputs = {"ids": ids_of(9)["ids"][rows]}
    check(decoded(model, inputs, mode), models, inputs, END, outputs=["weights"])


@pytest.mark.slow
def test_saved_model_shares_the_layer_of_both_models(tmp_path):
    models, inputs = attending(), ids_of(9)
    model = greedy(*models, **OPTIONS)
    before = decoded(model, inputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    after = decoded(loaded, inputs)
    assert all(np.array_equal(after[name], array) for name, array in before.items())
    assert len(loaded.weights) == len(model.weights)
    decoding = loaded.layers[-1]
    assert decoding.encoder.get_layer("attend") is decoding.step.get_layer("attend")
    again = keras.models.clone_model(model)
    again.set_weights(model.get_weights())
    assert np.array_equal(decoded(again, inputs)["tokens"], before["tokens"])


@pytest.mark.slow
@backends.only_on("tensorflow", reason="the others run an eager call operation by operation")
def test_eager_call_reads_variables_of_a_stateless_scope():
    """Weights that a scope puts in the place of others, and none of a scope that has ended."""
    model, inputs = greedy(*recurrent(), **OPTIONS, outputs=["weights"]), ids_of(4)
    before = arrays(model(inputs))
    for seed in (5, 6):
        rng = np.random.default_rng(seed)
        others = [(v, ops.convert_to_tensor(rng.normal(size=v.shape).astype("float32"))) for v in model.weights]
        with keras.StatelessScope(state_mapping=others):
            within = arrays(model(inputs))
        kept = model.get_weights()
        model.set_weights([value for _, value in others])
        expected = arrays(model(inputs))
        model.set_weights(kept)
        assert all(np.array_equal(within[name], expected[name]) for name in within)
        assert not np.allclose(within["scores"], before["scores"])
    assert all(np.array_equal(array, before[name]) for name, array in arrays(model(inputs)).items())


@pytest.mark.slow
@backends.only_on("tensorflow", reason="the others keep no program")
def test_program_of_an_eager_call_does_not_keep_its_model_alive():
    model = greedy(*recurrent(), **OPTIONS)
    model(ids_of(2))
    layer = weakref.ref(next(each for each in model.layers if isinstance(each, GreedyDecoding)))
    del model
    gc.collect()
    assert layer() is None
