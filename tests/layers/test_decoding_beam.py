"""Beam search as a model, against plain loops and against all sequences there are."""

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
    Row,
    beam_by_loop,
    decoded,
    draw_weights,
    every_sequence,
    firsts_of,
    fixed,
    growing,
    ids_of,
    of_one_batch,
    recurrent,
    with_modes,
)

from keras_attn.decoding import beam


def check(found, models, inputs, expected, end, *, outputs=(), limit=LENGTH):
    """Compares each row with the (score, tokens) that are expected of it."""
    for number in range(len(found["tokens"])):
        row = Row(*models, inputs, number)
        ranks = found["tokens"].shape[1]
        best = expected(row)[:ranks]
        for rank, (score, tokens) in enumerate(best):
            assert found["tokens"][number, rank].tolist() == [*tokens, *[end or 0] * (limit - len(tokens))]
            assert found["lengths"][number, rank] == len(tokens)
            assert found["scores"][number, rank] == pytest.approx(score, rel=1e-4, abs=1e-5)
            for name in outputs:
                kept = found[name][number, rank]
                there = [row.after(tokens[:length])[1][name][0] for length in range(len(tokens))]
                np.testing.assert_allclose(kept[: len(tokens)], there, rtol=1e-4, atol=1e-5)
                assert not kept[len(tokens) :].any()
        assert (found["lengths"][number, len(best) :] == 0).all()
        assert (found["scores"][number, len(best) :] == -np.inf).all()
        assert (found["tokens"][number, len(best) :] == (end or 0)).all()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("width", "best", "penalty", "end", "mode"),
    with_modes((3, 3, 0.0, END), (3, 2, -0.7, END), (4, 4, 0.6, None)),
)
def test_beam_equals_a_loop_over_each_row_alone(mode, width, best, penalty, end):
    models, inputs = recurrent(), ids_of(5)
    options = {"width": width, "best": best, "length_penalty": penalty, "outputs": ["weights"]}
    model = beam(*models, **{**OPTIONS, "end": end}, **options)
    found = decoded(model, inputs, mode)
    check(found, models, inputs, lambda row: beam_by_loop(row, width, end, penalty=penalty), end, outputs=["weights"])
    assert [str(found[name].dtype) for name in ("tokens", "lengths", "scores")] == ["int32", "int32", "float32"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("penalty", "end", "seed"),
    [(0.0, 1, 3), (1.5, None, 7), (-1.0, 1, 7)],
)
def test_wide_beam_finds_the_best_of_all_sequences(penalty, end, seed):
    models, inputs, limit = recurrent(seed, tokens=3), ids_of(4), 3
    model = beam(*models, start=START, end=end, max_length=limit, width=27, length_penalty=penalty)

    def expected(row):
        return every_sequence(row, 3, end, limit, penalty)

    check(decoded(model, inputs), models, inputs, expected, end, limit=limit)


@pytest.mark.slow
@backends.every_mode
def test_growing_cache_and_position_follow_their_sequences(mode):
    models, inputs = growing(), firsts_of(5)
    model = beam(*models, start=START, end=END_GROWING, max_length=5, width=3, length_penalty=1.0)
    if mode in STATIC:
        with pytest.raises(ValueError, match="The state `cache` must keep its shape"):
            decoded(model, inputs, mode)
        return

    def expected(row):
        return beam_by_loop(row, 3, END_GROWING, 5, 1.0)

    check(decoded(model, inputs, mode), models, inputs, expected, END_GROWING, limit=5)


@pytest.mark.slow
@backends.every_mode
def test_batch_without_rows_gives_empty_outputs(mode):
    found = decoded(beam(*recurrent(), **OPTIONS, width=3, best=2, outputs=["weights"]), ids_of(0), mode)
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


