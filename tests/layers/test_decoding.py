"""Greedy decoding and beam search as Keras models: equality with loops over single rows, shapes and saved files."""

import gc
import weakref
from functools import partial

import backends
import keras
import numpy as np
import pytest
from decoding_models import (
    END,
    GROWING_CACHE_END,
    LENGTH,
    OPTIONS,
    START,
    STATIC_MODES,
    TOKENS,
    WIDTH,
    ReferenceDecoder,
    build_attention_models,
    build_cache_models,
    build_constant_models,
    build_recurrent_models,
    combine_with_modes,
    decode,
    decode_greedily,
    draw_first_inputs,
    draw_ids,
    draw_weights,
    enumerate_sequences,
    fix_batch_size,
    search_beam,
    to_arrays,
)
from keras import layers, ops
from layer_contract import save_and_load

from keras_attn.decoding import beam, greedy
from keras_attn.decoding._greedy import GreedyDecoding


def assert_equals_search(results, models, inputs, search, end, *, limit=LENGTH, outputs=(), start=START, rtol=1e-4):
    """Assert that each row has the sequences of `search`, best first. Return the length of each best sequence."""
    assert [str(results[name].dtype) for name in ("tokens", "lengths", "scores")] == ["int32", "int32", "float32"]
    if results["tokens"].ndim == 2:  # greedy decoding has no axis of ranks
        results = {name: array[:, None] for name, array in results.items()}
    for index, ranked_tokens in enumerate(results["tokens"]):
        reference = ReferenceDecoder(*models, inputs, index, start if isinstance(start, int) else int(start[index]))
        sequences = search(reference)[: len(ranked_tokens)]
        for rank, (score, tokens) in enumerate(sequences):
            assert ranked_tokens[rank].tolist() == [*tokens, *[end or 0] * (limit - len(tokens))]
            assert results["lengths"][index, rank] == len(tokens)
            assert results["scores"][index, rank] == pytest.approx(score, rel=rtol, abs=1e-5)
            for name in outputs:
                actual = results[name][index, rank]
                expected = [reference.predict_after(tokens[:length])[1][name][0] for length in range(len(tokens))]
                np.testing.assert_allclose(actual[: len(tokens)], expected, rtol=rtol, atol=1e-5)
                assert not actual[len(tokens) :].any()
        assert (results["lengths"][index, len(sequences) :] == 0).all()
        assert (results["scores"][index, len(sequences) :] == -np.inf).all()
        assert (ranked_tokens[len(sequences) :] == (end or 0)).all()
    return results["lengths"][:, 0].tolist()


def assert_greedy(results, models, inputs, end, limit=LENGTH, **options):
    """Assert that each row equals greedy decoding of that row in a loop. Return the lengths."""
    search = partial(decode_greedily, end=end, limit=limit)
    return assert_equals_search(results, models, inputs, search, end, limit=limit, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "end", "limit", "mode"),
    combine_with_modes((range(9), END, LENGTH), ([7], END, LENGTH), (range(9), END, 1), (range(3), None, 5)),
)
def test_greedy_decoding_equals_a_loop_over_single_rows(mode, rows, end, limit):
    models, inputs = build_recurrent_models(), {"ids": draw_ids(9)["ids"][[*rows]]}
    model = greedy(*models, start=START, end=end, max_length=limit, outputs=["weights"])
    lengths = assert_greedy(decode(model, inputs, mode), models, inputs, end, limit=limit, outputs=["weights"])
    if end is None:
        assert lengths == [limit] * len(inputs["ids"])
    elif len(lengths) == 9 and limit == LENGTH:
        assert set(lengths) == {1, 3, 4, LENGTH}


