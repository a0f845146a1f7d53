"""The example that spells numbers: its data say what they should, its steps what one pass does, and it runs."""

import importlib
import sys
import unicodedata
from collections import Counter
from pathlib import Path

import keras
import numpy as np
import pytest
from matplotlib.image import imread
from tolerances import assert_close

import keras_attn_export

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
number_data = importlib.import_module("number_data")
number_model = importlib.import_module("number_model")
number_report = importlib.import_module("number_report")
number_training = importlib.import_module("number_training")
spell_numbers = importlib.import_module("spell_numbers")

SEED = 7
GERMAN = number_data.FIRST_LANGUAGE + number_data.LANGUAGES.index("de")


@pytest.fixture(scope="module")
def rows():
    return number_data.make_rows([0, 47, 101, 7742])


# The words.


def test_there_are_at_least_ten_languages_in_several_scripts():
    assert len(set(number_data.LANGUAGES)) >= 10
    scripts = {unicodedata.name(c).split()[0] for language in number_data.LANGUAGES for c in spelled(7, language)}
    assert {"LATIN", "CYRILLIC", "HANGUL", "THAI", "CJK"} <= scripts


def spelled(number, language):
    return number_data.spell(number, language).replace(" ", "")


@pytest.mark.parametrize("language", number_data.LANGUAGES)
def test_a_language_writes_no_two_numbers_alike(language):
    # what the file of all words would show, in a tenth of the time: a whole thousand with all that can stand in it
    numbers = [*range(2000), *number_data.NUMBERS[2000::13]]
    assert len({number_data.spell(number, language) for number in numbers}) == len(numbers)


@pytest.mark.out_of_turn
@pytest.mark.parametrize("language", number_data.LANGUAGES)
def test_no_two_of_all_numbers_are_alike_and_each_can_be_encoded(language):
    words = [number_data.spell(number, language) for number in number_data.NUMBERS]
    assert len(set(words)) == len(words)
    assert {character for text in words for character in text} <= set(number_data.make_vocabulary())
    assert max(map(len, words)) + 1 <= spell_numbers.FULL.longest_answer


def test_words_are_cleaned(monkeypatch):
    monkeypatch.setattr(number_data, "num2words", lambda number, lang: " se\u0301t  mil ")
    assert number_data.spell.__wrapped__(1, "ca") == "s\u00e9t mil"


# The split.


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


# The tokens.


def test_prompts_and_answers_are_joined():
    rows = [number_data.Row("de", "", "47", "elf"), number_data.Row("de", "", "1", "0")]
    four, seven, one, zero, e, ell, f = number_data.tokens_of("4710elf")
    end, equals = number_data.END, number_data.EQUALS
    prompts = number_data.encode_prompts(rows)
    assert prompts["prompt"].tolist() == [[GERMAN, four, seven], [GERMAN, one, end]]
    assert prompts["valid_lens"].tolist() == [3, 2]
    tokens, wanted, counted = number_data.encode_answers(rows)
    assert tokens.tolist() == [[GERMAN, four, seven, equals, e, ell, f], [GERMAN, one, equals, zero, end, end, end]]
    assert (wanted * counted).tolist() == [[0, 0, 0, e, ell, f, end], [0, 0, zero, end, 0, 0, 0]]
    assert counted.sum(axis=1).tolist() == [4, 2]
    # no token stands for two things
    languages = [number_data.FIRST_LANGUAGE + n for n in range(len(number_data.LANGUAGES))]
    every = [end, equals, *languages, *number_data.tokens_of(number_data.make_vocabulary())]
    assert every == list(range(number_data.vocabulary_size()))


def test_answers_are_decoded_as_they_were_encoded(rows):
    answers = [[*number_data.tokens_of(row.answer), number_data.END] for row in rows]
    tokens = number_data._padded(answers)
    assert number_data.decode_answers(tokens, np.array([len(each) for each in answers])) == [r.answer for r in rows]
    assert number_data.decode_answers(np.array([[GERMAN, *number_data.tokens_of("elf")]]), np.array([3])) == ["?el"]


# The training.


