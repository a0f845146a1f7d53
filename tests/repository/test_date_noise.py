"""The noise of the demo's dates is of every kind that is promised, and leaves each date one reading."""

import datetime
import importlib
import random
import sys
from pathlib import Path

import pytest
from babel.dates import get_month_names

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
date_data = importlib.import_module("date_data")
date_noise = importlib.import_module("date_noise")

SEED = 7


@pytest.fixture(scope="module")
def pairs():
    """The same dates without and with noise."""
    days, _ = date_data.split_days(SEED)
    clean, noisy = (date_data.make_rows(days, 60, seed=SEED, noise=noise) for noise in (0.0, 1.0))
    return list(zip(clean, noisy, strict=True))


def digit_groups(text):
    """The numbers in a text, in any script's digits."""
    spaced = "".join(character if character.isdigit() else " " for character in text)
    return [int(group) for group in spaced.split()]


def test_noise_changes_most_texts_and_no_date(pairs):
    assert all(clean.iso == noisy.iso for clean, noisy in pairs)
    assert 0.6 < sum(clean.text != noisy.text for clean, noisy in pairs) / len(pairs) < 0.9


def test_noise_never_joins_or_changes_a_number(pairs):
    assert all(digit_groups(clean.text) == digit_groups(noisy.text) for clean, noisy in pairs)


@pytest.mark.parametrize(
    "change",
    [
        *(str.lower, str.upper, str.title),
        *(lambda text: text.replace(" ", "", 1), lambda text: text.replace(" ", "  ", 1)),
        *(lambda text: text.replace(",", "", 1), lambda text: text.replace(",", ",,", 1)),
        *(lambda text: text.replace("/", " ", 1), lambda text: text.replace("/", "//", 1)),
        lambda text: text.replace("\u202f", " "),
        lambda text: text.replace("\u200f", "").translate(date_noise.native_digits("ar_EG")),
    ],
    ids=[
        *("lower", "upper", "title", "space missing", "space doubled", "comma missing", "comma doubled"),
        *("slash missing", "slash doubled", "plain space", "native digits"),
    ],
)
def test_noise_of_every_kind_appears(change, pairs):
    assert any(noisy.text == change(clean.text) != clean.text for clean, noisy in pairs)


def test_one_name_in_ten_has_a_typo():
    rng = random.Random(SEED)
    pieces = date_data.write_date(datetime.date(2024, 11, 7), "de", "long")
    texts = [date_noise.add_noise(pieces, "de", rng).lower() for _ in range(5000)]
    assert sum("november" not in text for text in texts) / len(texts) == pytest.approx(0.1, abs=0.02)


@pytest.mark.parametrize("locale", date_data.LOCALES)
def test_a_typo_is_near_its_own_month_only(locale):
    rng = random.Random(SEED)
    months = [[date_noise.fold(name) for name in names] for names in date_noise.month_names(locale)]
    for month, names in enumerate(date_noise.month_names(locale)):
        others = [name for n, rest in enumerate(months) if n != month for name in rest]
        for name in filter(date_noise.is_name, names):
            typos = {date_noise.fold(date_noise.misspell_month(name, locale, rng)) for _ in range(8)}
            assert all(date_noise.within_one_typo(typo, date_noise.fold(name)) for typo in typos)
            typos.discard(date_noise.fold(name))  # a name that no typo leaves clear stays as it is
            assert not any(date_noise.within_one_typo(typo, other) for typo in typos for other in others)


@pytest.mark.parametrize("locale", date_data.LOCALES)
def test_months_differ_by_more_than_marks_and_case(locale):
    folded = [name for names in date_noise.month_names(locale) for name in {date_noise.fold(name) for name in names}]
    assert len(set(folded)) == len(folded)


def test_nearly_every_name_can_have_a_typo():
    rng = random.Random(SEED)
    names = [
        (name, locale)
        for locale in date_data.LOCALES
        for month in date_noise.month_names(locale)
        for name in filter(date_noise.is_name, month)
    ]
    stuck = sum(date_noise.misspell_month(name, locale, rng) == name for name, locale in names)
    assert stuck < 0.02 * len(names)


def test_months_written_with_digits_have_no_typos():
    names = [get_month_names("wide", locale=locale)[6] for locale in ("ja", "ko", "vi", "de")]
    assert [date_noise.is_name(name) for name in names] == [False, False, False, True]


@pytest.mark.parametrize(
    ("a", "b", "near"),
    [
        *(("june", "june", True), ("juen", "june", True), ("jne", "june", True), ("juune", "june", True)),
        *(("jane", "june", True), ("jun", "june", True), ("", "a", True), ("ujne", "june", True)),
        *(("july", "june", False), ("jnue", "june", True), ("jenu", "june", False), ("", "ab", False)),
        *(("may", "march", False), ("abcd", "badc", False)),
    ],
)
def test_within_one_typo(a, b, near):
    assert date_noise.within_one_typo(a, b) is near
    assert date_noise.within_one_typo(b, a) is near