@pytest.mark.slow
@backends.every_compilation_mode
def test_growing_cache_needs_dynamic_shapes(mode):
    encoder, step, next_inputs = models = build_cache_models()
    inputs, options = draw_first_inputs(9), {"start": START, "end": GROWING_CACHE_END, "max_length": LENGTH}
    if mode in STATIC_MODES:
        with pytest.raises(ValueError, match=r"The state `cache` must keep its shape .* fixed capacity"):
            decode(greedy(*models, **options), inputs, mode)
        return
    for step_model in (step, fix_batch_size(step, 9)):
        results = decode(greedy(encoder, step_model, next_inputs, **options), inputs, mode)
        assert set(assert_greedy(results, models, inputs, GROWING_CACHE_END)) == {2, 3, 4, LENGTH}


@pytest.mark.slow
@backends.every_compilation_mode
def test_fixed_capacity_cache_decodes_in_every_mode(mode):
    """The error message for a growing cache recommends a fixed capacity."""
    first, query = keras.Input((WIDTH,), name="first"), keras.Input((WIDTH,), name="query")
    encoder = keras.Model({"first": first}, {"query": layers.Dense(WIDTH)(first)})
    token, position = (keras.Input((), dtype="int32", name=name) for name in ("token", "position"))
    cache = keras.Input((LENGTH, WIDTH), name="cache")
    is_position = ops.cast(ops.equal(ops.arange(LENGTH), ops.expand_dims(position, 1)), "float32")
    embedded_token = layers.Embedding(TOKENS, WIDTH)(token)
    next_cache = cache + ops.expand_dims(is_position, -1) * ops.expand_dims(embedded_token, 1)
    logits = layers.Dense(TOKENS)(ops.sum(next_cache, axis=1) + query)
    step = keras.Model([token, position, cache, query], {"logits": logits, "next_cache": next_cache})
    draw_weights(2, encoder, step)
    models, inputs = (encoder, step, {"next_cache": "cache"}), draw_first_inputs(4)
    assert_greedy(decode(greedy(*models, **OPTIONS), inputs, mode), models, inputs, END)


@pytest.mark.slow
def test_start_may_name_an_input_and_missing_states_are_zeros():
    encoder, step, next_inputs = build_recurrent_models()
    first = keras.Input((), dtype="int32", name="first")
    encoder = keras.Model({**encoder.input, "first": first}, {"values": encoder.output["values"]})
    inputs = {**draw_ids(5), "first": np.arange(5, dtype="int32")}
    results = decode(greedy(encoder, step, next_inputs, **{**OPTIONS, "start": "first"}), inputs)
    assert_greedy(results, (encoder, step, next_inputs), inputs, END, start=inputs["first"])


@pytest.mark.parametrize(("logits", "mode"), combine_with_modes(([1.0, 3.0, 3.0],), ([-0.0, 0.0, 0.0],)))
def test_first_of_equal_logits_is_selected(logits, mode):
    models, inputs = build_constant_models(logits)
    results = decode(greedy(*models, start=0, max_length=2), inputs, mode)
    assert (results["tokens"] == np.argmax(logits)).all()


@pytest.mark.slow
def test_dropout_is_inactive_during_training():
    models = build_recurrent_models(dropout=0.5)
    model, inputs = greedy(*models, **OPTIONS), draw_ids(9)
    assert_greedy(to_arrays(model(inputs, training=True)), models, inputs, END)


