"""The README and the documents: what they show runs, what they link to exists, the changelog knows the version."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
from site_pages import targets
from tolerances import assert_close, assert_identical

import keras_attn
from keras_attn_export import export_model

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "README.zh.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "SECURITY.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def python_block(index: int) -> str:
    """Return one of the Python blocks of the README."""
    blocks = re.findall(r"^```python\n(.*?)^```", README, flags=re.MULTILINE | re.DOTALL)
    assert len(blocks) == 3, "README.md must have three Python blocks: the lines that matter, the quickstart, a score"
    return str(blocks[index])


def lines_that_matter() -> str:
    return python_block(0)


def quickstart() -> str:
    return python_block(1)


@pytest.fixture(scope="module")
def own_layer() -> Any:
    """Return the class that the README defines."""
    names: dict[str, Any] = {"__name__": "own"}
    exec(python_block(2), names)
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


def test_quickstart_is_short():
    assert len(quickstart().splitlines()) <= 20


def test_quickstart_runs_and_onnx_agrees_and_so_do_the_lines_that_matter(tmp_path):
    """The three lines at the top are run with the inputs and imports of the quickstart."""
    script = f"{quickstart()}\nimport shutil\nshutil.rmtree('bundle')\n{lines_that_matter()}"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    difference, summary = done.stdout.splitlines()[-2:]
    assert float(difference) < 1e-5
    shown = lines_that_matter().partition("# ")[2].partition("...")[0]
    assert len(shown) > 20
    assert summary.startswith(shown)
    assert (tmp_path / "bundle" / "model.onnx").is_file()


# The score of one's own.


def test_the_subclass_is_15_lines():
    assert len(python_block(2).splitlines()) <= 15


def test_the_subclass_gives_the_score_it_says(own_layer, inputs):
    distances = np.abs(inputs["queries"][:, :, None] - inputs["keys"][:, None]).sum(-1)
    weights = np.exp(-distances) / np.exp(-distances).sum(-1, keepdims=True)
    assert_close(own_layer()(**inputs), weights @ inputs["values"])


def test_the_subclass_has_masks_that_do_not_leak(own_layer, inputs):
    layer, valid_lens = own_layer(), np.array([2, 0])
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


def test_the_subclass_has_dropout_that_a_reload_draws_again(own_layer, inputs):
    layer = own_layer(dropout=0.5, seed=1)
    dropped = layer(**inputs, training=True)
    assert np.abs(dropped - layer(**inputs)).max() > 0.1
    assert_identical(own_layer.from_config(layer.get_config())(**inputs, training=True), dropped)


def test_the_subclass_has_normalizers_precompute_and_heads(own_layer, inputs):
    layer = own_layer(normalizer="sparsemax")
    output, weights = layer(**inputs, return_attention_scores=True)
    assert_close(np.asarray(weights).sum(-1), np.ones((2, 3), "float32"))
    assert (np.asarray(weights) == 0).any()
    assert_close(layer(inputs["queries"], layer.precompute(inputs["keys"]), inputs["values"]), output)
    heads = keras_attn.MultiHeadAttention(own_layer(), num_heads=2)
    assert heads(**inputs, return_attention_scores=True)[1].shape == (2, 2, 3, 5)


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


# The documents.


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_exist(document):
    for target in targets(document.read_text(encoding="utf-8")):
        if target.startswith(("https://", "http://", "mailto:")):
            continue
        name, _, anchor = target.partition("#")
        linked = document.parent / name if name else document
        assert linked.exists(), f"{document.name} links to {target}"
        if anchor:
            assert anchor in headings(linked.read_text(encoding="utf-8")), f"{document.name} links to {target}"


def test_commands_in_the_readme_exist():
    named = set(re.findall(r"^(scripts/\w+)", README, flags=re.MULTILINE)) | {".ci/run"}
    assert named >= {"scripts/demo", "scripts/test"}
    for script in named:
        assert (ROOT / script).stat().st_mode & 0o100, f"{script} is not executable"


def test_documented_commands_are_those_of_the_command_line():
    done = subprocess.run(
        [sys.executable, "-m", "keras_attn_export", "--help"], capture_output=True, text=True, timeout=60, check=True
    )
    offered = set(re.findall(r"^    (\w+)  ", done.stdout, flags=re.MULTILINE))
    documented = re.findall(
        r"^\| `keras-attn (\w+)", (ROOT / "docs" / "export.md").read_text("utf-8"), flags=re.MULTILINE
    )
    assert set(documented) == offered
    assert set(re.findall(r"^\.venv/bin/keras-attn (\w+)", README, flags=re.MULTILINE)) <= offered


def test_demo_results_are_shown():
    results = re.search(r"<!-- results: begin.*?-->(.*?)<!-- results: end -->", README, flags=re.DOTALL)
    assert results, "README.md has no block of results"
    assert re.search(r"^.*held-out dates, exact: [\d.]+%", results[1], flags=re.MULTILINE), (
        "the results do not show the accuracy"
    )


def test_newest_changelog_entry_is_the_version():
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    versions = re.findall(r"^## \[(\d[^\]]*)\] - \d{4}-\d{2}-\d{2}$", changelog, flags=re.MULTILINE)
    assert versions, "CHANGELOG.md has no dated version"
    assert versions[0] == keras_attn.__version__
