"""The page as a file: what its policy allows, what it holds and replaces, what is said where it cannot be written."""

import base64
import gzip
import hashlib
import html
import json
import os
import re
from dataclasses import replace

import numpy as np
import pytest
from bundles import alter_manifest, names, reseal, small_inputs

from keras_attn_export import ExportError, InputError, load_bundle
from keras_attn_export._report import content, runtime, write_report
from keras_attn_export._report.layers import read_layers
from keras_attn_export._report.page import GENERATOR

HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def page(exported, tmp_path_factory):
    return load_bundle(exported).write_report(tmp_path_factory.mktemp("page") / "page.html").read_text("utf-8")


@pytest.fixture
def no_web(monkeypatch, tmp_path):
    """A place where npm has installed nothing."""
    monkeypatch.delenv("NODE_PATH", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def web(no_web, tmp_path):
    """Files of the names that onnxruntime-web has; what runs them is tests/report/test_in_browser.py."""
    folder = tmp_path / "node_modules" / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    (folder / "package.json").write_text('{"version": "1.99.0"}')
    (folder / "dist" / "ort.wasm.bundle.min.mjs").write_text("export const env = {}")
    (folder / "dist" / "ort-wasm-simd-threaded.wasm").write_bytes(b"\0asm")
    return folder


def written(bundle, *place, **options):
    """The text of the page of a bundle."""
    return load_bundle(bundle).write_report(*place, **options).read_text("utf-8")


def data_of(page):
    """What the page's scripts read, which is JSON: NaN is not."""
    text = re.search(r'<script id="data" type="application/json">(.*?)</script>', page)[1]
    return json.loads(text, parse_constant=pytest.fail)


def policy_of(page):
    return html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])


