"""Reports written with `live=True`, in a browser: replay of the golden cases, input form, answers of the model."""

import re

import numpy as np
import pytest
from golden_bundles import write_bundle
from node import WEB
from speller import LABELS, VOCABULARY, export_speller

from keras_attn_export._format.compare import compare
from keras_attn_export._format.names import Case

pytestmark = [pytest.mark.nightly, pytest.mark.needs("node", "selenium")]

NAN, INF = np.nan, np.inf


@pytest.fixture(autouse=True)
def web_packages(monkeypatch):
    monkeypatch.setenv("NODE_PATH", str(WEB / "node_modules"))


def open_live(browser, bundle, **options):
    """Open the live page of a bundle, and return the verdict of its replay."""
    page = bundle.path.with_name("live.html")
    browser.open(bundle.write_report(page, live=True, **options.pop("report", {})), **options)
    browser.wait("['passed', 'failed'].includes(document.documentElement.dataset.live)")
    if browser.run("return document.documentElement.dataset.live") == "passed":
        browser.wait("document.querySelector('#answer').dataset.request")
    return browser.find("#replay").text


def enter(browser, name, value):
    """Enter a value into a field, and return the text of the answer."""
    request = browser.run("return document.querySelector('#answer').dataset.request")
    script = """
        const field = [...document.querySelectorAll('#form [name]')].find(({ name }) => name === arguments[0])
        field[field.type === 'checkbox' ? 'checked' : 'value'] = arguments[1]
        field.dispatchEvent(new Event('input', { bubbles: true }))
    """
    browser.run(script, name, value)
    browser.wait(f"document.querySelector('#answer').dataset.request !== '{request}'")
    return read_answer(browser)


def read_answer(browser):
    return " ".join(browser.find("#answer").text.split())


# The replay.


@pytest.mark.parametrize(("size", "scheme"), [((1280, 900), "light"), ((390, 900), "dark")], ids=["desk", "phone"])
def test_live_page_replays_its_cases(browser, speller_bundle, size, scheme):
    verdict = open_live(browser, speller_bundle, size=size, scheme=scheme, report={"labels": LABELS})
    count, cases = len(speller_bundle.report.rows), speller_bundle.manifest["parity"]["cases"]
    assert f"all {count} outputs match over {cases} cases in your browser" in verdict
    rows = browser.run("return [...document.querySelectorAll('#replay-rows tr')].map((row) => row.innerText)")
    assert len(rows) == cases
    assert all("\tmatches\t" in row for row in rows)
    assert browser.measure_overflow() <= 0
    assert browser.list_console_messages() == []
    assert browser.list_accessibility_violations() == []


@pytest.mark.parametrize("options", [{"lowering": "fused", "precision": "float16"}, {"precision": "int8"}], ids=str)
def test_lower_precisions_match_in_a_browser(browser, options, tmp_path):
    verdict = open_live(browser, export_speller(tmp_path / "bundle", **options))
    assert verdict.startswith("Replayed: "), verdict
    assert "outputs match" in verdict
    assert browser.run("return document.documentElement.dataset.live") == "passed"


DTYPES = {"f": "float32", "d": "float64", "h": "float16", "i": "int64", "b": "bool", "s": "string"}
GOLDEN = {"f": [1, NAN, INF], "d": [1e300, 0, -INF], "h": [60000, 1e-7, 1], "i": [2**62, 0, -1], "b": [1, 0, 1]}
GOLDEN["s"] = ["a", "長さ", ""]
# For each case, the arrays in which the outputs of the model differ from `GOLDEN`. The graph returns its inputs, so
# these arrays are also the inputs of the case.
CHANGES = {
    "equal": {},
    "within the limit": {"f": [1.000009, NAN, INF]},
    "beyond the limit": {"f": [1.00002, NAN, INF], "d": [1e300, -1e-5, -INF]},
    "number for NaN": {"f": [1, 1, INF]},
    "other infinity": {"d": [1e300, 0, INF]},
    "half": {"h": [-60000, 0, 1]},
    "minus zero": {"d": [1e300, -0.0, -INF]},
    "wide integer": {"i": [2**62 + 1, 0, -1]},
    "tie": {"i": [2**62, 0, 5]},
    "boolean": {"b": [1, 1, 1]},
    "string": {"s": ["a", "長い", "𝄞"]},
}


