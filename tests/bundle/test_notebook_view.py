"""HTML view of a bundle in notebooks. It shows the parity check, inputs, outputs, layers and a call of the bundle."""

from html.parser import HTMLParser

from handwritten_bundles import build_manifest, write_onnx_bundle

from keras_attn_export import load_bundle
from keras_attn_export._bundle.notebook_view import MAX_CELL_LINES, MAX_TEXT_LENGTH, render_notebook_view
from keras_attn_export._format.manifest import Spec
from keras_attn_export._format.parity_report import ParityReport, ParityRow

GREEN, RED, ORANGE = "#2e9e4f", "#d9453b", "#d98a1f"
TAGS = {"div", "b", "table", "tr", "th", "td", "br", "code"}
LAYER = {"name": "attend", "class": "AdditiveAttention", "lowering": "adaptive", "precision": "float32"}


class FragmentReader(HTMLParser):
    """Parser of HTML. It fails if a tag is not in `TAGS`, is not closed, or has an attribute other than `style`."""

    def __init__(self, html):
        super().__init__()
        self.text, self.open_tags = [], []
        self.feed(html)
        assert self.open_tags == []

    def handle_starttag(self, tag, attributes):
        assert tag in TAGS
        assert {name for name, _ in attributes} <= {"style"}
        self.open_tags += [tag] * (tag != "br")
        self.text += ["\n"] * (tag in ("br", "tr"))

    def handle_endtag(self, tag):
        assert tag == self.open_tags.pop()

    def handle_data(self, text):
        self.text.append(text + " ")


def render_view(tmp_path, *, passed=True, case_coverage=None, **entries):
    measures = {"max_abs": 2e-6, "max_rel": 1e-6, "of_limit": 0.25, "ties": 0, "tolerance": {}}
    row = ParityRow(name="y", case="base", shape=(2, 3), dtype="float32", **measures, passed=passed)
    fields = {"inputs": (Spec("x", "float32", ("batch", 3)),), "outputs": (Spec("y", "int32", ()),), **entries}
    report = ParityReport("openvino", (row,), coverage=case_coverage)
    html = render_notebook_view(tmp_path, build_manifest(**fields), report)
    return html, " ".join("".join(FragmentReader(html).text).split())


def test_view_shows_result_specs_layers_and_file(tmp_path):
    (tmp_path / "model.onnx").write_bytes(b"x" * 1200)
    (tmp_path / "model.onnx.data").write_bytes(b"x" * 300)
    html, text = render_view(tmp_path, layers=[LAYER, {**LAYER, "name": "again", "form": "in blocks"}], opset=24)
    assert "drawn , checked against Keras on openvino: all 1 outputs match over 1 cases" in text
    assert "0.25 of its limit" in text
    for line in (
        "inputs x float32 [batch, 3]",
        "outputs y int32 []",
        "attention attend AdditiveAttention: adaptive",
        "again AdditiveAttention: in blocks",
        "file 1.5 kB: float32, opset 24, onnxruntime 1.18 or newer",
    ):
        assert line in text
    assert f"load_bundle({str(tmp_path)!r}).run({{'x': ...}})" in text
    assert "warnings" not in text
    assert GREEN in html


def test_view_shows_failure_and_warnings(tmp_path):
    html, text = render_view(tmp_path, passed=False)
    assert "does not match Keras on openvino: 1 of 1 outputs differ" in text
    assert RED in html
    # `small_only` lists the layers that run only in their small form in all golden cases
    case_coverage = {"cases": 1, "refused": 0, "axes": {}, "inputs": {}, "outputs": {}, "small_only": ["attend"]}
    html, text = render_view(tmp_path, case_coverage=case_coverage)
    assert "warnings Only 1 case" in text
    assert ORANGE in html


HOSTILE_NAME = "<script>alert(1)</script>\"'&\u202e\x1b[31m"


def test_names_are_escaped(tmp_path):
    specs = (Spec(HOSTILE_NAME, "float32", (HOSTILE_NAME, 1)),)
    layer = {name: HOSTILE_NAME for name in LAYER}
    html, text = render_view(
        tmp_path, model=HOSTILE_NAME, inputs=specs, outputs=specs, layers=[layer], precision=HOSTILE_NAME
    )
    assert text.count("<script>alert(1)</script>") == 10
    assert "\u202e" not in html
    assert "\x1b" not in html


def test_view_limits_lines_and_texts(tmp_path):
    specs = tuple(Spec(f"x{number}", "float32", ()) for number in range(MAX_CELL_LINES + 30))
    _, text = render_view(tmp_path, inputs=specs, layers=[{**LAYER, "form": "f" * 9999}])
    assert "and 30 more" in text
    assert f"x{MAX_CELL_LINES - 1} float32" in text
    assert f"x{MAX_CELL_LINES} " not in text
    assert f"{'f' * MAX_TEXT_LENGTH} ..." in text
    assert "f" * (MAX_TEXT_LENGTH + 1) not in text


def test_bundle_with_a_report_has_a_view_in_notebooks(tmp_path):
    inputs, outputs = {"x": ("float32", ["n"])}, {"y": ("float32", ["n"])}
    bundle = load_bundle(write_onnx_bundle(tmp_path / "b", "y = Abs(x)", inputs, outputs, model="a\u202eb\n"))
    path = str(tmp_path / "b")
    assert repr(bundle) == (
        f"Bundle({path!r}, inputs=1, outputs=1, model='a\\u202eb\\n', precision='float32', opset=17)"
    )
    assert bundle._repr_html_() is None  # if it returns None, notebooks show the `repr`
    bundle.__dict__["report"] = ParityReport("cpu", ())
    assert "nothing was compared" in bundle._repr_html_()
