"""Greedy decoding and beam search as models, against plain loops over one row at a time."""

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


def check(found, models, inputs, search, end, *, limit=LENGTH, outputs=(), start=START, rtol=1e-4):
    """Compare each row with the (score, tokens) that a search gives for that row, best first; return the lengths."""
    assert [str(found[name].dtype) for name in ("tokens", "lengths", "scores")] == ["int32", "int32", "float32"]
    if found["tokens"].ndim == 2:  # of greedy decoding, which has no axis of ranks
        found = {name: array[:, None] for name, array in found.items()}
    for number, ranks in enumerate(found["tokens"]):
        row = ReferenceDecoder(*models, inputs, number, start if isinstance(start, int) else int(start[number]))
        best = search(row)[: len(ranks)]
        for rank, (score, tokens) in enumerate(best):
            assert ranks[rank].tolist() == [*tokens, *[end or 0] * (limit - len(tokens))]
            assert found["lengths"][number, rank] == len(tokens)
            assert found["scores"][number, rank] == pytest.approx(score, rel=rtol, abs=1e-5)
            for name in outputs:
                kept = found[name][number, rank]
                expected = [row.predict_after(tokens[:length])[1][name][0] for length in range(len(tokens))]
                np.testing.assert_allclose(kept[: len(tokens)], expected, rtol=rtol, atol=1e-5)
                assert not kept[len(tokens) :].any()
        assert (found["lengths"][number, len(best) :] == 0).all()
        assert (found["scores"][number, len(best) :] == -np.inf).all()
        assert (ranks[len(best) :] == (end or 0)).all()
    return found["lengths"][:, 0].tolist()


def check_greedy(found, models, inputs, end, limit=LENGTH, **options):
    return check(found, models, inputs, lambda row: decode_greedily(row, end, limit), end, limit=limit, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rows", "end", "limit", "mode"),
    combine_with_modes((range(9), END, LENGTH), ([7], END, LENGTH), (range(9), END, 1), (range(3), None, 5)),
)
def test_greedy_equals_a_loop_over_each_row_alone(mode, rows, end, limit):
    models, inputs = build_recurrent_models(), {"ids": draw_ids(9)["ids"][[*rows]]}
    model = greedy(*models, start=START, end=end, max_length=limit, outputs=["weights"])
    lengths = check_greedy(decode(model, inputs, mode), models, inputs, end, limit=limit, outputs=["weights"])
    if end is None:
        assert lengths == [limit] * len(inputs["ids"])
    elif len(lengths) == 9 and limit == LENGTH:
        assert set(lengths) == {1, 3, 4, LENGTH}


@pytest.mark.slow
@backends.every_mode
def test_growing_cache_needs_dynamic_shapes(mode):
    encoder, step, state = models = build_cache_models()
    inputs, options = draw_first_inputs(9), {"start": START, "end": END_GROWING, "max_length": LENGTH}
    if mode in STATIC:
        with pytest.raises(ValueError, match=r"The state `cache` must keep its shape .* fixed capacity"):
            decode(greedy(*models, **options), inputs, mode)
        return
    for each in (step, fix_batch_size(step, 9)):
        found = decode(greedy(encoder, each, state, **options), inputs, mode)
        assert set(check_greedy(found, models, inputs, END_GROWING)) == {2, 3, 4, LENGTH}


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
    models, inputs = (encoder, step, {"next_cache": "cache"}), draw_first_inputs(4)
    check_greedy(decode(greedy(*models, **OPTIONS), inputs, mode), models, inputs, END)


@pytest.mark.slow
def test_start_names_an_input_and_missing_states_begin_as_zeros():
    encoder, step, state = build_recurrent_models()
    first = keras.Input((), dtype="int32", name="first")
    encoder = keras.Model({**encoder.input, "first": first}, {"values": encoder.output["values"]})
    inputs = {**draw_ids(5), "first": np.arange(5, dtype="int32")}
    found = decode(greedy(encoder, step, state, **{**OPTIONS, "start": "first"}), inputs)
    models = (encoder, step, state)
    check_greedy(found, models, inputs, END, start=inputs["first"])


@pytest.mark.parametrize(("logits", "mode"), combine_with_modes(([1.0, 3.0, 3.0],), ([-0.0, 0.0, 0.0],)))
def test_first_of_equal_logits_is_taken(logits, mode):
    models, inputs = build_constant_models(logits)
    found = decode(greedy(*models, start=0, max_length=2), inputs, mode)
    assert (found["tokens"] == np.argmax(logits)).all()


