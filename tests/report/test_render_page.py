"""Report page as a file: its policy, its content, and the files that it may replace."""

import base64
import hashlib
import html
import json
import os
import re

import numpy as np
import pytest
from golden_bundles import write_bundle
from small_bundle import alter_manifest, draw_small_inputs, list_names, refresh_checksum

from keras_attn_export import Bundle, ExportError, InputError, load_bundle
from keras_attn_export._format.names import Case

HOSTILE = "</script><script>alert(1)</script>"
METHODS = ["keys", "values", "items", "get", "pop", "copy", "update"]  # of a dict


@pytest.fixture(scope="module")
def page(exported, tmp_path_factory):
    return load_bundle(exported).write_report(tmp_path_factory.mktemp("page") / "page.html").read_text("utf-8")


def write_page(bundle, *path, **options):
    """Write the report of a bundle or its folder, and return the page."""
    loaded_bundle = bundle if isinstance(bundle, Bundle) else load_bundle(bundle)
    return loaded_bundle.write_report(*path, **options).read_text("utf-8")


def extract_text(page):
    """Return the visible text of a page, with single blanks."""
    body = page[page.index("<body>") : page.index('<script id="data"')]
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", body)).split())


def extract_policy(page):
    return html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])


@pytest.mark.slow
def test_policy_allows_only_hashed_scripts_and_styles(page):
    policy = extract_policy(page)
    for tag, directive in (("style", "style-src"), ('script type="module"', "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert not re.search("unsafe|blob:|http", policy)


@pytest.mark.slow
def test_page_has_the_hashes_specs_and_result_of_the_bundle(page, exported):
    bundle = load_bundle(exported)
    text, manifest = extract_text(page), bundle.manifest
    parts = [*manifest["sha256"], *manifest["sha256"].values(), bundle.report.summary()[1:]]
    parts += ["Matches Keras on these cases.", "number of positions of keys_length", "attention AdditiveAttention"]
    for spec in (*manifest["inputs"], *manifest["outputs"]):
        parts += [spec["name"], " \N{MULTIPLICATION SIGN} ".join(map(str, spec["shape"]))]
    parts += [f"{name} {version}" for name, version in manifest["versions"].items()]
    assert [part for part in parts if part not in text] == []


@pytest.mark.slow
def test_worst_comparison_is_first(page, exported):
    report = load_bundle(exported).report
    worst = max((*report.rows, *report.saved_model_rows), key=lambda row: row.of_limit)
    proof = page[page.index('id="proof"') :]
    first = html.unescape(proof[proof.index("<tbody>") : proof.index("</tr>", proof.index("<tbody>"))])
    assert f'<th scope="row">{worst.case}</th><td>{worst.name}</td>' in first
    assert {f"{worst.max_abs:.1e}", f"{worst.max_rel:.1e}"} <= set(re.findall(r">([^<>]+)</td>", first))
    shares = [float(share) for share in re.findall(r"</svg>([\d.e-]+)</td>", proof)]
    assert len(shares) == len(report.rows) + len(report.saved_model_rows)
    assert shares == sorted(shares, reverse=True)
    widths = [float(width) for width in re.findall(r'class="fill"[^>]* width="([\d.]+)"', proof)]
    assert abs(widths[0] - 100 * worst.of_limit) <= 0.06


# Examples.

SPECIES = ["setosa", "versicolor", "virginica"]


def write_classifier_page(folder, rows, node="species = Softmax(x)", golden=(0.2, 0.3, 0.5)):
    """Return the visible text of a page with rows of a user; `golden` is the output of the golden case."""
    ports = {"x": ("float32", ["batch", 3])}, {"species": ("float32", ["batch", 3])}
    arrays = [{name: np.array([values], "float32")} for name, values in (("x", [0, 0, 0]), ("species", golden))]
    bundle = write_bundle(folder / "bundle", node, *ports, [Case("base", *arrays)])
    return extract_text(write_page(bundle, inputs={"x": np.array(rows, "float32")}, labels={"species": SPECIES}))


def test_inputs_and_predictions_of_a_model_without_attention_are_shown(tmp_path):
    text = write_classifier_page(tmp_path, [[0, 2, 1], [3.25, 0, 1]])
    assert (
        "Your inputs, and the predictions of the ONNX model. Example 0 x 0 2 1 species versicolor probability" in text
    )
    assert "versicolor 0.6652 virginica 0.2447 setosa 0.09003" in text
    assert "Example 1 x 3.25 0 1 species setosa probability setosa 0.874" in text


def test_logits_are_called_scores_and_nan_has_no_label(tmp_path):
    text = write_classifier_page(tmp_path, [[0.25, 2, 1], [np.nan, 2, 1]], "species = Identity(x)", golden=(-1, 0, 3))
    assert "species versicolor score versicolor 2 virginica 1 setosa 0.25" in text
    assert "probability" not in text
    assert "SavedModel" not in text  # the bundle has none
    assert "x NaN 2 1 species NaN The model" in text


def test_outputs_beyond_one_for_the_inputs_of_a_user_are_scores(tmp_path):
    assert "probability" not in write_classifier_page(tmp_path, [[100, 5, -3]], "species = Identity(x)")


def test_further_examples_are_counted(tmp_path):
    text = write_classifier_page(tmp_path, np.zeros((20, 3)))
    assert "The first 16 of 20 examples." in text
    assert "Example 15" in text
    assert "Example 16" not in text


@pytest.mark.parametrize("kind", ["inputs", "outputs", "axes"])
def test_names_of_dict_methods_are_shown_as_names(tmp_path, kind):
    ports = {name: ("float32", ["batch", name if kind == "axes" else 2]) for name in METHODS}
    other_ports = {f"other_{name}": spec for name, spec in ports.items()}
    inputs, outputs = (other_ports, ports) if kind == "outputs" else (ports, other_ports)
    nodes = " ".join(f"{output} = Identity({name})" for name, output in zip(inputs, outputs, strict=True))
    arrays = [dict.fromkeys(names, np.zeros((1, 2), "float32")) for names in (inputs, outputs)]
    page = write_page(write_bundle(tmp_path / "bundle", nodes, inputs, outputs, [Case("base", *arrays)]))
    assert not re.search("built-in|method|<function|object at", html.unescape(page[: page.index("<script")]))
    remarks = re.findall(r"<tr><th scope=\"row\">(\w+)</th><td>(?:in|out)put</td>.*?<td>([^<]*)</td></tr>", page)
    assert remarks == [(name, "") for name in (*inputs, *outputs)]


def test_inputs_and_labels_of_attention_are_shown(exported, tmp_path):
    labels = {"valid_lens": ["none", "one", "two"]}
    page = write_page(exported, tmp_path / "page.html", inputs=draw_small_inputs(B=1, Tq=2, Tk=3), labels=labels)
    assert "valid_lens one" in extract_text(page)
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page)[1])
    assert [[attention_map["of"] for attention_map in maps] for maps in data["maps"]] == [[[1, 2, 3]]]
    assert 'data-example="0" open' in page


