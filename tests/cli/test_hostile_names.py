"""A stranger's names and messages steer no terminal: every byte of both streams of every command is looked at."""

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
from keras_attn_export._format.names import CASES, MODEL, Case
from keras_attn_export._format.parity_report import ParityReport, to_parity_rows
from keras_attn_export._format.printing import escape_unprintable

LIE = "all 999 outputs match"
# a line of its own, colours, a bell, C1's escape, letters turned round, letters that are not seen
UNSEEN = "\r\t\x07\x08\x0b\x0c\x1b[31m\x1b]0;title\x07\x7f\x85\x9b2J\xa0\xad\u061c\u200b\u200d\u202e\u2066\u2028\u2029"
HOSTILE = f"x\n{LIE}{UNSEEN}\ufeff\u3164\ufe0f\U000e0001\U000e0100[red]\N{SNOWMAN}é\n{LIE}"
LONE = f"{HOSTILE}\udcff\ud800"  # as JSON and names of files may have it
FILE = os.fsdecode(HOSTILE.replace("/", "").encode() + b"\xff")


def hostile_report(outputs, name=LONE):
    case = Case(name, {}, {output: np.zeros(1, "float32") for output in outputs}, {})
    rows = tuple(to_parity_rows(compare(case, {}, {"relative": 0.0, "absolute": 0.0})))
    coverage = {"cases": 1, "refused": 1, "axes": {name: [2]}, "inputs": {name: {"moves": None}}, "outputs": {}}
    return ParityReport("cpu", rows, refused={name: name}, coverage={**coverage, "small_only": [name, 30 * f" {LIE}"]})


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """Return a bundle that onnxruntime runs, whose every name is hostile."""
    folder = tmp_path_factory.mktemp("hostile") / HOSTILE  # onnxruntime takes no path that is no UTF-8
    (folder / "parity").mkdir(parents=True)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [HOSTILE]) for name in (f"in{HOSTILE}", HOSTILE)]
    node = helper.make_node("Neg", [f"in{HOSTILE}"], [HOSTILE], name=HOSTILE)
    graph = helper.make_graph([node], HOSTILE, values[:1], values[1:])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    (folder / MODEL).write_bytes(model.SerializeToString())
    given = {f"in{HOSTILE}": np.ones(2, "float32")}
    case = Case(HOSTILE, given, {HOSTILE: np.ones(2, "float32")}, {})
    save_cases(folder / CASES, [case])
    (folder / REPORT_FILE).write_text(hostile_report([HOSTILE], HOSTILE).to_json())
    specs = ((Spec(f"in{HOSTILE}", "float32", (HOSTILE,)),), (Spec(HOSTILE, "float32", (HOSTILE,)),))
    layer = dict.fromkeys(("name", "class", "lowering", "precision", "form"), HOSTILE)
    entries = {"layers": [layer], **{key: {HOSTILE: HOSTILE} for key in ("static", "versions", "values")}}
    finalize_bundle(folder, build_manifest(*specs, model=HOSTILE, backend=HOSTILE, precision=HOSTILE, **entries))
    return folder


def streams(encoding):
    return [io.TextIOWrapper(io.BytesIO(), encoding, errors, newline="") for errors in ("strict", "backslashreplace")]


@pytest.fixture(params=["ascii", "utf-8"])
def printed(request, capfd, tmp_path, monkeypatch):
    """Return a function that runs a command and returns what it printed, of which every byte was looked at."""
    monkeypatch.chdir(tmp_path)

    def run(*words, code=0):
        with redirect_stdout(streams(request.param)[0]) as out, redirect_stderr(streams(request.param)[1]) as err:
            assert main([str(word) for word in words]) == code, err.detach().getvalue()
        said = ["".join(plain_lines(stream, request.param)) for stream in (out, err)]
        assert capfd.readouterr() == ("", ""), "something wrote past Python"
        assert said[0 if code == 0 else 1], said
        return said

    return run


def plain_lines(stream, encoding):
    """Return lines of printable letters, none of which is the lie of a name."""
    stream.flush()
    lines = stream.detach().getvalue().decode(encoding).splitlines(keepends=True)
    for line in lines:
        assert line.endswith("\n")
        assert line[:-1].isprintable(), ascii(line)
        assert not line.startswith(LIE), lines
        assert "\u3164" not in line
        assert "\ufe0f" not in line
    return lines


def test_names_in_a_bundle_are_escaped_by_all_commands(hostile, printed, tmp_path):
    out, err = printed("verify", hostile, code=1)
    assert rf"x\n{LIE}\r\t\x07" in out
    assert err.startswith("error: 1 of 1 outputs differ")
    printed("verify", tmp_path / FILE, code=1)
    out, _ = printed("inspect", hostile)
    assert "model         x\\n" in out
    printed("inspect", hostile, "--json")
    np.savez(tmp_path / "good.npz", **{f"in{HOSTILE}": np.ones(2, "float32")})
    np.savez(tmp_path / "bad.npz", **{HOSTILE: np.ones(2, "float32")})
    printed("run", hostile, "--inputs", "good.npz", "--outputs", FILE)
    printed("run", hostile, "--inputs", "bad.npz", "--outputs", "new", code=1)
    printed("report", hostile, "--output", f"{FILE}.html")


def test_names_and_warnings_of_an_export_are_escaped(hostile, printed, monkeypatch):
    def exported(*_, **__):
        warnings.warn(LONE, export.StaticAxisWarning, stacklevel=1)
        return load_bundle(hostile)

    monkeypatch.setattr(export, "export_model", exported)
    printed("export", FILE, FILE, "--report")
    printed("export", FILE, FILE, "--json")
    printed("export", FILE, FILE, "--import", "no\x1bmodule", code=1)


@pytest.mark.parametrize(("kind", "debug"), [(ExportError, ()), (RuntimeError, ("--debug",))])
def test_messages_of_libraries_are_escaped(printed, monkeypatch, kind, debug):
    def fail(_):
        try:
            raise ValueError(LONE)
        except ValueError as error:
            raise kind(f"{LONE}{LONE}") from error

    monkeypatch.setattr(inspect, "load_bundle", fail)
    printed("inspect", FILE, *debug, code=1)


def test_names_are_escaped_by_the_script_in_a_bundle(hostile, monkeypatch):
    monkeypatch.setattr(replay, "__file__", str(hostile / "verify.py"))
    for encoding in ("ascii", "utf-8"):
        with redirect_stdout(streams(encoding)[0]) as out, redirect_stderr(streams(encoding)[1]) as err:
            assert replay.main([]) == 1
        assert rf"x\n{LIE}\r" in "".join(plain_lines(out, encoding))
        assert plain_lines(err, encoding) == []


def test_invisible_characters_are_escaped():
    seen = set(" !0123456789:;[]abcdefghijklmnopqrstuvwxyzJ")
    for each in {*UNSEEN, *"\ud800\udfff\u034f\u115f\u3164\ufe0f\ufeff\ue000\x00\U000e0001\U000e0fff"} - seen:
        shown = escape_unprintable(f"a{each}b")
        assert shown.isascii(), ascii(each)
        assert shown[1] == "\\", ascii(each)
        assert f"a{each}b" == shown.encode().decode("unicode_escape"), ascii(each)


def test_visible_characters_are_not_escaped():
    for text in ("a b", "é ü ß", "模型", "שלום", "C:\\new\\x1b", "☃ 🙂", "e\u0301", ""):
        assert escape_unprintable(text) == text