@pytest.mark.slow
def test_dropout_is_off_in_training_too():
    models = build_recurrent_models(dropout=0.5)
    model, inputs = greedy(*models, **OPTIONS), draw_ids(9)
    check_greedy(to_arrays(model(inputs, training=True)), models, inputs, END)


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
    check_greedy(decode(model, inputs), (encoder, step, {}), inputs, END)


def test_symbolic_outputs_have_shapes_and_dtypes():
    expected = {
        "tokens": ((None, LENGTH), "int32"),
        "lengths": ((None,), "int32"),
        "scores": ((None,), "float32"),
        "weights": ((None, LENGTH, None), "float32"),
    }
    integers = {name: np.int64(value) for name, value in OPTIONS.items()}
    model = greedy(*build_recurrent_models(), **integers, outputs=["weights"], name="mine")
    assert {name: (x.shape, x.dtype) for name, x in model.output.items()} == expected
    assert model.name == "mine"
    known = model(keras.Input(batch_shape=(3, 8), dtype="int32", name="ids"))
    assert [tuple(known[name].shape) for name in ("tokens", "weights")] == [(3, LENGTH), (3, LENGTH, 8)]

    model = beam(*build_recurrent_models(), **OPTIONS, width=5, best=2, outputs=["weights"])
    ranked = {name: ((None, 2, *shape[1:]), dtype) for name, (shape, dtype) in expected.items()}
    assert {name: (x.shape, x.dtype) for name, x in model.output.items()} == ranked
    assert model.name == model.layers[-1].name


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
    model, inputs = greedy(encoder, step, {"next_state": "state"}, **OPTIONS, outputs=["next_state"]), draw_ids(4)
    found = decode(model, inputs)
    assert str(found["next_state"].dtype) == half
    check_greedy(found, (encoder, step, {"next_state": "state"}), inputs, END, rtol=0.05)  # XLA rounds less often


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
@backends.run_only_on("tensorflow", "torch", reason="on JAX shapes are static, so that no row can leave")
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
    encoder, step, state = build_recurrent_models(15)
    counting = Counting([])
    step = keras.Model(step.input, {**step.output, "logits": counting(step.output["logits"])})
    model = greedy(encoder, fix_batch_size(step, batch) if batch else step, state, **OPTIONS)
    counting.seen.clear()
    assert decode(model, {"ids": draw_ids(9)["ids"][rows]}, mode)["lengths"].tolist() == expected
    assert counting.seen[-len(seen) :] == seen


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "mode"), combine_with_modes(([*range(9)],), ([1],)))
def test_step_of_one_batch_decodes_that_batch(mode, rows):
    encoder, step, state = models = build_recurrent_models()
    model = greedy(encoder, fix_batch_size(step, len(rows)), state, **OPTIONS, outputs=["weights"])
    assert model.input["ids"].shape == (len(rows), None)
    assert model.output["tokens"].shape == (len(rows), LENGTH)
    inputs = {"ids": draw_ids(9)["ids"][rows]}
    check_greedy(decode(model, inputs, mode), models, inputs, END, outputs=["weights"])


@pytest.mark.slow
def test_saved_model_shares_the_layer_of_both_models(tmp_path):
    models, inputs = build_attention_models(), draw_ids(9)
    model = greedy(*models, **OPTIONS)
    before = decode(model, inputs)
    loaded = save_and_load(model, tmp_path)
    after = decode(loaded, inputs)
    assert all(np.array_equal(after[name], array) for name, array in before.items())
    assert len(loaded.weights) == len(model.weights)
    decoding = loaded.layers[-1]
    assert decoding.encoder.get_layer("attend") is decoding.step.get_layer("attend")
    again = keras.models.clone_model(model)
    again.set_weights(model.get_weights())
    assert np.array_equal(decode(again, inputs)["tokens"], before["tokens"])


