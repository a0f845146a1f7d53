"""Untrusted names and messages: every command escapes them in both of its output streams."""

import io
import os
import warnings
from contextlib import redirect_stderr, redirect_stdout

import numpy as np
import pytest
from handwritten_bundles import build_manifest
from onnx import TensorProto, helper

from keras_attn_export import ExportError, load_bundle
from keras_attn_export._bundle.bundle_files import finalize_bundle
from keras_attn_export._bundle.untrusted_input import REPORT_FILE
from keras_attn_export._cli import export, inspect
from keras_attn_export._cli.main import main
from keras_attn_export._format import replay
from keras_attn_export._format.case_writing import save_cases
from keras_attn_export._format.compare import compare
from keras_attn_export._format.manifest import Spec
from keras_attn_export._format.names import CASES_FILE, MODEL, Case
from keras_attn_export._format.parity_report import ParityReport, to_parity_rows
from keras_attn_export._format.printing import escape_unprintable

FORGED_LINE = "all 999 outputs match"
# control codes and invisible characters: line breaks, colours, a bell, the escape of C1, changes of direction
CODES = "\r\t\x07\x08\x0b\x0c\x1b[31m\x1b]0;title\x07\x7f\x85\x9b2J\xa0\xad\u061c\u200b\u200d\u202e\u2066\u2028\u2029"
HOSTILE = f"x\n{FORGED_LINE}{CODES}\ufeff\u3164\ufe0f\U000e0001\U000e0100[red]\N{SNOWMAN}é\n{FORGED_LINE}"
LONE_SURROGATES = f"{HOSTILE}\udcff\ud800"  # JSON and file names may contain lone surrogates
HOSTILE_FILE = os.fsdecode(HOSTILE.replace("/", "").encode() + b"\xff")


def build_hostile_report(outputs, name=LONE_SURROGATES):
    case = Case(name, {}, {output: np.zeros(1, "float32") for output in outputs}, {})
    rows = tuple(to_parity_rows(compare(case, {}, {"relative": 0.0, "absolute": 0.0})))
    coverage = {"cases": 1, "refused": 1, "axes": {name: [2]}, "inputs": {name: {"moves": None}}, "outputs": {}}
    coverage["small_only"] = [name, 30 * f" {FORGED_LINE}"]
    return ParityReport("cpu", rows, refused={name: name}, coverage=coverage)


@pytest.fixture(scope="module")
def hostile_bundle(tmp_path_factory):
    """A bundle that onnxruntime runs, with a hostile name in every field."""
    folder = tmp_path_factory.mktemp("hostile") / HOSTILE  # onnxruntime accepts only paths in UTF-8
    (folder / "parity").mkdir(parents=True)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [HOSTILE]) for name in (f"in{HOSTILE}", HOSTILE)]
    node = helper.make_node("Neg", [f"in{HOSTILE}"], [HOSTILE], name=HOSTILE)
    graph = helper.make_graph([node], HOSTILE, values[:1], values[1:])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    (folder / MODEL).write_bytes(model.SerializeToString())
    inputs = {f"in{HOSTILE}": np.ones(2, "float32")}
    save_cases(folder / CASES_FILE, [Case(HOSTILE, inputs, {HOSTILE: np.ones(2, "float32")}, {})])
    (folder / REPORT_FILE).write_text(build_hostile_report([HOSTILE], HOSTILE).to_json())
    specs = ((Spec(f"in{HOSTILE}", "float32", (HOSTILE,)),), (Spec(HOSTILE, "float32", (HOSTILE,)),))
    layer = dict.fromkeys(("name", "class", "lowering", "precision", "form"), HOSTILE)
    entries = {"layers": [layer], **{key: {HOSTILE: HOSTILE} for key in ("static", "versions", "values")}}
    finalize_bundle(folder, build_manifest(*specs, model=HOSTILE, backend=HOSTILE, precision=HOSTILE, **entries))
    return folder


def open_streams(encoding):
    return [io.TextIOWrapper(io.BytesIO(), encoding, errors, newline="") for errors in ("strict", "backslashreplace")]


@pytest.fixture(params=["ascii", "utf-8"])
def run_checked(request, capfd, tmp_path, monkeypatch):
    """A function that runs a command, checks every character that it prints, and returns both streams."""
    monkeypatch.chdir(tmp_path)
    encoding = request.param

    def run(*words, code=0):
        with redirect_stdout(open_streams(encoding)[0]) as out, redirect_stderr(open_streams(encoding)[1]) as err:
            assert main([str(word) for word in words]) == code, err.detach().getvalue()
        texts = ["".join(read_checked_lines(stream, encoding)) for stream in (out, err)]
        assert capfd.readouterr() == ("", ""), "native code wrote to a stream"
        assert texts[0 if code == 0 else 1], texts
        return texts

    return run


