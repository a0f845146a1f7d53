"""Data, decoder and command line of the date normaliser demo: unambiguous dates, and a held-out split without leaks."""

import datetime
import importlib
import sys
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from babel.dates import format_date

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
date_data, date_model = map(importlib.import_module, ("date_data", "date_model"))
date_normaliser = importlib.import_module("date_normaliser")

SEED = 7
SAMPLE_DAYS = [datetime.date.fromisoformat(day) for day in ("1970-01-01", "2000-02-29", "2024-09-30", "2069-12-31")]


@pytest.fixture(scope="module")
def noisy_rows():
    return date_data.make_rows(date_data.split_days(SEED)[0], 60, seed=SEED, noise=1.0)


vocabulary = cache(date_data.make_vocabulary)


@pytest.mark.parametrize("locale", date_data.LOCALES)
def test_every_style_equals_babel_and_is_unambiguous(locale):
    days, orders = [*SAMPLE_DAYS, *(datetime.date(2031, month, 2 * month) for month in range(1, 13))], set()
    for style in date_data.STYLES:
        for day in days:
            pieces = date_data.write_date(day, locale, style)
            assert "".join(text for _, text in pieces) == format_date(day, style, locale=locale)
        fields = [field for field, _ in date_data.parse_date_pattern(locale, style) if field != "chars"]
        letters = [field[0].replace("L", "M") for field in fields]
        assert [letters.count(letter) for letter in "yMd"] == [1, 1, 1]
        if all(field[0] in "yMd" and len(field) <= 2 for field in fields):
            orders.add("".join(field[0] for field in fields))
    assert len(orders) <= 1  # dates that consist of numbers alone


def test_no_held_out_day_is_trained_on():
    training_days, held_out_days = date_data.split_days(SEED)
    assert (len(training_days), len(held_out_days)) == (36525 - 3652, 3652)
    assert not set(training_days) & set(held_out_days)
    assert {day.year for day in training_days + held_out_days} == set(range(1970, 2070))
    rows = {row.iso for row in date_data.make_rows(held_out_days, 20, seed=1, noise=0.5)}
    assert rows <= {day.isoformat() for day in held_out_days}
    assert date_data.split_days(SEED) == (training_days, held_out_days) != date_data.split_days(SEED + 1)


@pytest.mark.slow
def test_decoder_ignores_padding_and_equals_the_training_model(noisy_rows):
    decoder = date_model.build_decoder(len(vocabulary()) + 2, width=8, depth=2)
    inputs = date_data.encode_rows(noisy_rows[::997], vocabulary())
    padded = inputs | {"characters": np.pad(inputs["characters"], [(0, 0), (0, 3)], constant_values=5)}
    outputs, padded_outputs = map(decoder.model.predict_on_batch, (inputs, padded))
    np.testing.assert_array_equal(padded_outputs["tokens"], outputs["tokens"])
    np.testing.assert_allclose(padded_outputs["scores"], outputs["scores"], atol=1e-4)
    assert not padded_outputs["attention"][..., -3:].any()
    previous = date_data.shift_characters(outputs["tokens"])
    logits = np.asarray(decoder.training.predict_on_batch(inputs | {"before": previous}), "float64")
    np.testing.assert_array_equal(logits.argmax(-1), outputs["tokens"])
    log_probabilities = logits.max(-1) - np.logaddexp.reduce(logits, axis=-1)
    np.testing.assert_allclose(outputs["scores"], log_probabilities.sum(1), rtol=1e-5)


@pytest.mark.parametrize(("means", "equal", "count"), [([1.0, 0.98], 50, 0), ([1.0, 0.97], 50, 1), ([0.9, 1.0], 49, 2)])
def test_demo_fails_below_the_bar_or_on_a_different_answer(monkeypatch, capsys, means, equal, count):
    problems = date_normaliser.list_problems(means, equal, 50, bar=0.98)
    assert len(problems) == count
    monkeypatch.setattr(date_normaliser, "run_demo", lambda *_: problems)
    assert date_normaliser.main([]) == bool(problems)
    assert capsys.readouterr().err.splitlines() == problems


def test_decode_option_prints_the_dates(tmp_path, capsys):
    rows = [date_data.Row("", "en_US", "short", iso) for iso in ("1999-12-31", "2024-02-29")]
    np.savez(tmp_path / "outputs.npz", tokens=date_data.encode_iso(rows), attention=np.zeros((2, 10, 3)))
    assert date_normaliser.main(["--decode", str(tmp_path / "outputs.npz")]) == 0
    assert capsys.readouterr().out == "1999-12-31\n2024-02-29\n"
