"""Live page of the demo: its answers to dates in all languages equal the outputs of the bundle."""

import importlib
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

pytestmark = [pytest.mark.nightly, pytest.mark.needs("node", "selenium")]
SEED = 5
TYPE_SCRIPT = """
    const [text, language] = arguments
    const [field, menu] = ['characters', 'locale'].map((name) => document.querySelector(`#form [name=${name}]`))
    menu.value = [...menu.options].find((option) => option.text === language).value
    field.value = text
    field.dispatchEvent(new Event('input', { bubbles: true }))
"""


def test_date_in_each_language_has_the_answer_of_the_bundle(browser, tmp_path, monkeypatch):
    """The model is untrained, so its answers are no dates."""
    monkeypatch.setenv("NODE_PATH", str(WEB / "node_modules"))
    days, _ = date_data.split_days(SEED)
    rows = {row.locale: row for row in date_data.make_rows(days, 1, seed=SEED, noise=0.0)}
    vocabulary = date_data.make_vocabulary()
    keras.utils.set_random_seed(SEED)
    model = date_model.build_decoder(len(vocabulary) + 2).model
    samples = date_data.encode_rows([*rows.values()][:10], vocabulary)
    bundle = export_model(model, tmp_path / "dates", sample_inputs=samples)
    assert "to type dates" in date_normaliser.write_page(bundle, vocabulary, tmp_path / "dates.html")
    browser.open(tmp_path / "dates.html")
    browser.wait("document.querySelector('#answer')?.dataset.request")
    assert len({date_report.get_language_name(locale).split(",")[0] for locale in rows}) == 37
    for locale, row in rows.items():
        (expected,) = date_data.decode_iso(bundle.run(date_data.encode_rows([row], vocabulary))["tokens"])
        browser.run("document.querySelector('#answer').replaceChildren()")
        browser.run(TYPE_SCRIPT, row.text, date_report.get_language_name(locale))
        browser.wait("document.querySelector('#answer .answer')")
        assert browser.find("#answer .answer").text == expected, row
    assert browser.list_console_messages() == []