def build_arrays(values):
    return {name: np.array(values[name], object if dtype == "string" else dtype) for name, dtype in DTYPES.items()}


def test_verdicts_equal_those_of_verify(browser, tmp_path):
    """The graph returns its inputs, so the inputs of a case determine the outputs of the model."""
    nodes = " ".join(f"{name}_out = Identity({name})" for name in DTYPES)
    specs = [{name + suffix: (dtype, [3]) for name, dtype in DTYPES.items()} for suffix in ("", "_out")]
    golden = {f"{name}_out": array for name, array in build_arrays(GOLDEN).items()}
    is_tie = {"i_out": np.array([False, False, True])}
    cases = [Case(name, build_arrays({**GOLDEN, **change}), golden, is_tie) for name, change in CHANGES.items()]
    tolerance = {"relative": 0.0, "absolute": 1e-5}
    bundle = write_bundle(tmp_path / "b", nodes, *specs, cases, parity={"tolerance": tolerance, "cases": len(cases)})
    verdict = open_live(browser, bundle)
    assert verdict.endswith("f_out in case beyond the limit is outside the tolerance, and 6 more.")
    replay_rows = browser.run(
        "return [...document.querySelectorAll('#replay-rows tr')]"
        ".map((row) => [...row.children].map((cell) => cell.textContent))"
    )
    for case, (name, verdict, difference, limit_share) in zip(cases, replay_rows, strict=True):
        rows = compare(case, {f"{key}_out": array for key, array in case.inputs.items()}, tolerance)
        problems = "; ".join(f"{row['name']} {row['problem']}" for row in rows if row["problem"])
        assert (name, verdict) == (case.name, problems or "matches")
        assert float(difference) == pytest.approx(max(row["max_abs"] for row in rows), rel=0.06), name
        assert float(limit_share) == pytest.approx(max(row["of_limit"] for row in rows), rel=0.06), name
    assert "The model is not run here" in browser.find("#form").text


def test_failed_form_is_reported(browser, speller_bundle, tmp_path):
    page = speller_bundle.write_report(tmp_path / "page.html", live=True)
    page.write_text(page.read_text("utf-8").replace('"inputs":[', '"inputs":[null,', 1), encoding="utf-8")
    browser.open(page)
    browser.wait("document.documentElement.dataset.live === 'failed'")
    assert browser.find("#replay").text.startswith("The form failed: ")
    assert browser.find("#form").text == ""


# The form.


def test_form_runs_the_model_on_typed_text(browser, speller_bundle):
    open_live(browser, speller_bundle, report={"labels": LABELS})
    assert browser.find("#form [name=letters]").get_attribute("value") == "abcd"  # the first sample, unpadded
    for lens in ("", "2"):
        enter(browser, "lens", lens)
        enter(browser, "letters", "gab?")
        inputs = {"letters": np.array([[8, 2, 3, 1]], "int32"), "lens": np.array([int(lens or 4)], "int32")}
        outputs = speller_bundle.run(inputs)
        best = np.argsort(-outputs["spelt"][0], axis=-1)[:, 0]
        assert browser.find("#answer .answer").text == "".join(VOCABULARY[id_] for id_ in best)
        assert browser.run("return document.querySelectorAll('#answer canvas').length") == 3
    browser.run("document.querySelectorAll('#answer details')[0].open = true")
    browser.wait("document.querySelectorAll('#answer .map-section td').length")
    assert "exactly 0" in browser.find("#answer .map-section").text  # masked by the typed length
    assert enter(browser, "letters", "") == "letters is empty"
    assert browser.list_console_messages() == []