@pytest.mark.slow
def test_policy_allows_only_hashed_scripts_and_styles(page):
    policy = policy_of(page)
    for tag, directive in (("style", "style-src"), ('script type="module"', "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert not re.search("unsafe|blob:|http", policy)


@pytest.mark.slow
def test_page_has_the_hashes_specs_and_result_of_the_bundle(page, exported):
    bundle = load_bundle(exported)
    text, manifest = html.unescape(page), bundle.manifest
    said = [*manifest["sha256"], *manifest["sha256"].values(), bundle.report.summary()[1:]]
    said += ["Matches Keras on these cases.", *manifest["values"].values()]
    for spec in (*manifest["inputs"], *manifest["outputs"]):
        said += [spec["name"], " \N{MULTIPLICATION SIGN} ".join(map(str, spec["shape"]))]
    said += [f"{name} {version}" for name, version in manifest["versions"].items()]
    assert [each for each in said if each not in text] == []
    assert "is the same for all inputs" not in text


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
    assert widths == sorted(widths, reverse=True)
    assert abs(widths[0] - 100 * worst.of_limit) <= 0.06


def test_layers_are_in_a_table(bundle, monkeypatch):
    (layer,) = read_layers(bundle / "model.onnx", ["attention"])
    monkeypatch.setattr(content, "read_layers", lambda *_: [layer, replace(layer, name=HOSTILE, weights=0)])
    page = written(bundle)
    table = page[page.index('<table class="layers">') : page.index('id="proof"')]
    rows = [re.findall(r"<t[dh][^>]*>([^<]*)</t", row) for row in table.split("<tr>")[2:]]
    told = [str(layer.weight_bytes), str(sum(layer.operators.values()))]
    assert rows == [
        [layer.name, "attention", "33", *told],
        [html.escape(HOSTILE, quote=False), "attention", "0", *told],
    ]


def test_names_are_escaped(bundle, tmp_path):
    """In a browser: test_in_browser.py."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    weights_of = dict.fromkeys(manifest["weights_of"], HOSTILE)
    alter_manifest(bundle, model=HOSTILE, layers=[manifest["layers"][0] | {"name": HOSTILE}], weights_of=weights_of)
    page = written(bundle.rename(tmp_path / "a $(id) b"))
    assert len(re.findall("<script", page)) == len(re.findall("</script", page)) == 2
    assert f"<h1>{html.escape(HOSTILE, quote=False)}</h1>" in page
    assert "keras-attn verify 'a $(id) b'" in html.unescape(page)
    assert "python 'a $(id) b'/verify.py" in html.unescape(page)


def test_warnings_are_above_the_content(bundle):
    report = json.loads((bundle / "parity/report.json").read_text("utf-8"))
    report["coverage"]["outputs"]["context"]["varies"] = False
    (bundle / "parity/report.json").write_text(json.dumps(report), encoding="utf-8")
    reseal(bundle, "parity/report.json")
    (warning,) = load_bundle(bundle).report.warnings
    text = html.unescape(written(bundle))
    assert 0 < text.index(warning) < text.index("<main>")


def test_page_is_written_beside_the_bundle_and_replaces_an_earlier_one(bundle, monkeypatch):
    page = load_bundle(bundle).write_report()
    assert page == bundle.with_name("bundle.html")
    page.write_text(page.read_text("utf-8").replace("Matches", "Matchos"), encoding="utf-8")
    monkeypatch.chdir(bundle)
    before = names(bundle)
    assert "Matchos" not in written(".")
    assert names(bundle) == before


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("other.html", r"other\.html is there and is no report; it will not be replaced"),
        ("shortcut", "is there and is not a file"),
        ("missing/page.html", r"There is no folder .*missing to write page\.html to"),
        (300 * "x", r"Cannot write .*: File name too long"),
        *((place, "is in the bundle, which holds only") for place in ("bundle/parity/p", "link/p")),
    ],
)
def test_page_replaces_no_other_file_and_no_part_of_a_bundle(exported, tmp_path, place, said):
    (tmp_path / "other.html").write_text("<p>mine</p>")
    (tmp_path / "report.html").write_text(f'<meta name="generator" content="{GENERATOR}">')
    (tmp_path / "shortcut").symlink_to(tmp_path / "report.html")
    (tmp_path / "bundle").symlink_to(exported)
    (tmp_path / "link").symlink_to(tmp_path / "bundle")
    with pytest.raises(ExportError, match=said):
        load_bundle(tmp_path / "bundle").write_report(tmp_path / place)
    assert (tmp_path / "other.html").read_text() == "<p>mine</p>"
    load_bundle(exported)


def test_inputs_are_shown_first(exported, tmp_path):
    cases = data_of(written(exported, tmp_path / "page.html", inputs=small_inputs(B=1, Tq=2, Tk=3)))["cases"]
    assert [case["name"] for case in cases[:2]] == ["your inputs", "base"]
    assert cases[0]["maps"][0]["of"] == [1, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"inputs": {}}, InputError, "are missing"),
        ({"labels": {"nothing": "abc"}}, InputError, "must name inputs or outputs"),
        ({"live": True}, ExportError, "`npm install --ignore-scripts onnxruntime-web` in this folder"),
    ],
)
def test_wrong_inputs_labels_and_missing_runtime_are_refused(exported, tmp_path, no_web, options, error, said):
    with pytest.raises(error, match=said):
        load_bundle(exported).write_report(tmp_path / "page.html", **options)
    assert os.listdir(tmp_path) == []


def test_manifest_of_an_earlier_version_gives_a_page_without_maps(bundle):
    alter_manifest(bundle, weights_of=..., counts=...)  # as those of earlier versions do
    page = written(bundle)
    assert 'id="maps"' not in page
    assert 'id="proof"' in page


# A live page.


def test_live_page_embeds_model_and_cases(exported, web, tmp_path):
    inputs = small_inputs(B=1, Tq=2, Tk=3)
    inputs["queries"][0, 0, :3] = np.nan, np.inf, -np.inf
    page = written(exported, tmp_path / "page.html", inputs=inputs, live=True)
    data = data_of(page)
    assert data["first"]["queries"][0][0][:3] == ["NaN", "Infinity", "-Infinity"]
    assert data["live"]["manifest"] == json.loads((exported / "manifest.json").read_bytes())
    assert data["live"]["version"] == "1.99.0"
    for name, file in (("model", "model.onnx"), ("cases", "parity/cases.npz")):
        assert gzip.decompress(base64.b64decode(data["live"][name])) == (exported / file).read_bytes()
    script = next(part for part in policy_of(page).split("; ") if part.startswith("script-src"))
    assert re.fullmatch(r"script-src 'sha256-[\w+/=]+' blob: 'wasm-unsafe-eval'", script)


def test_form_has_an_example_only_if_it_is_small(exported, web, tmp_path, monkeypatch):
    def first(**options):
        return data_of(written(exported, tmp_path / "page.html", **options))["first"]

    assert first() == {}
    assert len(first(live=True)["keys"]) == 1
    monkeypatch.setattr(content, "MOST_TYPED", 1)
    assert [name for name, value in first(live=True).items() if value is not None] == ["valid_lens"]


@pytest.mark.parametrize(
    ("package", "said"),
    [
        ('{"version": "1.2.0"}', r"needs onnxruntime 1\.\d+ or newer, and .*onnxruntime-web is 1.2.0"),
        ("{", "is not a whole onnxruntime-web"),
    ],
)
def test_incomplete_or_old_runtime_is_refused(web, package, said):
    (web / "package.json").write_text(package)
    with pytest.raises(ExportError, match=said):
        runtime.web_runtime("1.19")


def test_runtime_is_found_in_parent_folders_and_by_node_path(web, tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert runtime.web_runtime("1.19").version == "1.99.0"
    monkeypatch.chdir("/")
    monkeypatch.setenv("NODE_PATH", os.pathsep.join(["/nowhere", str(tmp_path / "node_modules")]))
    assert runtime.web_runtime("1.19").version == "1.99.0"


def test_live_page_refuses_a_large_model(exported, web, tmp_path, monkeypatch):
    monkeypatch.setattr(write_report, "MOST_LIVE", 100)
    with pytest.raises(ExportError, match="Leave `live` out"):
        load_bundle(exported).write_report(tmp_path / "page.html", live=True)


def test_full_disk_leaves_the_page_that_was_there(exported, tmp_path, monkeypatch):
    opened = load_bundle(exported)
    page = opened.write_report(tmp_path / "page.html")
    before = page.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write_report.Path, "replace", full)
    with pytest.raises(ExportError, match=r"Cannot write .*page.html: No space left on device"):
        opened.write_report(page)
    assert page.read_bytes() == before
    assert os.listdir(tmp_path) == ["page.html"]
