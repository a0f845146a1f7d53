"""Data and requirements of a live page: the limits of the replay, the fields of the form, onnxruntime-web."""

import base64
import gzip
import json
import os
import re

import numpy as np
import pytest
from handwritten_bundles import build_manifest
from small_bundle import draw_small_inputs

from keras_attn_export import ExportError, load_bundle
from keras_attn_export._format.cases import load_cases
from keras_attn_export._format.compare import compare
from keras_attn_export._format.manifest import Spec
from keras_attn_export._format.names import CASES_FILE, Case
from keras_attn_export._report import live_data, write_report
from keras_attn_export._report.live_data import build_form_fields, encode_cases
from keras_attn_export._report.web_runtime import find_web_runtime


@pytest.fixture
def no_web(monkeypatch, tmp_path):
    """A working directory without npm packages."""
    monkeypatch.delenv("NODE_PATH", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def web(no_web, tmp_path):
    """A folder with the file names of onnxruntime-web; test_live_page.py runs the real package."""
    folder = tmp_path / "node_modules" / "onnxruntime-web"
    (folder / "dist").mkdir(parents=True)
    (folder / "package.json").write_text('{"version": "1.99.0"}')
    (folder / "dist" / "ort.wasm.bundle.min.mjs").write_text("export const env = {}")
    (folder / "dist" / "ort-wasm-simd-threaded.wasm").write_bytes(b"\0asm")
    return folder


def decode_array(tensor):
    content = gzip.decompress(base64.b64decode(tensor["data"]))
    return np.frombuffer(content, tensor["dtype"]).reshape(tensor["shape"])


@pytest.mark.parametrize("tolerance", [{"relative": 1e-5, "absolute": 1e-6}, {"relative": 0, "absolute": 0.0}], ids=str)
@pytest.mark.parametrize("has_rounding", [False, True])
def test_limit_of_each_element_equals_the_limit_of_verify(tolerance, has_rounding):
    expected = np.array([[1e6, 0.5, 0.001], [-1e9, -1e9, 1e-3]])
    rounding = {"y": np.array([[100, 1e-9, 1e-9], [0, 4, 0]])} if has_rounding else {}
    case = Case("base", {}, {"y": expected}, rounding)
    ((output,),) = [data["outputs"] for data in encode_cases([case], tolerance)]
    for index, limit in np.ndenumerate(decode_array(output["limits"])):
        actual = expected.copy()
        actual[index] += 0.9 * limit or 1e-6
        (row,) = compare(case, {"y": actual}, tolerance)
        assert row["of_limit"] == pytest.approx(0.9 if limit else np.inf, rel=1e-4)


def test_limits_of_integers_mark_ties():
    outputs = {"y": np.array([1, 2, 3]), "z": np.array([1, 2])}
    (data,) = encode_cases([Case("base", {}, outputs, {"y": np.array([False, True, True])})], {})
    y, z = data["outputs"]
    assert decode_array(y["limits"]).tolist() == [False, True, True]
    assert decode_array(z["limits"]).tolist() == [False, False]


SPECS = [
    Spec("tokens", "int32", ("batch", "time")),
    Spec("lens", "int32", ("batch",)),
    Spec("x", "float32", ("batch", 2)),
    Spec("table", "float32", (2, 2)),
]


def build_fields(labels):
    inputs = {
        "tokens": np.array([[1, 2, 0], [2, 2, 2]], "int32"),
        "lens": np.array([2, 3], "int32"),
        "x": np.array([[0.1, np.nan], [np.inf, 1]], "float32"),
        "table": np.ones((2, 2), "float32"),
    }
    manifest = build_manifest(SPECS, [], counts={"lens": "time"})
    records = build_form_fields(manifest, labels, Case("base", inputs, {}), {"tokens": "the cat"})
    return {record["name"]: record for record in records}


def test_fields_begin_with_the_first_example():
    fields = build_fields({})
    assert fields["tokens"]["first"] == [[1, 2, 0]]
    assert (fields["lens"]["first"], fields["lens"]["counts"]) == ([2], "time")
    assert fields["x"]["first"] == [[0.1, "NaN"]]
    assert fields["table"]["first"] == [[1, 1], [1, 1]]
    labelled_fields = build_fields({"tokens": ["", "the", "cat"]})
    assert labelled_fields["tokens"]["text"] == "the cat"
    assert labelled_fields["lens"]["first"] is None  # the page computes it from the text


def test_large_arrays_are_fixed(monkeypatch):
    monkeypatch.setattr(live_data, "MAX_FORM_ELEMENTS", 2)
    records = build_fields({})
    assert [name for name, record in records.items() if "fixed" in record] == ["tokens", "table"]
    np.testing.assert_array_equal(decode_array(records["tokens"]["fixed"]), [[1, 2, 0]])


@pytest.mark.slow
def test_live_page_embeds_model_and_cases(exported, web, tmp_path):
    page = load_bundle(exported).write_report(tmp_path / "page.html", inputs=draw_small_inputs(B=1), live=True)
    text = page.read_text("utf-8")
    data = json.loads(re.search(r'<script id="data" type="application/json">(.*?)</script>', text)[1])
    assert data["live"]["version"] == "1.99.0"
    assert gzip.decompress(base64.b64decode(data["live"]["model"])) == (exported / "model.onnx").read_bytes()
    first, golden = data["cases"][0], load_cases(exported / CASES_FILE)[0]
    np.testing.assert_array_equal(decode_array(first["outputs"][0]), golden.outputs["context"])
    assert re.search(r"script-src &#39;sha256-[\w+/=]+&#39; blob: &#39;wasm-unsafe-eval&#39;;", text)


def test_missing_runtime_is_refused(exported, no_web, tmp_path):
    with pytest.raises(ExportError, match="`npm install --ignore-scripts onnxruntime-web` in this folder"):
        load_bundle(exported).write_report(tmp_path / "page.html", live=True)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("package", "message"),
    [
        ('{"version": "1.2.0"}', r"needs onnxruntime 1\.\d+ or newer, and .*onnxruntime-web is 1.2.0"),
        ("{", "is not a complete onnxruntime-web"),
    ],
)
def test_incomplete_or_old_runtime_is_refused(web, package, message):
    (web / "package.json").write_text(package)
    with pytest.raises(ExportError, match=message):
        find_web_runtime("1.19")


def test_runtime_in_parent_folders_and_node_path_is_used(web, tmp_path, monkeypatch):
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert find_web_runtime("1.19").version == "1.99.0"
    monkeypatch.chdir("/")
    monkeypatch.setenv("NODE_PATH", os.pathsep.join(["/nowhere", str(tmp_path / "node_modules")]))
    assert find_web_runtime("1.19").version == "1.99.0"


def test_live_page_refuses_a_large_model(exported, web, tmp_path, monkeypatch):
    monkeypatch.setattr(write_report, "MAX_LIVE_BYTES", 100)
    with pytest.raises(ExportError, match="Leave `live` out"):
        load_bundle(exported).write_report(tmp_path / "page.html", live=True)