def test_form_has_a_field_for_each_kind_of_input(browser, tmp_path):
    """Inputs have names of JavaScript methods, such as "append". Fields of the form must not replace these methods."""
    inputs = {
        "constructor": ("uint8", ["batch"]),
        "append": ("bool", ["batch"]),
        "keys": ("int32", ["batch"]),
        "values": ("float32", ["batch", 2]),
        "addEventListener": ("string", ["batch"]),
        "__proto__": ("int64", [1]),
    }
    outputs = {f"{name}_out": spec for name, spec in inputs.items()}
    values = {"constructor": [7], "append": [True], "keys": [2], "values": [[0.1, NAN]], "addEventListener": ["a b"]}
    arrays = {
        name: np.array(value, object if name == "addEventListener" else inputs[name][0])
        for name, value in values.items()
    }
    arrays["__proto__"] = np.array([2**40])
    nodes = " ".join(f"{name}_out = Identity({name})" for name in inputs)
    case = Case("base", arrays, {f"{name}_out": array for name, array in arrays.items()})
    bundle = write_bundle(tmp_path / "b", nodes, inputs, outputs, [case])
    open_live(browser, bundle, report={"labels": {"keys": ["low", "mid", "high"], "keys_out": ["low", "mid", "high"]}})
    answer = read_answer(browser)
    for text in (
        "constructor_out 7",
        "append_out true",
        "keys_out high",
        "values_out 0.1 NaN",
        "addEventListener_out a b",
    ):
        assert text in answer
    assert f"__proto___out {2**40}" in answer
    assert "constructor_out 255" in enter(browser, "constructor", "255")
    for number in ("256", "-1", "1.5"):
        assert enter(browser, "constructor", number) == f"constructor must hold uint8. Received: {number}."
    assert enter(browser, "constructor", "") == "constructor is empty"
    assert browser.find("#form [name=constructor]").get_attribute("placeholder") == ""
    enter(browser, "constructor", "1")
    error = enter(browser, "__proto__", str(2**53))
    assert error == f"__proto__ must hold int64 of a magnitude below 2^53. Received: {2**53}."
    assert f"__proto___out {1 - 2**53}" in enter(browser, "__proto__", str(1 - 2**53))
    assert "append_out false" in enter(browser, "append", False)
    assert "keys_out low" in enter(browser, "keys", "0")
    assert "addEventListener_out <b>漢字</b>" in enter(browser, "addEventListener", "<b>漢字</b>")
    assert "values_out -Infinity 2" in enter(browser, "values", '[["-Infinity", 2]]')
    assert browser.list_console_messages() == []


def test_text_of_a_fixed_length_is_padded(browser, tmp_path):
    specs = {"text": ("int32", ["batch", 4])}, {"copy": ("int32", ["batch", 4])}
    labels = {name: ["<", "a", "<pad>", "<s>", "b"] for name in ("text", "copy")}
    ids = np.array([[3, 1, 4, 2]], "int32")
    bundle = write_bundle(tmp_path / "b", "copy = Identity(text)", *specs, [Case("base", {"text": ids}, {"copy": ids})])
    open_live(browser, bundle, report={"labels": labels})
    assert browser.find("#form [name=text]").get_attribute("value") == "<s>ab<pad>"
    assert enter(browser, "text", "<s>a") == "copy <s>a<pad><pad>"
    assert enter(browser, "text", "<a") == "copy <a<pad><pad>"
    assert enter(browser, "text", "ababa") == "text takes 4 at most; it has 5"
    assert enter(browser, "text", "a<t>") == "text: “t” is not among its labels"


SPECIES = ["setosa", "versicolor", "virginica"]


