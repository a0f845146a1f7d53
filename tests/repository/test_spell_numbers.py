"""The example that spells numbers: its data say what they should, its steps what one pass does, and it runs."""

import importlib
import sys
from collections import Counter
from pathlib import Path

import keras
import numpy as np
import pytest

import keras_attn_export

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
number_data, number_model = map(importlib.import_module, ("number_data", "number_model"))
number_training, spell_numbers = map(importlib.import_module, ("number_training", "spell_numbers"))

SEED = 7
GERMAN = number_data.FIRST_LANGUAGE + number_data.LANGUAGES.index("de")


@pytest.fixture(scope="module")
def rows():
    return number_data.make_rows([0, 47, 101, 7742])


@pytest.mark.out_of_turn
@pytest.mark.parametrize("language", number_data.LANGUAGES)
def test_no_two_of_all_numbers_are_alike_and_each_can_be_encoded(language):
    words = [number_data.spell(number, language) for number in number_data.NUMBERS]
    assert len(set(words)) == len(words)
    assert {character for text in words for character in text} <= set(number_data.make_vocabulary())
    assert max(map(len, words)) + 1 <= spell_numbers.FULL.longest_answer


def test_held_out_numbers_are_in_no_row_that_is_trained_on():
    trained, held_out = number_data.split_numbers(SEED)
    assert (len(trained), len(held_out)) == (9000, 1000)
    assert sorted(trained + held_out) == list(number_data.NUMBERS)
    first, second = (number_data.make_rows(numbers[:30]) for numbers in (trained, held_out))
    assert not {(row.language, row.question) for row in first} & {(row.language, row.question) for row in second}
    assert number_data.split_numbers(SEED) == (trained, held_out) != number_data.split_numbers(SEED + 1)


def test_each_number_is_asked_for_in_each_language_and_both_directions(rows):
    counts = Counter((row.language, row.direction) for row in rows)
    assert set(counts) == {(a, b) for a in number_data.LANGUAGES for b in number_data.DIRECTIONS}
    assert set(counts.values()) == {4}
    for row in rows:
        digits, words = (row.question, row.answer)[:: 1 if row.direction == number_data.DIRECTIONS[0] else -1]
        assert number_data.spell(int(digits), row.language) == words


def test_answers_are_decoded_as_they_were_encoded(rows):
    answers = [[*number_data.tokens_of(row.answer), number_data.END] for row in rows]
    tokens = number_data._padded(answers)
    assert number_data.decode_answers(tokens, np.array([len(each) for each in answers])) == [r.answer for r in rows]
    assert number_data.decode_answers(np.array([[GERMAN, *number_data.tokens_of("elf")]]), np.array([3])) == ["?el"]


def log_probabilities(model, tokens, wanted, counted):
    """Those of the right tokens, in float64; 0 where none is counted."""
    logits = np.asarray(model.predict_on_batch(tokens), "float64")
    logs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    return np.take_along_axis(logs, wanted[..., None], -1)[..., 0] * counted


@pytest.mark.out_of_turn
def test_training_learns_the_answers_and_not_the_prompts(speller):
    rows = number_data.make_rows(range(20, 30))
    model = number_model.training_model(speller)
    questions, wanted, counted = number_data.encode_answers(rows)
    before = log_probabilities(model, questions, wanted, counted).sum()
    number_training.train(model, rows, passes=4, seed=SEED)
    assert log_probabilities(model, questions, wanted, counted).sum() > 0.8 * before
    likeliest = np.asarray(model.predict_on_batch(questions))[:, 0].argmax(-1)
    assert set(likeliest) != set(questions[:, 1])


@pytest.fixture(scope="module")
def speller():
    keras.utils.set_random_seed(SEED)
    return number_model.Speller(width=16, depth=2, longest_answer=5)


@pytest.fixture(scope="module")
def answered(speller, rows):
    """The answers to prompts with garbage as padding, behind each and behind all: it must make no difference."""
    prompts = number_data.encode_prompts(rows)
    padding = np.arange(prompts["prompt"].shape[1]) >= prompts["valid_lens"][:, None]
    prompt = np.pad(np.where(padding, 9, prompts["prompt"]), [(0, 0), (0, 3)], constant_values=9)
    return number_model.answering_model(speller).predict_on_batch(prompts | {"prompt": prompt.astype("int32")})


def test_steps_with_a_cache_write_what_one_pass_without_says_and_a_wrong_token_is_seen(speller, rows, answered):
    model = number_model.training_model(speller)
    assert (answered["lengths"] > 1).any()
    assert spell_numbers.as_in_one_pass(model, rows, answered).all()
    tokens = answered["tokens"].copy()
    tokens[3, 0] = tokens[3, 0] % 100 + 1
    same = spell_numbers.as_in_one_pass(model, rows, answered | {"tokens": tokens})
    assert not same[3].all()
    assert same[[0, 1, 2, 4]].all()


@pytest.mark.out_of_turn
def test_every_answer_of_the_one_file_is_that_of_keras_and_of_one_pass(tmp_path):
    results = spell_numbers.main(["--quick", "--out", str(tmp_path)])
    assert results["answers"] == 2 * len(number_data.LANGUAGES) * spell_numbers.QUICK.held_out
    for name in ("Keras", "one pass of Keras without a cache"):
        assert results[name] == results["answers"]
    assert not keras_attn_export.load_bundle(tmp_path / "answering").report.warnings


def test_exact_answers_are_counted_by_direction_and_language(rows):
    answers = ["" if row.language == "ja" and row.question == "47" else row.answer for row in rows]
    shares = spell_numbers.shares_of(rows, answers)
    assert shares["digits to words"].pop("ja") == 0.75
    assert {share for each in shares.values() for share in each.values()} == {1.0}
