"""The page as a person meets it, in a real browser: what it says, what pointer and keys show, whom it keeps out."""

import json
import re
import shutil
import time
from dataclasses import replace

import keras
import numpy as np
import pytest
from bundles import reseal
from node import WEB

from keras_attn import AdditiveAttention, DotProductAttention, MultiHeadAttention
from keras_attn_export import export_model, load_bundle
from keras_attn_export._report.maps import row_entropy
from keras_attn_export._standalone import verify

pytestmark = [pytest.mark.nightly, pytest.mark.needs("node", "selenium")]

VOCABULARY = ["", "<unk>", *"abcdefg"]
HOSTILE = "</script><script>window.injected=1</script>"
DRAWN = "document.querySelector('#maps [data-shown]')?.dataset.shown"


def speller():
    """A small model of letters: two heads that look at them, and an answer of a letter at each of three places."""
    letters = keras.Input((None,), dtype="int32", name="letters")
    lens = keras.Input((), dtype="int32", name="lens")
    far_apart = keras.initializers.RandomNormal(stddev=2.0)  # so that rows of weights, and their entropies, differ
    x = keras.layers.Embedding(len(VOCABULARY), 8, far_apart, name="embed")(letters)
    heads = MultiHeadAttention(DotProductAttention(), num_heads=2, name="heads")
    y, weights = heads(x, x, x, lens, return_attention_scores=True)
    context, looks = AdditiveAttention(4, name="look")(y, x, x, lens, return_attention_scores=True)
    scores = keras.layers.Dense(len(VOCABULARY), name="spelt")(context)
    return keras.Model([letters, lens], {"spelt": scores, "weights": weights, "looks": looks}, name="speller")


LABELS = {"letters": VOCABULARY, "spelt": VOCABULARY}


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    keras.utils.set_random_seed(3)
    samples = {"letters": np.array([[2, 3, 4, 5, 0], [6, 7, 8, 2, 3]], "int32"), "lens": np.array([4, 5], "int32")}
    return export_model(speller(), tmp_path_factory.mktemp("speller") / "bundle", sample_inputs=samples)


@pytest.fixture(scope="module")
def page(bundle):
    return bundle.write_report(labels=LABELS)


@pytest.fixture(scope="module")
def live_page(bundle, monkeypatch_module):
    return bundle.write_report(bundle.path.with_name("live.html"), labels=LABELS, live=True)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NODE_PATH", str(WEB / "node_modules"))
        yield patch


SECTION = (
    "[...document.querySelectorAll('#PLACE section')]"
    ".find((section) => section.querySelector('h3').textContent.startsWith('OUTPUT:'))"
)


def section(browser, output, place="maps"):
    """The part of the page that shows the maps of an output."""
    return browser.run("return " + SECTION.replace("PLACE", place).replace("OUTPUT", output))


def focus(browser, output, head=0, place="maps"):
    found = section(browser, output, place)
    browser.run("arguments[0].querySelectorAll('.map')[arguments[1]].focus()", found, head)


def said(browser, output, place="maps"):
    return browser.run("return arguments[0].querySelector('output').textContent", section(browser, output, place))