@pytest.mark.slow
def test_step_receives_no_mask_of_the_encoder():
    """A loop in Python gives the step arrays, which carry no mask. The model must return the same as the loop."""
    ids, token = keras.Input((None,), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    embed_ids, embed_token = layers.Embedding(9, WIDTH, mask_zero=True), layers.Embedding(TOKENS, WIDTH)
    encoder = keras.Model(ids, {"values": embed_ids(ids)})
    values = keras.Input((None, WIDTH), name="values")
    mean = layers.GlobalAveragePooling1D()(values)  # leaves out masked positions if `values` carries a mask
    step = keras.Model([token, values], {"logits": layers.Dense(TOKENS)(embed_token(token) + mean)})
    draw_weights(0, encoder, step)
    inputs = {"ids": np.array([[3, 5, 0, 0, 0], [1, 2, 3, 0, 0], [4, 0, 0, 0, 0]], "int32")}
    model = greedy(encoder, step, {}, **OPTIONS)
    assert_greedy(decode(model, inputs), (encoder, step, {}), inputs, END)


def test_symbolic_outputs_have_shapes_and_dtypes():
    expected = {
        "tokens": ((None, LENGTH), "int32"),
        "lengths": ((None,), "int32"),
        "scores": ((None,), "float32"),
        "weights": ((None, LENGTH, None), "float32"),
    }
    numpy_options = {name: np.int64(value) for name, value in OPTIONS.items()}
    model = greedy(*build_recurrent_models(), **numpy_options, outputs=["weights"], name="mine")
    assert {name: (x.shape, x.dtype) for name, x in model.output.items()} == expected
    assert model.name == "mine"
    outputs = model(keras.Input(batch_shape=(3, 8), dtype="int32", name="ids"))
    assert [tuple(outputs[name].shape) for name in ("tokens", "weights")] == [(3, LENGTH), (3, LENGTH, 8)]

    model = beam(*build_recurrent_models(), **OPTIONS, width=5, best=2, outputs=["weights"])
    expected_with_ranks = {name: ((None, 2, *shape[1:]), dtype) for name, (shape, dtype) in expected.items()}
    assert {name: (x.shape, x.dtype) for name, x in model.output.items()} == expected_with_ranks
    assert model.name == model.layers[-1].name


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_half_precision_step_decodes(policy):
    ids, token = keras.Input((None,), dtype="int32", name="ids"), keras.Input((), dtype="int32", name="token")
    compute_dtype = keras.dtype_policies.get(policy).compute_dtype
    encoder = keras.Model(ids, {"state": ops.sum(layers.Embedding(9, WIDTH, dtype=policy)(ids), axis=1)})
    state = keras.Input((WIDTH,), dtype=compute_dtype, name="state")
    embedded_token = layers.Embedding(TOKENS, WIDTH, dtype=policy)(token)
    next_state = layers.Dense(WIDTH, activation="tanh", dtype=policy)(embedded_token + state)
    logits = layers.Dense(TOKENS, dtype=policy)(next_state)
    step = keras.Model([token, state], {"logits": logits, "next_state": next_state})
    draw_weights(3, encoder, step)
    model, inputs = greedy(encoder, step, {"next_state": "state"}, **OPTIONS, outputs=["next_state"]), draw_ids(4)
    results = decode(model, inputs)
    assert str(results["next_state"].dtype) == compute_dtype
    # A loop compiled by XLA rounds fewer intermediate results to half precision than the reference
    assert_greedy(results, (encoder, step, {"next_state": "state"}), inputs, END, rtol=0.05)


class RowCounter(layers.Layer):
    """Identity layer that records the number of rows of each call."""

    def __init__(self, row_counts, **kwargs):
        super().__init__(**kwargs)
        self.row_counts = row_counts

    def call(self, tensor):
        if backends.BACKEND == "torch":
            self.row_counts.append(len(tensor))
            return tensor
        import tensorflow as tf

        def record_rows(array):
            self.row_counts.append(len(array))
            return array

        return tf.ensure_shape(tf.numpy_function(record_rows, [tensor], tensor.dtype), tensor.shape)


@pytest.mark.slow
@backends.run_only_on("tensorflow", "torch", reason="on JAX shapes are static: no row can be removed")
@pytest.mark.parametrize(
    ("rows", "batch_size", "mode", "lengths", "row_counts"),
    [
        # Ended rows are removed as soon as more than half of the rows have ended. Five of the nine rows end within two
        # steps and are removed. Two of the other four rows never end, so more than half never end again.
        ([*range(9)], None, backends.MODES[0], [3, 1, 7, 3, 2, 7, 2, 2, 1], [9, 9, 4, 4, 4, 4, 4]),
        ([*range(9)], None, "graph", [3, 1, 7, 3, 2, 7, 2, 2, 1], [9, 9, 4, 4, 4, 4, 4]),
        ([0, 1, 3, 6], 4, backends.MODES[0], [3, 1, 3, 2], [4, 4, 4]),
    ],
)
def test_step_is_not_called_for_rows_that_have_ended(rows, batch_size, mode, lengths, row_counts):
    """If the step has a fixed batch size, all rows are kept until the last row has ended."""
    if mode not in backends.MODES:
        pytest.skip("torch is eager")
    encoder, step, next_inputs = build_recurrent_models(15)
    counter = RowCounter([])
    step = keras.Model(step.input, {**step.output, "logits": counter(step.output["logits"])})
    model = greedy(encoder, fix_batch_size(step, batch_size) if batch_size else step, next_inputs, **OPTIONS)
    counter.row_counts.clear()
    assert decode(model, {"ids": draw_ids(9)["ids"][rows]}, mode)["lengths"].tolist() == lengths
    assert counter.row_counts[-len(row_counts) :] == row_counts


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "mode"), combine_with_modes(([*range(9)],), ([1],)))
def test_step_of_fixed_batch_size_decodes_one_batch(mode, rows):
    encoder, step, next_inputs = models = build_recurrent_models()
    model = greedy(encoder, fix_batch_size(step, len(rows)), next_inputs, **OPTIONS, outputs=["weights"])
    assert model.input["ids"].shape == (len(rows), None)
    assert model.output["tokens"].shape == (len(rows), LENGTH)
    inputs = {"ids": draw_ids(9)["ids"][rows]}
    assert_greedy(decode(model, inputs, mode), models, inputs, END, outputs=["weights"])