# Names and warnings.


def test_names_are_escaped(bundle, tmp_path):
    """test_static_page.py repeats this test in a browser."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    weights_of = dict.fromkeys(manifest["weights_of"], HOSTILE)
    alter_manifest(bundle, model=HOSTILE, layers=[manifest["layers"][0] | {"name": HOSTILE}], weights_of=weights_of)
    page = write_page(bundle.rename(tmp_path / "a $(id) b"))
    assert len(re.findall("<script", page)) == len(re.findall("</script", page)) == 2
    assert f"<h1>{html.escape(HOSTILE, quote=False)}</h1>" in page
    assert "keras-attn verify 'a $(id) b'" in html.unescape(page)
    assert "python 'a $(id) b'/verify.py" in html.unescape(page)


def test_warnings_are_above_the_content(bundle):
    report = json.loads((bundle / "parity/report.json").read_text("utf-8"))
    report["coverage"]["outputs"]["context"]["varies"] = False
    (bundle / "parity/report.json").write_text(json.dumps(report), encoding="utf-8")
    refresh_checksum(bundle, "parity/report.json")
    (warning,) = load_bundle(bundle).report.warnings
    text = html.unescape(write_page(bundle))
    assert 0 < text.index(warning.replace("`context`", "<code>context</code>")) < text.index("<main>")


# The file.


def test_page_is_written_next_to_the_bundle_and_replaces_an_earlier_one(bundle, monkeypatch):
    page = load_bundle(bundle).write_report()
    assert page == bundle.with_name("bundle.html")
    page.write_text(page.read_text("utf-8").replace("Matches", "Matchos"), encoding="utf-8")
    monkeypatch.chdir(bundle)
    before = list_names(bundle)
    assert "Matchos" not in write_page(".")
    assert list_names(bundle) == before


def test_page_replaces_no_other_file(exported, tmp_path):
    """More output paths, of all commands: tests/cli/test_targets.py."""
    (tmp_path / "other.html").write_text("<p>mine</p>")
    with pytest.raises(ExportError, match=r"other\.html exists and is no report; it will not be replaced"):
        load_bundle(exported).write_report(tmp_path / "other.html")
    assert (tmp_path / "other.html").read_text() == "<p>mine</p>"


@pytest.mark.parametrize(
    ("options", "message"),
    [({"inputs": {}}, "are missing"), ({"labels": {"nothing": "abc"}}, "must name inputs or outputs")],
)
def test_wrong_inputs_and_labels_are_refused(exported, tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        load_bundle(exported).write_report(tmp_path / "page.html", **options)
    assert os.listdir(tmp_path) == []