@pytest.mark.parametrize(
    ("size", "scheme", "paper"),
    [((1200, 900), "light", "rgb(255, 255, 255)"), ((420, 900), "dark", "rgb(21, 23, 27)")],
    ids=["desk", "phone"],
)
def test_page_is_accessible_and_fits_the_window(browser, page, size, scheme, paper):
    browser.open(page, size=size, scheme=scheme)
    browser.wait(DRAWN)
    assert browser.run("return getComputedStyle(document.body).backgroundColor") == paper
    for details in browser.driver.find_elements("css selector", "details"):
        browser.run("arguments[0].open = true", details)
    assert browser.complaints() == []
    assert browser.violations() == []
    # nothing but what scrolls by itself is wider than the window
    assert browser.run("return document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0


def expected(bundle, case, output, example, head, query, key):
    weights = case.outputs[output][example].reshape(-1, *case.outputs[output].shape[-2:])[head]
    entropy = float(row_entropy(weights[query]))
    held = "exactly 0" if weights[query, key] == 0 else f"weight {weights[query, key]:.4f}"
    return f"{held}; entropy of the row {entropy:.3f}, that of {np.exp(entropy):.1f} equal keys"


def test_keyboard_shows_the_numbers_of_the_case(browser, page, bundle):
    case = verify.load_cases(bundle.path / verify.CASES)[0]
    browser.open(page)
    browser.wait(DRAWN)
    focus(browser, "weights", head=1)
    assert browser.run("return document.activeElement.getAttribute('aria-label')").startswith("weights of heads/")
    browser.keys("ARROW_DOWN", "ARROW_DOWN", "ARROW_RIGHT")
    rest = expected(bundle, case, "weights", 0, 1, 2, 1)
    assert said(browser, "weights") == f"head 1, query 2 “c”, key 1 “b”: {rest}"
    browser.keys("END")
    assert said(browser, "weights").endswith(expected(bundle, case, "weights", 0, 1, 2, 4))
    assert "exactly 0" in said(browser, "weights")
    browser.keys("ARROW_RIGHT")  # there is none further
    assert "key 4" in said(browser, "weights")


def test_pointer_shows_the_numbers_of_the_case(browser, page, bundle):
    from selenium.webdriver.common.action_chains import ActionChains

    case = verify.load_cases(bundle.path / verify.CASES)[0]
    browser.open(page)
    browser.wait(DRAWN)
    canvas = section(browser, "weights").find_element("css selector", "canvas")
    pattern = r"head 0, query (\d+) “.?”, key (\d+) “.?”: "
    for offset in range(20):  # the page may receive a pointer event only with its next frame
        ActionChains(browser.driver).move_to_element_with_offset(canvas, offset % 2, 0).perform()  # its middle
        if middle := re.match(pattern, said(browser, "weights")):
            break
        time.sleep(0.1)
    query, key = int(middle[1]), int(middle[2])
    assert query > 0
    assert key > 0
    assert said(browser, "weights").endswith(expected(bundle, case, "weights", 0, 0, query, key))


def choose(browser, number, text):
    """Choose an option by what it begins with."""
    script = """
        const select = document.querySelectorAll('#maps select')[arguments[0]]
        select.value = [...select.options].find((option) => option.text.startsWith(arguments[1])).value
        select.dispatchEvent(new Event('change'))
    """
    browser.run(script, number, text)


def test_menus_choose_case_and_example(browser, page, bundle):
    cases = {case.name: case for case in verify.load_cases(bundle.path / verify.CASES)}
    browser.open(page)
    browser.wait(DRAWN)
    choose(browser, 0, "lengths mixed")
    browser.wait(f"{DRAWN} !== '0/0'")
    choose(browser, 1, "2")
    browser.wait(f"{DRAWN}?.endsWith('/2')")
    focus(browser, "looks")
    browser.keys("ARROW_DOWN", "ARROW_DOWN", "ARROW_DOWN", "ARROW_RIGHT")
    assert said(browser, "looks").endswith(expected(bundle, cases["lengths mixed"], "looks", 2, 0, 3, 1))


def test_names_are_escaped(browser, tmp_path, bundle):
    """Names that would be code, were they not escaped: in the page, in what its scripts write."""
    manifest = json.loads(json.dumps(bundle.manifest))
    manifest["model"] = HOSTILE
    manifest["layers"][0]["name"] = manifest["layers"][0]["form"] = HOSTILE
    manifest["weights_of"] = dict.fromkeys(manifest["weights_of"], HOSTILE)
    hostile = replace(bundle, manifest=manifest)
    page = hostile.write_report(tmp_path / "page.html", labels={**LABELS, "letters": [HOSTILE, *VOCABULARY[1:]]})
    browser.open(page)
    browser.wait(DRAWN)
    assert browser.run("return window.injected === undefined")
    assert browser.find("h1").text == HOSTILE
    assert HOSTILE in browser.find("#maps h3").text
    assert browser.complaints() == []


# A live page.


def replayed(browser, page):
    """Open a page that runs its model on its cases, and return what it says then."""
    browser.open(page)
    live = browser.wait("['passed', 'failed'].find((each) => each === document.documentElement.dataset.live)")
    return live, browser.find("#replay").text


def test_live_page_replays_its_cases(browser, live_page, bundle):
    live, said = replayed(browser, live_page)
    assert browser.complaints() == []
    count = len(bundle.report.rows)
    assert live == "passed"
    assert f"{count} of {count} outputs over {bundle.manifest['parity']['cases']} cases match here" in said
    assert browser.violations() == []


def test_form_runs_the_model(browser, live_page, bundle):
    browser.open(live_page)
    browser.wait("document.querySelector('#answer')?.dataset.turn")
    text = browser.find("#form input[name=letters]")
    assert text.get_attribute("value") == "abcd"  # the first sample without its padding
    text.clear()
    text.send_keys("gab?")
    browser.wait("document.querySelectorAll('#answer canvas').length === 3")
    ids = np.array([[8, 2, 3, 1]], "int32")
    outputs = bundle.run({"letters": ids, "lens": np.array([4], "int32")})
    spelt = "".join(VOCABULARY[each] for each in outputs["spelt"][0].argmax(-1))
    browser.wait(f"document.querySelector('#answer .answer')?.textContent === {json.dumps(spelt)}")
    focus(browser, "weights", 1, "answer")
    browser.keys("ARROW_DOWN", "ARROW_RIGHT", "ARROW_RIGHT")
    shown = re.match(r"head 1, query 1 “a”, key 2 “b”: weight (0\.\d{4});", said(browser, "weights", "answer"))
    assert shown, said(browser, "weights", "answer")
    assert abs(float(shown[1]) - outputs["weights"][0, 1, 1, 2]) <= 1.1e-4
    text.send_keys(4 * "\ue003")  # backspace, in WebDriver's code
    browser.wait("document.querySelector('#answer .error')?.textContent === 'letters is empty'")
    assert browser.complaints() == []


TAGGED = ["<pad>", "<s>", "</s>", "a", "b"]


class Odd(keras.Model):
    """What a form must know to run it: a fixed length and batch, bytes, truth values, whole numbers of 64 bits."""

    def call(self, inputs):
        total = keras.ops.sum(keras.ops.cast(inputs["letters"], "int64"), axis=1) * 1_000_000
        total = total + keras.ops.cast(inputs["byte"], "int64")
        total = total + 100_000_000 * keras.ops.cast(inputs["tone"], "int64")
        return {"total": total, "flag": keras.ops.logical_not(inputs["flag"]), "half": inputs["x"] / 2}


def type_in(browser, name, text):
    """Type into a field of the form, and return what is then answered."""
    turn = browser.run("return document.querySelector('#answer').dataset.turn")
    script = "arguments[0].value = arguments[1]; arguments[0].dispatchEvent(new Event('input', { bubbles: true }))"
    browser.run(script, browser.find(f"#form [name={name}]"), text)
    browser.wait(f"document.querySelector('#answer').dataset.turn !== '{turn}'")
    return browser.find("#answer").text


def test_form_takes_fixed_sizes_bytes_truth_values_and_menus(browser, tmp_path, monkeypatch_module):
    samples = {
        "letters": np.array([[1, 3, 4, 2, 0, 0], [1, 4, 2, 0, 0, 0]], "int32"),
        "byte": np.array([7, 9], "uint8"),
        "flag": np.array([True, False]),
        "tone": np.array([0, 2], "int32"),
        "x": np.array([[1.5, 2.0], [0, 1]], "float32"),
    }
    static = {"batch": 2, "letters_length": 6}
    made = export_model(Odd(), tmp_path / "bundle", sample_inputs=samples, static_axes=static)
    shapes = {spec["name"]: spec["shape"] for spec in made.manifest["inputs"]}
    assert shapes["letters"] == [2, 6]
    samples["x"][0, 1] = np.nan
    browser.open(
        made.write_report(labels={"letters": TAGGED, "tone": ["low", "mid", "high"]}, inputs=samples, live=True)
    )
    browser.wait("document.querySelector('#answer')?.dataset.turn")
    assert browser.find("#form [name=letters]").get_attribute("value") == "<s>ab</s>"
    assert json.loads(browser.find("#form [name=x]").get_attribute("value")) == [[1.5, "NaN"]]
    answer = browser.find("#answer").text
    assert "total 10000007" in answer
    assert "flag_output false" in answer
    assert "half 0.750000 NaN" in answer
    assert "total 10000255" in type_in(browser, "byte", "255")
    for wrong in ("256", "-1", "1.5", ""):
        assert "byte must hold uint8" in type_in(browser, "byte", wrong)
    type_in(browser, "byte", "1")
    assert "total 4000001" in type_in(browser, "letters", "<s>a")
    assert "letters takes 6 at most; it has 7" in type_in(browser, "letters", "aaaaaaa")
    assert "is not among its labels" in type_in(browser, "letters", "a<t>")
    type_in(browser, "letters", "<s>a")
    assert [option.text for option in browser.driver.find_elements("css selector", "[name=tone] option")] == [
        *("high", "low", "mid")
    ]
    assert "total 204000001" in type_in(browser, "tone", "2")
    assert browser.complaints() == []


def test_changed_live_page_fails(browser, live_page, tmp_path):
    text = live_page.read_text("utf-8")
    model, cases = (re.search(rf'"{name}":"([\w+/=]{{99,}})"', text)[1] for name in ("model", "cases"))
    assert text.count(cases) == 1
    (tmp_path / "changed.html").write_text(text.replace(cases, model), encoding="utf-8")
    live, said = replayed(browser, tmp_path / "changed.html")
    assert live == "failed"
    assert "parity/cases.npz in this page is not the file of the manifest" in said


FORMS = [  # the default form in float32 is that of `live_page`
    {"lowering": "fused", "precision": "float16"},
    {"lowering": "adaptive", "precision": "int8"},
]


@pytest.mark.parametrize("options", FORMS, ids=lambda options: " ".join(options.values()))
def test_lowerings_and_precisions_match_in_a_browser(browser, options, tmp_path, monkeypatch_module):
    keras.utils.set_random_seed(3)
    made = export_model(speller(), tmp_path / "bundle", **options)
    live, said = replayed(browser, made.write_report(live=True))
    assert live == "passed", said
    assert browser.complaints() == []


def test_different_golden_outputs_fail_in_a_browser(browser, bundle, tmp_path, monkeypatch_module):
    """The judge in the page can say no: golden outputs that the model does not give."""
    wrong = tmp_path / "bundle"
    shutil.copytree(bundle.path, wrong)
    cases = verify.load_cases(wrong / verify.CASES)
    cases[1].outputs["spelt"][0, 0, 0] += 1e-3
    verify.save_cases(wrong / verify.CASES, cases)
    reseal(wrong, verify.CASES)
    live, said = replayed(browser, load_bundle(wrong).write_report(live=True))
    assert live == "failed"
    assert f"spelt in case {cases[1].name}: is outside the tolerance" in said
    assert "The model is not run here" in browser.find("#form").text