@pytest.mark.slow
def test_loaded_encoder_and_step_share_their_layer(tmp_path):
    models, inputs = build_attention_models(), draw_ids(9)
    model = greedy(*models, **OPTIONS)
    expected = decode(model, inputs)
    loaded = save_and_load(model, tmp_path)
    actual = decode(loaded, inputs)
    assert all(np.array_equal(actual[name], array) for name, array in expected.items())
    assert len(loaded.weights) == len(model.weights)
    decoding_layer = loaded.layers[-1]
    assert decoding_layer.encoder.get_layer("attend") is decoding_layer.step.get_layer("attend")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    assert np.array_equal(decode(clone, inputs)["tokens"], expected["tokens"])


@pytest.mark.slow
@backends.run_only_on("tensorflow", reason="other backends run an eager call operation by operation")
def test_eager_call_reads_variables_of_a_stateless_scope():
    """Inside a scope, its values replace the weights of the model. After the scope they have no effect."""
    model, inputs = greedy(*build_recurrent_models(), **OPTIONS, outputs=["weights"]), draw_ids(4)
    outputs = to_arrays(model(inputs))
    for seed in (5, 6):
        rng = np.random.default_rng(seed)
        mapping = [(v, ops.convert_to_tensor(rng.normal(size=v.shape).astype("float32"))) for v in model.weights]
        with keras.StatelessScope(state_mapping=mapping):
            actual = to_arrays(model(inputs))
        weights = model.get_weights()
        model.set_weights([value for _, value in mapping])
        expected = to_arrays(model(inputs))
        model.set_weights(weights)
        assert all(np.array_equal(actual[name], expected[name]) for name in actual)
        assert not np.allclose(actual["scores"], outputs["scores"])
    assert all(np.array_equal(array, outputs[name]) for name, array in to_arrays(model(inputs)).items())


@pytest.mark.slow
@backends.run_only_on("tensorflow", reason="other backends cache no program")
def test_cached_program_of_an_eager_call_does_not_reference_its_model():
    model = greedy(*build_recurrent_models(), **OPTIONS)
    model(draw_ids(2))
    layer = weakref.ref(next(layer for layer in model.layers if isinstance(layer, GreedyDecoding)))
    del model
    gc.collect()
    assert layer() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "best", "penalty", "end", "mode"),
    combine_with_modes((3, 3, 0.0, END), (3, 2, -0.7, END), (4, 4, 0.6, None)),
)
def test_beam_search_equals_a_loop_over_single_rows(mode, width, best, penalty, end):
    models, inputs = build_recurrent_models(), draw_ids(5)
    options = {"width": width, "best": best, "length_penalty": penalty, "outputs": ["weights"]}
    model = beam(*models, **{**OPTIONS, "end": end}, **options)
    search = partial(search_beam, width=width, end=end, penalty=penalty)
    assert_equals_search(decode(model, inputs, mode), models, inputs, search, end, outputs=["weights"])


