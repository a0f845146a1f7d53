"""The page as a file: what its policy allows, what it holds and replaces, what is said where it cannot be written."""

import base64
import gzip
import hashlib
import html
import json
import os
import re
from html.parser import HTMLParser

import numpy as np
import pytest
from bundles import alter_manifest, flip_byte, names, reseal, small_inputs

from keras_attn_export import BundleError, ExportError, InputError, ProviderError, load_bundle
from keras_attn_export._report import content, runtime, write_report

pytest_plugins = ("bundle_fixtures",)


@pytest.fixture(scope="module")
def page(exported, tmp_path_factory):
    return load_bundle(exported).write_report(tmp_path_factory.mktemp("page") / "page.html").read_text("utf-8")


@pytest.fixture(autouse=True)
def untimed(monkeypatch):
    """Pages without times, which take a second each; `page` has some."""
    monkeypatch.setattr(content, "layer_times", lambda *_: {})


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


class Loaded(HTMLParser):
    """Every attribute that makes a browser fetch something, or run it."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            external = name in ("src", "href", "srcset", "data", "action") and not value.startswith("#")
            if external or name == "style" or name.startswith("on"):
                self.found.append((tag, name, value))


def test_nothing_is_loaded_and_nothing_runs_that_is_not_hashed(page):
    assert Loaded(page).found == []
    policy = html.unescape(re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1])
    for tag, directive in (("style", "style-src"), ('script type="module"', "script-src")):
        (text,) = re.findall(rf"<{tag}>(.*?)</{tag.split()[0]}>", page, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert "blob:" not in policy
    assert "http" not in policy


def test_a_live_page_may_compile_and_import_its_own_blob(bundle, web):
    policy = re.search(
        r'Content-Security-Policy" content="([^"]*)"', load_bundle(bundle).write_report(live=True).read_text("utf-8")
    )[1]
    script = next(part for part in html.unescape(policy).split("; ") if part.startswith("script-src"))
    assert re.fullmatch(r"script-src 'sha256-[\w+/=]+' blob: 'wasm-unsafe-eval'", script)


def test_it_says_what_the_bundle_says(page, exported):
    bundle = load_bundle(exported)
    text = html.unescape(page)
    for spec in (*bundle.manifest["inputs"], *bundle.manifest["outputs"]):
        assert spec["name"] in text
        assert " \N{MULTIPLICATION SIGN} ".join(map(str, spec["shape"])) in text
    for name, version in bundle.manifest["versions"].items():
        assert f"{name} {version}" in text
    for name, digest in bundle.manifest["sha256"].items():
        assert name in text
        assert digest in text
    assert bundle.report.summary()[1:] in text
    assert text.count('<tr><th scope="row">lengths zero</th>') == 2 * len(bundle.manifest["outputs"])
    assert "Proven equal to Keras." in text


def test_names_are_text(bundle):
    """In a browser: test_in_browser.py."""
    manifest = json.loads((bundle / "manifest.json").read_text("utf-8"))
    hostile = "</script><script>alert(1)</script>"
    weights_of = dict.fromkeys(manifest["weights_of"], hostile)
    alter_manifest(bundle, model=hostile, layers=[manifest["layers"][0] | {"name": hostile}], weights_of=weights_of)
    page = load_bundle(bundle).write_report().read_text("utf-8")
    assert len(re.findall("<script", page)) == len(re.findall("</script", page)) == 2
    assert html.escape(hostile, quote=False) in page


def test_the_worst_comparison_stands_first(page, exported):
    report = load_bundle(exported).report
    worst = max((*report.rows, *report.saved_model_rows), key=lambda row: row.of_limit)
    proof = page[page.index('id="proof"') :]
    first = html.unescape(proof[proof.index("<tbody>") : proof.index("</tr>", proof.index("<tbody>"))])
    assert f'<th scope="row">{worst.case}</th><td>{worst.name}</td>' in first
    shares = [float(share) for share in re.findall(r"</svg>([\d.e-]+)</td>", proof)]
    assert len(shares) == len(report.rows) + len(report.saved_model_rows)
    assert shares == sorted(shares, reverse=True)


def test_warnings_stand_above_all_else(bundle):
    report = json.loads((bundle / "parity/report.json").read_text("utf-8"))
    report["coverage"]["outputs"]["context"]["varies"] = False
    (bundle / "parity/report.json").write_text(json.dumps(report), encoding="utf-8")
    reseal(bundle, "parity/report.json")
    opened = load_bundle(bundle)
    (warning,) = opened.report.warnings
    text = html.unescape(opened.write_report().read_text("utf-8"))
    assert 0 < text.index(warning) < text.index("<main>")


def test_it_is_put_beside_the_bundle(bundle, monkeypatch):
    assert load_bundle(bundle).write_report() == bundle.with_name("bundle.html")
    monkeypatch.chdir(bundle)
    before = names(bundle)
    assert load_bundle(".").write_report().name == "bundle.html"
    assert names(bundle) == before


def test_an_earlier_report_is_replaced_and_nothing_else(bundle, tmp_path):
    opened = load_bundle(bundle)
    page = opened.write_report(tmp_path / "page.html")
    page.write_text(page.read_text("utf-8").replace("Proven", "Provan"), encoding="utf-8")
    assert "Provan" not in opened.write_report(page).read_text("utf-8")
    (tmp_path / "other.html").write_text("<p>mine</p>")
    with pytest.raises(ExportError, match=r"other\.html is there and is no report; it will not be replaced"):
        opened.write_report(tmp_path / "other.html")
    assert (tmp_path / "other.html").read_text() == "<p>mine</p>"
    (tmp_path / "folder").mkdir()
    with pytest.raises(ExportError, match="is there and is not a file"):
        opened.write_report(tmp_path / "folder")
    with pytest.raises(ExportError, match=r"There is no folder .*missing to write page\.html to"):
        opened.write_report(tmp_path / "missing" / "page.html")


def test_what_cannot_be_written_leaves_what_was_there(bundle, tmp_path, monkeypatch):
    opened = load_bundle(bundle)
    page = opened.write_report(tmp_path / "page.html")
    before = page.read_bytes()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(write_report.Path, "replace", full)
    with pytest.raises(ExportError, match=r"Cannot write .*page.html: No space left on device"):
        opened.write_report(page)
    assert page.read_bytes() == before
    assert [name for name in os.listdir(tmp_path) if "partial" in name] == []


def test_a_bundle_that_changed_meanwhile_is_not_shown(bundle):
    opened = load_bundle(bundle)
    flip_byte(bundle / "model.onnx")
    with pytest.raises(BundleError, match="is not the file that was exported"):
        opened.write_report()


def test_inputs_are_shown_first(bundle):
    opened = load_bundle(bundle)
    page = opened.write_report(inputs=small_inputs(B=1, Tq=2, Tk=3)).read_text("utf-8")
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page)[1])
    assert data["cases"][0]["name"] == "your inputs"
    assert data["cases"][0]["maps"][0]["of"] == [1, 1, 2, 3]
    assert data["cases"][1]["name"] == "base"


def test_inputs_and_labels_that_do_not_fit(bundle):
    opened = load_bundle(bundle)
    with pytest.raises(InputError, match="are missing"):
        opened.write_report(inputs={})
    with pytest.raises(InputError, match="must name inputs or outputs"):
        opened.write_report(labels={"nothing": "abc"})
    assert not bundle.with_name("bundle.html").exists()


def test_a_bundle_without_a_word_on_weights_has_no_maps(bundle):
    """As those of earlier versions are."""
    alter_manifest(bundle, weights_of=..., counts=...)
    page = load_bundle(bundle).write_report().read_text("utf-8")
    assert 'id="maps"' not in page
    assert 'id="proof"' in page


def test_a_live_page_takes_the_files_of_the_bundle_along(bundle, web):
    page = load_bundle(bundle).write_report(live=True).read_text("utf-8")
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page)[1])["live"]
    assert data["manifest"].encode() == (bundle / "manifest.json").read_bytes()
    assert data["version"] == "1.99.0"
    for name, file in (("model", "model.onnx"), ("cases", "parity/cases.npz")):
        assert gzip.decompress(base64.b64decode(data[name])) == (bundle / file).read_bytes()


def test_a_live_page_without_its_runtime(bundle, no_web):
    with pytest.raises(ExportError, match="`npm install --ignore-scripts onnxruntime-web` in this folder"):
        load_bundle(bundle).write_report(live=True)
    assert not bundle.with_name("bundle.html").exists()


def test_a_runtime_that_is_not_whole_or_too_old(bundle, web):
    (web / "package.json").write_text('{"version": "1.2.0"}')
    with pytest.raises(ExportError, match=r"needs onnxruntime 1\.\d+ or newer, and .*onnxruntime-web is 1.2.0"):
        load_bundle(bundle).write_report(live=True)
    for broken in ("{", "[]", '{"version": "one"}'):
        (web / "package.json").write_text(broken)
        with pytest.raises(ExportError, match="is not a whole onnxruntime-web"):
            load_bundle(bundle).write_report(live=True)


def test_a_runtime_is_found_above_and_by_node_path(web, tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert runtime.web_runtime("1.19").version == "1.99.0"
    monkeypatch.chdir("/")
    monkeypatch.setenv("NODE_PATH", os.pathsep.join(["/nowhere", str(tmp_path / "node_modules")]))
    assert runtime.web_runtime("1.19").version == "1.99.0"


def test_a_model_that_is_too_large_to_take_along(bundle, web, monkeypatch):
    monkeypatch.setattr(write_report, "MOST_LIVE", 100)
    with pytest.raises(ExportError, match="Leave `live` out"):
        load_bundle(bundle).write_report(live=True)


def test_a_page_without_onnxruntime_has_no_times(bundle, monkeypatch):
    def absent(*_):
        raise ProviderError("onnxruntime is not installed.")

    monkeypatch.setattr(content, "layer_times", absent)
    page = html.unescape(load_bundle(bundle).write_report().read_text("utf-8"))
    assert "Times were not measured: onnxruntime is not installed." in page


def test_a_page_in_the_bundle_would_spoil_it(bundle, tmp_path):
    opened = load_bundle(bundle)
    (tmp_path / "link").symlink_to(bundle)
    for place in (bundle / "page.html", bundle / "parity" / "page.html", tmp_path / "link" / "page.html"):
        with pytest.raises(ExportError, match="is in the bundle, which holds only what its manifest lists"):
            opened.write_report(place)
    load_bundle(bundle)


def test_a_link_is_not_replaced(bundle, tmp_path):
    (tmp_path / "page.html").symlink_to(tmp_path / "nothing")
    with pytest.raises(ExportError, match="is there and is not a file"):
        load_bundle(bundle).write_report(tmp_path / "page.html")
    with pytest.raises(ExportError, match=r"Cannot write .*: File name too long"):
        load_bundle(bundle).write_report(tmp_path / (300 * "x"))


def test_inputs_that_are_no_numbers_are_json(bundle, web):
    inputs = small_inputs(B=1, Tq=2, Tk=3)
    inputs["queries"][0, 0, :3] = np.nan, np.inf, -np.inf
    page = load_bundle(bundle).write_report(inputs=inputs, live=True).read_text("utf-8")
    data = json.loads(
        re.search(r'<script id="data" type="application/json">(.*?)</script>', page)[1], parse_constant=pytest.fail
    )
    assert data["first"]["queries"][0][0][:3] == ["NaN", "Infinity", "-Infinity"]


def test_an_example_is_only_in_a_page_with_a_form_and_only_where_it_is_small(bundle, web, monkeypatch):
    def first(**options):
        page = load_bundle(bundle).write_report(**options).read_text("utf-8")
        return json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', page)[1])["first"]

    assert first() == {}
    assert len(first(live=True)["keys"]) == 1
    monkeypatch.setattr(content, "MOST_TYPED", 1)
    assert [name for name, value in first(live=True).items() if value is not None] == ["valid_lens"]


def test_a_name_that_is_no_unicode_is_shown_with_a_question_mark(bundle):
    alter_manifest(bundle, model="a\ud800b")
    assert "<h1>a?b</h1>" in load_bundle(bundle).write_report().read_text("utf-8")


def test_commands_are_quoted(bundle, tmp_path):
    odd = bundle.rename(tmp_path / "a $(id) b")
    page = html.unescape(load_bundle(odd).write_report().read_text("utf-8"))
    assert "keras-attn verify 'a $(id) b'" in page
    assert "python 'a $(id) b'/verify.py" in page


def test_a_manifest_that_lacks_what_is_shown(bundle):
    alter_manifest(bundle, layers=..., versions=...)
    with pytest.raises(BundleError, match="says nothing of layers, versions"):
        load_bundle(bundle).write_report()
