"""The page of the demo: below 300 kB, and live it answers to a date in each of its languages as the bundle does."""

import importlib
import json
import sys
from pathlib import Path

import keras
import pytest
from node import WEB

from keras_attn_export import export_model

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
date_data = importlib.import_module("date_data")
date_model = importlib.import_module("date_model")
date_normaliser = importlib.import_module("date_normaliser")
date_report = importlib.import_module("date_report")

pytestmark = [pytest.mark.nightly, pytest.mark.needs("node")]
SEED = 5


@pytest.fixture(scope="module")
def rows():
    """A date in each locale."""
    days, _ = date_data.split_days(SEED)
    every = date_data.make_rows(days, 1, seed=SEED, noise=0.0)
    return list({row.locale: row for row in every}.values())


@pytest.fixture(scope="module")
def vocabulary():
    return date_data.make_vocabulary()


@pytest.fixture(scope="module")
def bundle(tmp_path_factory, rows, vocabulary):
    """The demo's model as it is before it has learned anything, which takes a minute: its answers are no dates."""
    keras.utils.set_random_seed(SEED)
    model = date_model.build_decoder(len(vocabulary) + 2).model
    samples = date_data.encode_rows(rows[:10], vocabulary)
    return export_model(model, tmp_path_factory.mktemp("dates") / "dates", sample_inputs=samples)


def test_a_page_that_is_not_live_is_small(bundle, vocabulary, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("NODE_PATH", raising=False)
    said = date_normaliser.write_page(bundle, vocabulary, tmp_path / "dates.html")
    assert "To type dates into it: A live page takes onnxruntime-web along, which is not installed here." in said
    assert (tmp_path / "dates.html").stat().st_size < 300_000


def test_a_date_in_each_language_is_answered_as_by_the_bundle(browser, bundle, rows, vocabulary, tmp_path, monkeypatch):
    monkeypatch.setenv("NODE_PATH", str(WEB / "node_modules"))
    assert "to type dates" in date_normaliser.write_page(bundle, vocabulary, tmp_path / "dates.html")
    browser.open(tmp_path / "dates.html")
    browser.wait("document.querySelector('#answer')?.dataset.turn")
    assert len({date_report.language(row.locale).split(",")[0] for row in rows}) == 37
    type_it = """
        const [text, locale] = arguments
        const [field, menu] = ['characters', 'locale'].map((name) => document.querySelector(`#form [name=${name}]`))
        menu.value = [...menu.options].find((option) => option.text === locale).value
        field.value = text
        field.dispatchEvent(new Event('input', { bubbles: true }))
    """
    for row in rows:
        (answer,) = date_data.decode_iso(bundle.run(date_data.encode_rows([row], vocabulary))["tokens"])
        browser.run("document.querySelector('#answer').replaceChildren()")
        browser.run(type_it, row.text, date_report.language(row.locale))
        browser.wait("document.querySelector('#answer .answer')")
        shown = browser.run("return document.querySelector('#answer .answer').textContent")
        assert shown == answer, f"{row}: {json.dumps(shown)}"
    assert browser.complaints() == []