@pytest.mark.slow
@pytest.mark.parametrize(("penalty", "end", "seed"), [(0.0, 1, 3), (1.5, None, 7), (-1.0, 1, 7)])
def test_wide_beam_finds_the_best_of_all_sequences(penalty, end, seed):
    models, inputs, limit = build_recurrent_models(seed, tokens=3), draw_ids(4), 3
    model = beam(*models, start=START, end=end, max_length=limit, width=27, length_penalty=penalty)
    search = partial(enumerate_sequences, tokens=3, end=end, limit=limit, penalty=penalty)
    assert_equals_search(decode(model, inputs), models, inputs, search, end, limit=limit)


@pytest.mark.slow
@backends.every_compilation_mode
def test_growing_cache_and_position_follow_their_beams(mode):
    models, inputs = build_cache_models(), draw_first_inputs(5)
    model = beam(*models, start=START, end=GROWING_CACHE_END, max_length=5, width=3, length_penalty=1.0)
    if mode in STATIC_MODES:
        with pytest.raises(ValueError, match="The state `cache` must keep its shape"):
            decode(model, inputs, mode)
        return
    search = partial(search_beam, width=3, end=GROWING_CACHE_END, limit=5, penalty=1.0)
    assert_equals_search(decode(model, inputs, mode), models, inputs, search, GROWING_CACHE_END, limit=5)


@pytest.mark.slow
@backends.every_compilation_mode
def test_empty_batch_returns_empty_outputs(mode):
    model = beam(*build_recurrent_models(), **OPTIONS, width=3, best=2, outputs=["weights"])
    shapes = {"tokens": (0, 2, LENGTH), "lengths": (0, 2), "scores": (0, 2), "weights": (0, 2, LENGTH, 5)}
    assert {name: array.shape for name, array in decode(model, draw_ids(0), mode).items()} == shapes


NEVER = -np.inf
# Each case has logits of the next token, options of `beam`, and expected outputs. The logits have one row for each
# previous token, or a single row for all tokens. The outputs are the same for both rows of the batch.
RANKING_CASES = {
    "first of equal sequences": ([0.0] * 3, {"max_length": 2, "width": 3}, {"tokens": [[0, 0], [0, 1], [0, 2]]}),
    "first of equal ended sequences": (  # [1] and [2, 1] are equally likely
        [[NEVER, 0, 0], [0, NEVER, NEVER], [NEVER, 0, NEVER]],
        {"end": 1, "max_length": 3, "width": 2},
        {"lengths": [1, 2]},
    ),
    "full width after a sequence ends": (  # [1] has probability 0.5, [3, 1] has 0.2 * 1, and [2, 0] has 0.3 * 0.4
        np.log([[1e-30, 0.5, 0.3, 0.2], [1, *[1e-30] * 3], [0.4, 1e-30, 0.3, 0.3], [1e-30, 1, 1e-30, 1e-30]]),
        {"end": 1, "max_length": 2, "width": 2},
        {"tokens": [[1, 1], [3, 1]]},
    ),
    "a single token": ([0.5], {"end": 0, "max_length": 3, "width": 2}, {"lengths": [1, 0], "scores": [0.0, NEVER]}),
    "width above the number of sequences": (
        [0.0, 1.0],
        {"max_length": 1, "width": 3},
        {"tokens": [[1], [0], [0]], "lengths": [1, 1, 0]},
    ),
    "token without a successor": (  # token 1 is the likeliest after 0, but no token can follow 1
        [[0, 3, 2, 1], [NEVER] * 4, [0, 0, 1, 2], [1, 0, 0, 0]],
        {"end": 3, "max_length": 3, "width": 2, "best": 1},
        {"tokens": [[2, 3, 3]], "lengths": [2]},
    ),
    "impossible tokens": (
        [0.0, NEVER, 1.0],
        {"end": 1, "max_length": 2, "width": 8},
        {"tokens": [[2, 2], [2, 0], [0, 2], [0, 0], *[[1, 1]] * 4], "lengths": [2] * 4 + [0] * 4},
    ),
}