def read_checked_lines(stream, encoding):
    """Return the lines of a stream; assert that all are printable, and that none begins with the forged line."""
    stream.flush()
    lines = stream.detach().getvalue().decode(encoding).splitlines(keepends=True)
    for line in lines:
        assert line.endswith("\n")
        assert line[:-1].isprintable(), ascii(line)
        assert not line.startswith(FORGED_LINE), lines
        assert not {"\u3164", "\ufe0f"} & set(line)
    return lines


def test_names_in_a_bundle_are_escaped_by_all_commands(hostile_bundle, run_checked, tmp_path):
    out, err = run_checked("verify", hostile_bundle, code=1)
    assert rf"x\n{FORGED_LINE}\r\t\x07" in out
    assert err.startswith("error: 1 of 1 outputs differ")
    run_checked("verify", tmp_path / HOSTILE_FILE, code=1)
    out, _ = run_checked("inspect", hostile_bundle)
    assert "model         x\\n" in out
    run_checked("inspect", hostile_bundle, "--json")
    np.savez(tmp_path / "good.npz", **{f"in{HOSTILE}": np.ones(2, "float32")})
    np.savez(tmp_path / "bad.npz", **{HOSTILE: np.ones(2, "float32")})
    run_checked("run", hostile_bundle, "--inputs", "good.npz", "--outputs", HOSTILE_FILE)
    run_checked("run", hostile_bundle, "--inputs", "bad.npz", "--outputs", "new", code=1)
    run_checked("report", hostile_bundle, "--output", f"{HOSTILE_FILE}.html")


def test_names_and_warnings_of_an_export_are_escaped(hostile_bundle, run_checked, monkeypatch):
    def return_hostile_bundle(*_, **__):
        warnings.warn(LONE_SURROGATES, export.StaticAxisWarning, stacklevel=1)
        return load_bundle(hostile_bundle)

    monkeypatch.setattr(export, "export_model", return_hostile_bundle)
    run_checked("export", HOSTILE_FILE, HOSTILE_FILE, "--report")
    run_checked("export", HOSTILE_FILE, HOSTILE_FILE, "--json")
    run_checked("export", HOSTILE_FILE, HOSTILE_FILE, "--import", "no\x1bmodule", code=1)


@pytest.mark.parametrize(("error_type", "debug"), [(ExportError, ()), (RuntimeError, ("--debug",))])
def test_messages_of_libraries_are_escaped(run_checked, monkeypatch, error_type, debug):
    def fail(_):
        try:
            raise ValueError(LONE_SURROGATES)
        except ValueError as error:
            raise error_type(f"{LONE_SURROGATES}{LONE_SURROGATES}") from error

    monkeypatch.setattr(inspect, "load_bundle", fail)
    run_checked("inspect", HOSTILE_FILE, *debug, code=1)


def test_names_are_escaped_by_the_script_in_a_bundle(hostile_bundle, monkeypatch):
    monkeypatch.setattr(replay, "__file__", str(hostile_bundle / "verify.py"))
    for encoding in ("ascii", "utf-8"):
        with redirect_stdout(open_streams(encoding)[0]) as out, redirect_stderr(open_streams(encoding)[1]) as err:
            assert replay.main([]) == 1
        assert rf"x\n{FORGED_LINE}\r" in "".join(read_checked_lines(out, encoding))
        assert read_checked_lines(err, encoding) == []


def test_invisible_characters_are_escaped():
    letters = set(" !0123456789:;[]abcdefghijklmnopqrstuvwxyzJ")
    for character in {*CODES, *"\ud800\udfff\u034f\u115f\u3164\ufe0f\ufeff\ue000\x00\U000e0001\U000e0fff"} - letters:
        escaped = escape_unprintable(f"a{character}b")
        assert escaped.isascii(), ascii(character)
        assert escaped[1] == "\\", ascii(character)
        assert f"a{character}b" == escaped.encode().decode("unicode_escape"), ascii(character)


def test_visible_characters_are_not_escaped():
    for text in ("a b", "é ü ß", "模型", "שלום", "C:\\new\\x1b", "☃ 🙂", "e\u0301", ""):
        assert escape_unprintable(text) == text
