"""The READMEs and the documents: what they show runs, is the same in both languages, and what they link to exists."""

import contextlib
import io
import re
import shutil
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from command_line_page import subcommands
from site_pages import CODE, DEFINITION, targets
from tolerances import assert_close, assert_identical

import keras_attn
from keras_attn_export import export_model

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
FENCES = re.compile(r"^```(\w*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)
LINES_THAT_MATTER, QUICKSTART, OWN_SCORE = (code for language, code in FENCES.findall(README) if language == "python")


@pytest.fixture(scope="module")
def own_layer() -> Any:
    """Return the class that the README defines."""
    names: dict[str, Any] = {"__name__": "own"}
    exec(OWN_SCORE, names)
    return names["ManhattanAttention"]


@pytest.fixture
def inputs() -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)
    shapes = {"queries": (2, 3, 4), "keys": (2, 5, 4), "values": (2, 5, 6)}
    return {name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}


def headings(text: str) -> set[str]:
    """Return the anchors that a Markdown document's headings make."""
    titles = re.findall(r"^#+ (.+)$", text, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def test_quickstart_runs_and_onnx_agrees_and_so_do_the_lines_that_matter(tmp_path, monkeypatch):
    """The three lines at the top are run with the inputs and imports of the quickstart."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(QUICKSTART, names)
        shutil.rmtree("bundle")
        exec(LINES_THAT_MATTER, names)
    difference, summary = out.getvalue().splitlines()[-2:]
    assert float(difference) < 1e-5
    shown = LINES_THAT_MATTER.partition("# ")[2].partition("...")[0]
    assert len(shown) > 20
    assert summary.startswith(shown)
    assert (tmp_path / "bundle" / "model.onnx").is_file()


def test_the_subclass_gives_the_score_it_says_and_has_masks_that_do_not_leak(own_layer, inputs):
    layer, valid_lens = own_layer(), np.array([2, 0])
    distances = np.abs(inputs["queries"][:, :, None] - inputs["keys"][:, None]).sum(-1)
    weights = np.exp(-distances) / np.exp(-distances).sum(-1, keepdims=True)
    assert_close(layer(**inputs), weights @ inputs["values"])
    output = layer(**inputs, valid_lens=valid_lens)
    poisoned = {name: inputs[name].copy() for name in ("keys", "values")}
    for array in poisoned.values():
        array[0, 2:], array[1] = np.nan, np.inf
    assert_identical(layer(inputs["queries"], **poisoned, valid_lens=valid_lens), output)
    rest = layer(inputs["queries"][:1], inputs["keys"][:1, :2], inputs["values"][:1, :2])
    assert_close(output[0], rest[0])
    assert_identical(output[1], np.zeros((3, 6), "float32"))
    assert_close(layer(**inputs, use_causal_mask=True)[:, 0], inputs["values"][:, 0])
    assert_close(layer(**inputs, window=(0, 0)), inputs["values"][:, :3])


def test_the_subclass_has_what_the_readme_promises(own_layer, inputs):
    layer = own_layer(dropout=0.5, seed=1)
    dropped = layer(**inputs, training=True)
    assert np.abs(dropped - layer(**inputs)).max() > 0.1
    assert_identical(own_layer.from_config(layer.get_config())(**inputs, training=True), dropped)
    layer = own_layer(normalizer="sparsemax")
    output, weights = layer(**inputs, return_attention_scores=True)
    assert_close(np.asarray(weights).sum(-1), np.ones((2, 3), "float32"))
    assert (np.asarray(weights) == 0).any()
    assert_close(layer(inputs["queries"], layer.precompute(inputs["keys"]), inputs["values"]), output)
    heads = keras_attn.MultiHeadAttention(own_layer(), num_heads=2)
    assert heads(**inputs, return_attention_scores=True)[1].shape == (2, 2, 3, 5)


@pytest.mark.smoke
def test_the_subclass_is_saved_and_exported(own_layer, inputs, tmp_path):
    arguments = {name: keras.Input((None, x.shape[-1]), name=name) for name, x in inputs.items()}
    arguments["valid_lens"] = keras.Input((), dtype="int32", name="valid_lens")
    layer = own_layer(name="context")
    model = keras.Model(arguments, layer(**arguments))
    layer.rate.assign(0.3)
    model.save(tmp_path / "own.keras")
    reloaded = keras.saving.load_model(tmp_path / "own.keras")
    bundle = export_model(reloaded, tmp_path / "bundle")
    assert bundle.report.passed
    x = inputs | {"valid_lens": np.array([4, 0], "int32")}
    assert_close(bundle.run(x)["context"], model.predict_on_batch(x))
    assert_identical(bundle.run(x)["context"][1], np.zeros((3, 6), "float32"))


@pytest.mark.product("a case a page")
@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_exist(document):
    text = document.read_text(encoding="utf-8")
    assert set(re.findall(r"\]\[([^\]]+)\]", CODE.sub("", text))) <= {name for name, _ in DEFINITION.findall(text)}
    for target in targets(text):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        linked = document.parent / name if name else document
        assert linked.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in headings(linked.read_text(encoding="utf-8")), f"{document.name} links to {target}"


def test_the_page_on_export_names_every_command():
    export = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `keras-attn (\w+)", export, flags=re.MULTILINE)) == {*subcommands()}


def lines_of(text: str, *, python: bool) -> list[str]:
    """Return the lines of code or commands; comments are in the language of the page, but for what is printed."""
    lines = (line for name, code in FENCES.findall(text) if (name == "python") is python for line in code.splitlines())
    return [bare for line in lines if (bare := re.sub(r"\s*(?:^|\s)# (?!all ).*$", "", line).rstrip())]


def test_the_chinese_readme_has_the_code_and_commands_of_the_english():
    assert lines_of(CHINESE, python=True) == lines_of(README, python=True)
    assert set(lines_of(CHINESE, python=False)) <= set(lines_of(README, python=False))