def test_each_pass_takes_every_row_once_with_little_padding():
    rows = number_data.make_rows(range(3000, 3040))
    batches = list(number_training.make_batches(rows, 2, SEED))
    assert len(batches) == number_training.count_batches(rows, 2)
    for half in (batches[: len(batches) // 2], batches[len(batches) // 2 :]):
        drawn = Counter(tuple(row[row > 0]) for tokens, _, _ in half for row in tokens)
        assert drawn == Counter(tuple(row[row > 0]) for row in number_data.encode_answers(rows)[0])
        widths = [tokens.shape[1] for tokens, _, _ in half]
        assert widths != sorted(widths)
    kept = sum((tokens > 0).sum() for tokens, _, _ in batches)
    assert kept > 0.8 * sum(tokens.size for tokens, _, _ in batches)


def surprise(model, rows):
    """The mean of minus the log-probability of the right answers' tokens, in float64."""
    tokens, wanted, counted = number_data.encode_answers(rows)
    logits = np.asarray(model.predict_on_batch(tokens), "float64")
    logs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True)
    return -(np.take_along_axis(logs, wanted[..., None], -1)[..., 0] * counted).sum() / counted.sum()


@pytest.mark.out_of_turn
def test_training_learns_the_answers_and_not_the_prompts(speller):
    rows = number_data.make_rows(range(20, 30))
    model = number_model.training_model(speller)
    before = surprise(model, rows)
    number_training.train(model, rows, passes=4, seed=SEED)
    assert surprise(model, rows) < 0.8 * before
    questions = number_data.encode_answers(rows)[0]
    likeliest = np.asarray(model.predict_on_batch(questions))[:, 0].argmax(-1)
    assert set(likeliest) != set(questions[:, 1])


# The models.


@pytest.fixture(scope="module")
def speller():
    keras.utils.set_random_seed(SEED)
    return number_model.Speller(width=16, depth=2, longest_answer=5)


@pytest.fixture(scope="module")
def answered(speller, rows):
    return number_model.answering_model(speller).predict_on_batch(number_data.encode_prompts(rows))


def test_steps_with_a_cache_write_what_one_pass_without_says(speller, rows, answered):
    assert (answered["lengths"] > 1).any()
    assert spell_numbers.as_in_one_pass(number_model.training_model(speller), rows, answered).all()


def test_a_wrong_token_is_not_that_of_one_pass(speller, rows, answered):
    tokens = answered["tokens"].copy()
    tokens[3, 0] = tokens[3, 0] % 100 + 1
    same = spell_numbers.as_in_one_pass(number_model.training_model(speller), rows, answered | {"tokens": tokens})
    assert not same[3].all()
    assert same[[0, 1, 2, 4]].all()


def test_padding_of_a_prompt_makes_no_difference(speller, rows, answered):
    prompts = number_data.encode_prompts(rows)
    garbage = np.full((len(rows), 3), 9, "int32")
    padded = np.arange(prompts["prompt"].shape[1]) >= prompts["valid_lens"][:, None]
    prompt = np.concatenate([np.where(padded, 9, prompts["prompt"]), garbage], axis=1).astype("int32")
    found = number_model.answering_model(speller).predict_on_batch(prompts | {"prompt": prompt})
    np.testing.assert_array_equal(found["tokens"], answered["tokens"])
    assert_close(found["scores"], answered["scores"], tolerance=1e-5)  # sums of log-probabilities of up to 5 tokens


def test_a_loop_in_python_writes_the_same(speller, rows, answered):
    prompt, step = number_model.prompt_model(speller), number_model.step_model(speller)
    prompts = number_data.encode_prompts(rows)
    found = spell_numbers.answer_in_a_loop(prompt.predict_on_batch, step.predict_on_batch, prompts, 5)
    np.testing.assert_array_equal(found, answered["tokens"])


def test_the_loop_stops_at_the_end_of_the_last_row():
    end, steps = number_data.END, []

    def step(state):
        steps.append(state["token"].tolist())
        written = [[5, end, 6, 6], [7, 8, end, 6]]
        return {"logits": np.eye(9)[[row[len(steps) - 1] for row in written]], "next_length": state["length"] + 1}

    found = spell_numbers.answer_in_a_loop(lambda prompts: prompts, step, {"length": np.array([1, 1])}, 6)
    assert found.tolist() == [[5, end, end, end, end, end], [7, 8, end, end, end, end]]
    assert steps == [[number_data.EQUALS] * 2, [5, 7], [end, 8]]


# All of it.


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    folder = tmp_path_factory.mktemp("numbers")
    return spell_numbers.main(["--quick", "--out", str(folder)]), folder


@pytest.mark.out_of_turn
def test_every_answer_of_the_one_file_is_that_of_keras_of_the_loop_and_of_one_pass(quick):
    results = quick[0]
    assert results["answers"] == 2 * len(number_data.LANGUAGES) * spell_numbers.QUICK.held_out
    for name in ("Keras", "a Python loop", "one pass of Keras without a cache"):
        assert results[name] == results["answers"]


@pytest.mark.out_of_turn
def test_one_file_takes_prompts_and_gives_answers(quick):
    bundle = keras_attn_export.load_bundle(quick[1] / "answering")
    assert {each["name"] for each in bundle.manifest["inputs"]} == {"prompt", "valid_lens"}
    assert {each["name"] for each in bundle.manifest["outputs"]} == {"tokens", "lengths", "scores"}
    assert not bundle.report.warnings
    assert imread(quick[1] / "numbers.png")[..., :3].std() > 0.01


def test_exact_answers_are_counted_by_direction_and_language(rows):
    answers = ["" if row.language == "ja" and row.question == "47" else row.answer for row in rows]
    shares = number_report.shares_of(rows, answers)
    assert shares["digits to words"].pop("ja") == 0.75
    assert {share for each in shares.values() for share in each.values()} == {1.0}