def test_predictions_have_probabilities_and_nan_has_no_label(browser, tmp_path):
    specs = {"x": ("float32", ["batch", 3])}, dict.fromkeys(("p", "logits"), ("float32", ["batch", 3]))
    golden = {"p": np.array([[0.2, 0.3, 0.5]], "float32"), "logits": np.array([[-1, 0, 3]], "float32")}
    case = Case("base", {"x": np.log(golden["p"])}, {"p": golden["p"], "logits": np.log(golden["p"])})
    nodes = "p = Softmax(x) logits = Identity(x)"
    parity = {"tolerance": {"relative": 0.0, "absolute": 1e-5}, "cases": 1}
    bundle = write_bundle(tmp_path / "b", nodes, *specs, [case], parity=parity)
    labels = dict.fromkeys(("p", "logits"), SPECIES)
    open_live(browser, bundle, report={"labels": labels})
    assert read_answer(browser).startswith("p virginica probability virginica 0.5 versicolor 0.3 setosa 0.2 logits")
    answer = enter(browser, "x", "[[3.25, 0, 1]]")
    assert answer.startswith(
        "p setosa probability setosa 0.874 virginica 0.09212 versicolor 0.03389 logits setosa score"
    )
    assert answer.endswith("setosa 3.25 virginica 1 versicolor 0")
    assert enter(browser, "x", '[["NaN", 0, 1]]') == "p NaN logits NaN"


def test_answer_equals_the_example_of_the_static_page(browser, tmp_path):
    """The model has labelled ids and scores without a batch axis, a grid of strings, and weights with labelled axes."""
    inputs = {"ids": ("int32", [5]), "grid": ("string", ["batch", 2, 2]), "s": ("float32", [2, 3])}
    inputs["w"] = ("float32", ["batch", 2, 5])
    outputs = {"grid_out": inputs["grid"], "scores": inputs["s"], "weights": inputs["w"]}
    nodes = "grid_out = Identity(grid) scores = Identity(s) weights = Identity(w)"
    values = {"grid": np.array([[["a", "b"], ["c", "d"]]], object), "s": np.eye(3, dtype="float32")[1:]}
    values["w"] = np.full((1, 2, 5), 0.2, "float32")
    golden = dict(zip(outputs, values.values(), strict=True))
    case = Case("base", {"ids": np.array([0, 1, 2, 3, 9], "int32"), **values}, golden)
    bundle = write_bundle(tmp_path / "b", nodes, inputs, outputs, [case], weights_of={"weights": "attend"})
    open_live(browser, bundle, report={"labels": {"ids": ["zero", "one", "two", "three"], "scores": SPECIES}})
    browser.wait("document.querySelector('.example canvas')")
    parts = ".prediction", ".map .queries span", ".map .keys span"
    script = (
        "return [...document.querySelectorAll(arguments[0])].map((part) => part.textContent.replaceAll(/\\s/g, ''))"
    )
    example, answer = ([browser.run(script, f"{root} {part}") for part in parts] for root in (".example", "#answer"))
    assert example == answer
    assert answer[1:] == [["versicolor", "virginica"], ["zero", "one", "two", "three", "9"]]
    assert answer[0][1] == "grid_out2\N{MULTIPLICATION SIGN}2:abcd"


INVALID_VALUES = {
    "[[0, 9]]": "onnxruntime cannot run these inputs: Non-zero status code.*indices element out of data bounds",
    "[0]": "onnxruntime cannot run these inputs: Invalid rank for input: ids",
    "[[0], [0, 1]]": "^ids: its lists differ in length$",
    "[[0.5]]": r"^ids must hold int64 of a magnitude below 2\^53\. Received: 0\.5\.$",
    "[[": "^ids must be nested lists of numbers, as in JSON$",
}


def test_invalid_inputs_are_refused_in_a_sentence(browser, tmp_path):
    specs = {"ids": ("int64", ["batch", "time"])}, {"y": ("float32", ["batch", "time"])}
    nodes = "table = Constant <value = float[3] {1, 2, 3}> () y = Gather(table, ids)"
    case = Case("base", {"ids": np.array([[0, 1]])}, {"y": np.array([[1, 2]], "float32")})
    open_live(browser, write_bundle(tmp_path / "b", nodes, *specs, [case]))
    for value, message in INVALID_VALUES.items():
        error = enter(browser, "ids", value)
        assert re.search(message, error), error
        assert browser.find("#answer .error")
        assert enter(browser, "ids", "[[2, 0]]") == "y 3 1"