@pytest.mark.parametrize(("case", "mode"), combine_with_modes(*((case,) for case in RANKING_CASES)))
def test_sequences_and_ties_are_ranked(case, mode):
    logits, options, expected = RANKING_CASES[case]
    table = np.broadcast_to(logits, (len(logits), len(logits))).astype("float32")
    models, inputs = build_constant_models(table[0])
    models[1].layers[-1].set_weights([table])
    results = decode(beam(*models, start=0, **options), inputs, mode)
    for name, expected_row in expected.items():
        assert results[name].tolist() == [expected_row] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("end", "mode"), combine_with_modes((None,), (3,)))
def test_row_with_nan_logits_has_nan_score_and_length_zero(mode, end):
    models, _ = build_constant_models([0.0] * 4)
    table = np.array([[0, 3, 2, 1], [0, np.nan, 0, 0], [0, 0, 1, 2], [-9, -9, 5, -9]], "float32")
    models[1].layers[-1].set_weights([table])
    model = beam(models[0], models[1], {}, start="unused_ids", end=end, max_length=3, width=1)
    results = decode(model, {"ids": np.array([0, 2], "int32")}, mode)
    assert np.isnan(results["scores"][0]).all()
    assert not results["lengths"][0].any()
    assert np.isfinite(results["scores"][1]).all()
    assert results["tokens"][1, 0, 0] == 3


@pytest.mark.slow
def test_fixed_batch_size_of_step_counts_all_beams():
    encoder, step, next_inputs = models = build_recurrent_models()
    model, inputs = beam(encoder, fix_batch_size(step, 12), next_inputs, **OPTIONS, width=3), draw_ids(4)
    assert_equals_search(decode(model, inputs), models, inputs, partial(search_beam, width=3, end=END), END)


@pytest.mark.slow
def test_search_continues_until_no_sequence_can_exceed_the_best():
    """With a length penalty above 0, longer sequences can exceed an ended one: the longest has the best score here."""
    models, inputs = build_constant_models([np.log(0.5), np.log(0.5)])
    results = decode(beam(*models, start=0, end=0, max_length=6, width=2, best=1), inputs)
    assert results["lengths"].tolist() == [[1]] * 2
    penalized_decoded = decode(beam(*models, start=0, end=0, max_length=6, width=2, best=1, length_penalty=3.0), inputs)
    assert penalized_decoded["lengths"].tolist() == [[6]] * 2
    np.testing.assert_allclose(penalized_decoded["scores"], 6 * np.log(0.5) / (11 / 6) ** 3, rtol=1e-5)


def test_loaded_beam_search_decodes_equally_and_uses_changed_weights(tmp_path):
    model, inputs = beam(*build_recurrent_models(), **OPTIONS, width=3, best=2, length_penalty=1.2), draw_ids(4)
    expected = decode(model, inputs)
    loaded = save_and_load(model, tmp_path)
    actual = decode(loaded, inputs)
    assert all(np.array_equal(actual[name], array) for name, array in expected.items())
    draw_weights(15, *(loaded.layers[-1].encoder, loaded.layers[-1].step))
    assert not np.array_equal(decode(loaded, inputs)["tokens"], expected["tokens"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "`width` must be at least 1"),
        ({"width": 2, "best": 3}, "`best` must be at most `width`, .* best=3, width=2"),
        ({"length_penalty": np.inf}, "`length_penalty` must be a finite number"),
        ({"length_penalty": 1e4}, "`length_penalty` must have finite, nonzero factors"),
        ({"length_penalty": "1"}, "`length_penalty` must be a finite number"),
    ],
)
def test_beam_rejects_invalid_options(options, message):
    with pytest.raises(ValueError, match=message):
        beam(*build_recurrent_models(), **OPTIONS, **options)
