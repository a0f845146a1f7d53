"""Static page in a browser: layout, accessibility, attention maps and hostile names."""

import json
import time
from dataclasses import replace

import pytest
from speller import LABELS, VOCABULARY

from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.names import CASES_FILE

pytestmark = [pytest.mark.nightly, pytest.mark.needs("node", "selenium")]

HOSTILE = "</script><script>window.injected=1</script>"
MAPS = "document.querySelectorAll('.example canvas').length"
SECTION = (
    "return [...document.querySelectorAll('.map-section')]"
    ".find((section) => section.querySelector('h4').textContent.startsWith(arguments[0]))"
)


@pytest.fixture(scope="module")
def page(speller_bundle):
    return speller_bundle.write_report(labels=LABELS)


@pytest.mark.parametrize(
    ("size", "scheme", "paper"),
    [((1280, 900), "light", "rgb(255, 255, 255)"), ((390, 900), "dark", "rgb(21, 23, 27)")],
    ids=["desk", "phone"],
)
def test_page_is_accessible_and_fits_the_window(browser, page, size, scheme, paper):
    browser.open(page, size=size, scheme=scheme)
    browser.wait(MAPS)
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == paper
    assert browser.measure_overflow() <= 0
    assert browser.list_console_messages() == []
    assert browser.list_accessibility_violations() == []


def test_examples_show_labels_and_maps_when_opened(browser, page, speller_bundle):
    browser.open(page)
    browser.wait(f"{MAPS} === 3")  # two heads and one
    case = load_cases(speller_bundle.path / CASES_FILE)[0]
    first = browser.find("#examples article").text
    spelt = "".join(VOCABULARY[scores.argmax()] for scores in case.outputs["spelt"][0][:4])
    assert f"letters\nabcd\nlens\n4\nspelt\n{spelt}" in first
    browser.run("document.querySelectorAll('details.maps')[1].open = true")
    browser.wait(f"{MAPS} === 6")


def test_table_has_the_weights_of_the_case(browser, page, speller_bundle):
    case = load_cases(speller_bundle.path / CASES_FILE)[0]
    browser.open(page)
    browser.wait(MAPS)
    section = browser.run(SECTION, "weights:")
    browser.run("for (const details of arguments[0].querySelectorAll('details')) details.open = true", section)
    browser.wait("document.querySelectorAll('.map-section td').length")
    rows = "arguments[0].querySelectorAll('table')[1].querySelectorAll('tbody tr')"
    table = browser.run(f"return [...{rows}].map((row) => [...row.children].map((cell) => cell.textContent))", section)
    assert [heading for heading, *_ in table] == ["0 a", "1 b", "2 c", "3 d", "4 "]
    for (_, *cells), weights in zip(table, case.outputs["weights"][0, 1], strict=True):
        assert cells[4] == "exactly 0"  # masked by the length
        assert [float(cell) for cell in cells[:4]] == pytest.approx(weights[:4], rel=5e-3)


def test_pointer_shows_the_weight_of_a_cell(browser, page, speller_bundle):
    from selenium.webdriver.common.action_chains import ActionChains

    weights = load_cases(speller_bundle.path / CASES_FILE)[0].outputs["weights"][0, 0]
    browser.open(page)
    browser.wait(MAPS)
    section = browser.run(SECTION, "weights:")
    canvas = section.find_element("css selector", "canvas")
    expected = f"head 0, query 2 “c”, key 2 “c”: {float(f'{weights[2, 2]:.3g}'):g}"
    for offset in range(20):  # the page may receive a pointer event only with its next frame
        ActionChains(browser.driver).move_to_element_with_offset(canvas, offset % 2, 0).perform()  # the middle cell
        readout = browser.run("return arguments[0].querySelector('.readout').textContent", section)
        if readout == expected:
            break
        time.sleep(0.1)
    assert readout == expected


def test_names_are_escaped(browser, tmp_path, speller_bundle):
    manifest = json.loads(json.dumps(speller_bundle.manifest))
    manifest["model"] = HOSTILE
    manifest["layers"][0]["name"] = manifest["layers"][0]["form"] = HOSTILE
    manifest["weights_of"] = dict.fromkeys(manifest["weights_of"], HOSTILE)
    hostile_bundle = replace(speller_bundle, manifest=manifest)
    page = hostile_bundle.write_report(tmp_path / "page.html", labels={**LABELS, "letters": [HOSTILE, *VOCABULARY[1:]]})
    browser.open(page)
    browser.wait(MAPS)
    assert browser.run("return window.injected === undefined")
    assert browser.find("h1").text == HOSTILE
    assert HOSTILE in browser.find(".map-section h4").text
    assert browser.list_console_messages() == []