@pytest.mark.slow
@backends.run_only_on("tensorflow", reason="the others run an eager call operation by operation")
def test_eager_call_reads_variables_of_a_stateless_scope():
    """Weights that a scope puts in the place of others, and none of a scope that has ended."""
    model, inputs = greedy(*build_recurrent_models(), **OPTIONS, outputs=["weights"]), draw_ids(4)
    before = to_arrays(model(inputs))
    for seed in (5, 6):
        rng = np.random.default_rng(seed)
        others = [(v, ops.convert_to_tensor(rng.normal(size=v.shape).astype("float32"))) for v in model.weights]
        with keras.StatelessScope(state_mapping=others):
            within = to_arrays(model(inputs))
        kept = model.get_weights()
        model.set_weights([value for _, value in others])
        expected = to_arrays(model(inputs))
        model.set_weights(kept)
        assert all(np.array_equal(within[name], expected[name]) for name in within)
        assert not np.allclose(within["scores"], before["scores"])
    assert all(np.array_equal(array, before[name]) for name, array in to_arrays(model(inputs)).items())


@pytest.mark.slow
@backends.run_only_on("tensorflow", reason="the others keep no program")
def test_program_of_an_eager_call_does_not_keep_its_model_alive():
    model = greedy(*build_recurrent_models(), **OPTIONS)
    model(draw_ids(2))
    layer = weakref.ref(next(each for each in model.layers if isinstance(each, GreedyDecoding)))
    del model
    gc.collect()
    assert layer() is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "best", "penalty", "end", "mode"),
    combine_with_modes((3, 3, 0.0, END), (3, 2, -0.7, END), (4, 4, 0.6, None)),
)
def test_beam_equals_a_loop_over_each_row_alone(mode, width, best, penalty, end):
    models, inputs = build_recurrent_models(), draw_ids(5)
    options = {"width": width, "best": best, "length_penalty": penalty, "outputs": ["weights"]}
    model = beam(*models, **{**OPTIONS, "end": end}, **options)
    found = decode(model, inputs, mode)
    check(found, models, inputs, lambda row: search_beam(row, width, end, penalty=penalty), end, outputs=["weights"])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("penalty", "end", "seed"),
    [(0.0, 1, 3), (1.5, None, 7), (-1.0, 1, 7)],
)
def test_wide_beam_finds_the_best_of_all_sequences(penalty, end, seed):
    models, inputs, limit = build_recurrent_models(seed, tokens=3), draw_ids(4), 3
    model = beam(*models, start=START, end=end, max_length=limit, width=27, length_penalty=penalty)

    def expected(row):
        return enumerate_sequences(row, 3, end, limit, penalty)

    check(decode(model, inputs), models, inputs, expected, end, limit=limit)


@pytest.mark.slow
@backends.every_mode
def test_growing_cache_and_position_follow_their_beams(mode):
    models, inputs = build_cache_models(), draw_first_inputs(5)
    model = beam(*models, start=START, end=END_GROWING, max_length=5, width=3, length_penalty=1.0)
    if mode in STATIC:
        with pytest.raises(ValueError, match="The state `cache` must keep its shape"):
            decode(model, inputs, mode)
        return

    def expected(row):
        return search_beam(row, 3, END_GROWING, 5, 1.0)

    check(decode(model, inputs, mode), models, inputs, expected, END_GROWING, limit=5)


@pytest.mark.slow
@backends.every_mode
def test_batch_without_rows_gives_empty_outputs(mode):
    found = decode(beam(*build_recurrent_models(), **OPTIONS, width=3, best=2, outputs=["weights"]), draw_ids(0), mode)
    shapes = {"tokens": (0, 2, LENGTH), "lengths": (0, 2), "scores": (0, 2), "weights": (0, 2, LENGTH, 5)}
    assert {name: array.shape for name, array in found.items()} == shapes