@pytest.mark.parametrize(("case", "mode"), with_modes(*((case,) for case in FIXED)))
def test_sequences_and_ties_are_ranked(case, mode):
    logits, options, expected = FIXED[case]
    table = np.broadcast_to(logits, (len(logits), len(logits))).astype("float32")
    models, inputs = fixed(table[0])
    models[1].layers[-1].set_weights([table])
    found = decoded(beam(*models, start=0, **options), inputs, mode)
    for name, each in expected.items():
        assert found[name].tolist() == [each] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("end", "mode"), with_modes((None,), (3,)))
def test_row_that_meets_nan_has_nan_score_and_length_zero(mode, end):
    models, _ = fixed([0.0] * 4)
    table = np.array([[0, 3, 2, 1], [0, np.nan, 0, 0], [0, 0, 1, 2], [-9, -9, 5, -9]], "float32")
    models[1].layers[-1].set_weights([table])
    model = beam(models[0], models[1], {}, start="unread", end=end, max_length=3, width=1)
    found = decoded(model, {"ids": np.array([0, 2], "int32")}, mode)
    assert np.isnan(found["scores"][0]).all()
    assert not found["lengths"][0].any()
    assert np.isfinite(found["scores"][1]).all()
    assert found["tokens"][1, 0, 0] == 3


@pytest.mark.slow
def test_step_of_one_batch_takes_rows_of_all_sequences():
    encoder, step, state = models = recurrent()
    model, inputs = beam(encoder, of_one_batch(step, 12), state, **OPTIONS, width=3), ids_of(4)
    check(decoded(model, inputs), models, inputs, lambda row: beam_by_loop(row, 3, END), END)


@pytest.mark.slow
def test_search_continues_until_no_sequence_can_pass_the_best():
    """A sequence that has ended is kept until no other can pass it: here the longest wins by its length alone."""
    models, inputs = fixed([np.log(0.5), np.log(0.5)])
    short = decoded(beam(*models, start=0, end=0, max_length=6, width=2, best=1), inputs)
    assert short["lengths"].tolist() == [[1]] * 2
    long = decoded(beam(*models, start=0, end=0, max_length=6, width=2, best=1, length_penalty=3.0), inputs)
    assert long["lengths"].tolist() == [[6]] * 2
    np.testing.assert_allclose(long["scores"], 6 * np.log(0.5) / (11 / 6) ** 3, rtol=1e-5)


def test_saved_model_decodes_alike_and_reads_its_weights(tmp_path):
    model, inputs = beam(*recurrent(), **OPTIONS, width=3, best=2, length_penalty=1.2), ids_of(4)
    before = decoded(model, inputs)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    after = decoded(loaded, inputs)
    assert all(np.array_equal(after[name], array) for name, array in before.items())
    draw_weights(15, *(loaded.layers[-1].encoder, loaded.layers[-1].step))
    assert not np.array_equal(decoded(loaded, inputs)["tokens"], before["tokens"])


def test_symbolic_outputs_have_shapes_and_dtypes():
    model = beam(*recurrent(), **OPTIONS, width=5, best=2, outputs=["next_state"])
    assert {name: (tuple(x.shape), x.dtype) for name, x in model.output.items()} == {
        "tokens": ((None, 2, LENGTH), "int32"),
        "lengths": ((None, 2), "int32"),
        "scores": ((None, 2), "float32"),
        "next_state": ((None, 2, LENGTH, 4), "float32"),
    }


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"width": 0}, "`width` must be at least 1"),
        ({"width": 2, "best": 3}, "`best` must be at most `width`: .* best=3, width=2"),
        ({"length_penalty": np.inf}, "`length_penalty` must be a finite number"),
        ({"length_penalty": 1e4}, "`length_penalty` must leave a factor in float32"),
        ({"length_penalty": "1"}, "`length_penalty` must be a finite number"),
    ],
)
def test_beam_refuses_bad_options(options, message):
    with pytest.raises(ValueError, match=message):
        beam(*recurrent(), **OPTIONS, **options)