NEVER = -np.inf
FIXED = {  # logits after each token, or after all; options; what is found for each row
    "of equal sequences the first": ([0.0] * 3, {"max_length": 2, "width": 3}, {"tokens": [[0, 0], [0, 1], [0, 2]]}),
    "of equal sequences that have ended the first found": (  # [1] and [2, 1] are as likely
        [[NEVER, 0, 0], [0, NEVER, NEVER], [NEVER, 0, NEVER]],
        {"end": 1, "max_length": 3, "width": 2},
        {"lengths": [1, 2]},
    ),
    "as wide when a sequence ends": (  # after 3 the end is certain, so that [3, 1] is the second best
        np.log([[1e-30, 0.5, 0.3, 0.2], [1, *[1e-30] * 3], [0.4, 1e-30, 0.3, 0.3], [1e-30, 1, 1e-30, 1e-30]]),
        {"end": 1, "max_length": 2, "width": 2},
        {"tokens": [[1, 1], [3, 1]]},
    ),
    "one token alone": ([0.5], {"end": 0, "max_length": 3, "width": 2}, {"lengths": [1, 0], "scores": [0.0, NEVER]}),
    "wider than there are sequences": (
        [0.0, 1.0],
        {"max_length": 1, "width": 3},
        {"tokens": [[1], [0], [0]], "lengths": [1, 1, 0]},
    ),
    "ended by a token after which none can follow": (  # 1, though the likeliest after 0
        [[0, 3, 2, 1], [NEVER] * 4, [0, 0, 1, 2], [1, 0, 0, 0]],
        {"end": 3, "max_length": 3, "width": 2, "best": 1},
        {"tokens": [[2, 3, 3]], "lengths": [2]},
    ),
    "tokens that cannot be": (
        [0.0, NEVER, 1.0],
        {"end": 1, "max_length": 2, "width": 8},
        {"tokens": [[2, 2], [2, 0], [0, 2], [0, 0], *[[1, 1]] * 4], "lengths": [2] * 4 + [0] * 4},
    ),
}


@pytest.mark.parametrize(("case", "mode"), combine_with_modes(*((case,) for case in FIXED)))
def test_sequences_and_ties_are_ranked(case, mode):
    logits, options, expected = FIXED[case]
    table = np.broadcast_to(logits, (len(logits), len(logits))).astype("float32")
    models, inputs = build_constant_models(table[0])
    models[1].layers[-1].set_weights([table])
    found = decode(beam(*models, start=0, **options), inputs, mode)
    for name, each in expected.items():
        assert found[name].tolist() == [each] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("end", "mode"), combine_with_modes((None,), (3,)))
def test_row_that_meets_nan_has_nan_score_and_length_zero(mode, end):
    models, _ = build_constant_models([0.0] * 4)
    table = np.array([[0, 3, 2, 1], [0, np.nan, 0, 0], [0, 0, 1, 2], [-9, -9, 5, -9]], "float32")
    models[1].layers[-1].set_weights([table])
    model = beam(models[0], models[1], {}, start="unread", end=end, max_length=3, width=1)
    found = decode(model, {"ids": np.array([0, 2], "int32")}, mode)
    assert np.isnan(found["scores"][0]).all()
    assert not found["lengths"][0].any()
    assert np.isfinite(found["scores"][1]).all()
    assert found["tokens"][1, 0, 0] == 3


@pytest.mark.slow
def test_step_of_one_batch_takes_rows_of_all_sequences():
    encoder, step, state = models = build_recurrent_models()
    model, inputs = beam(encoder, fix_batch_size(step, 12), state, **OPTIONS, width=3), draw_ids(4)
    check(decode(model, inputs), models, inputs, lambda row: search_beam(row, 3, END), END)


@pytest.mark.slow
def test_search_continues_until_no_sequence_can_pass_the_best():
    """A sequence that has ended is kept until no other can pass it: here the longest wins by its length alone."""
    models, inputs = build_constant_models([np.log(0.5), np.log(0.5)])
    short = decode(beam(*models, start=0, end=0, max_length=6, width=2, best=1), inputs)
    assert short["lengths"].tolist() == [[1]] * 2
    long = decode(beam(*models, start=0, end=0, max_length=6, width=2, best=1, length_penalty=3.0), inputs)
    assert long["lengths"].tolist() == [[6]] * 2
    np.testing.assert_allclose(long["scores"], 6 * np.log(0.5) / (11 / 6) ** 3, rtol=1e-5)


def test_saved_beam_search_decodes_alike_and_reads_its_weights(tmp_path):
    model, inputs = beam(*build_recurrent_models(), **OPTIONS, width=3, best=2, length_penalty=1.2), draw_ids(4)
    before = decode(model, inputs)
    loaded = save_and_load(model, tmp_path)
    after = decode(loaded, inputs)
    assert all(np.array_equal(after[name], array) for name, array in before.items())
    draw_weights(15, *(loaded.layers[-1].encoder, loaded.layers[-1].step))
    assert not np.array_equal(decode(loaded, inputs)["tokens"], before["tokens"])


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
def test_beam_refuses_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        beam(*build_recurrent_models(), **OPTIONS, **options)
