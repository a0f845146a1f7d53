"""The `keras-attn` command: exit codes, what is printed where, and what is left on disk."""

import importlib
import json
import os
import re
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import keras
import numpy as np
import onnxruntime
import pytest
from bundles import (
    alter_golden_outputs,
    assert_one_line,
    flip_byte,
    python,
    read_manifest,
    reseal,
    small_inputs,
)
from tolerances import assert_identical

import keras_attn_export
from keras_attn_export import ParityReport, load_bundle
from keras_attn_export._cli import inspect, run
from keras_attn_export._cli.describe import describe
from keras_attn_export._cli.main import main

pytest_plugins = ("bundle_fixtures",)

COMMANDS = ("export", "verify", "sign", "run", "inspect", "bench")


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def samples(tmp_path):
    """Return a file of inputs of the small model."""
    np.savez(tmp_path / "samples.npz", **small_inputs())
    return tmp_path / "samples.npz"


@pytest.fixture
def call(capfd):
    """Return a function that runs `main` here and gives the exit code and what was written to both streams."""

    def run(*arguments):
        code = main([str(argument) for argument in arguments])
        return code, *capfd.readouterr()

    return run


# ------------------------------------------------------------------- usage, help


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["bundle"],
        ["--json"],
        *([command] for command in COMMANDS),
        ["export", "model.keras"],
        ["export", "model.keras", "bundle", "--opset", "high"],
        ["export", "model.keras", "bundle", "--lowering", "magic"],
        ["export", "model.keras", "bundle", "--precision", "float8"],
        ["verify", "bundle", "--provider", "tpu"],
        ["verify", "bundle", "other"],
        ["run", "bundle", "--inputs", "x.npz"],
        ["run", "bundle", "--outputs", "y.npz"],
        ["inspect", "bundle", "--provider", "cpu"],
        ["inspect", "bundle", "--trace"],
        ["bench", "bundle", "--threads", "all"],
        ["bench", "bundle", "other.onnx"],
    ],
    ids=" ".join,
)
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("usage: keras-attn")
    assert "Traceback" not in printed.err


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert printed.out.startswith(" ".join(["usage: keras-attn", *command]))
    for expected in ["--debug"] if command else [*COMMANDS, "Exit codes"]:
        assert expected in printed.out


def test_both_ways_to_start_it(tmp_path):
    script = Path(sys.executable).with_name("keras-attn")
    module = python("-m", "keras_attn_export", "--help", cwd=tmp_path)
    installed = subprocess.run([script, "--help"], capture_output=True, text=True, timeout=60, check=False)
    assert (module.returncode, module.stderr) == (installed.returncode, installed.stderr) == (0, "")
    assert module.stdout == installed.stdout
    assert python("-m", "keras_attn_export", "verify", cwd=tmp_path).returncode == 2


def test_only_export_loads_tensorflow_and_keras(exported, samples, tmp_path):
    heavy = ("tensorflow", "keras", "keras_attn", "onnx", "tf2onnx", "rich")
    code = f"""
import sys
from keras_attn_export._cli.main import main
commands = "verify B --trace|run B --inputs X --outputs Y|inspect B|bench B --seconds 0.01 --threads 1|--help"
for command in map(str.split, commands.split("|")):
    paths = {{"B": {str(exported)!r}, "X": {str(samples)!r}, "Y": {str(tmp_path / "outputs.npz")!r}}}
    try:
        code = main([paths.get(word, word) for word in command])
    except SystemExit as exit:
        code = exit.code
    print("LOADED", command[0], code, *sorted(set(sys.modules) & set({heavy!r})))
"""
    done = python("-c", code, cwd=tmp_path)
    loaded = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert loaded == [f"LOADED {name} 0" for name in ("verify", "run", "inspect", "bench", "--help")], done.stderr
    assert done.stderr == ""


# ------------------------------------------------------------------------ export

OWN_LAYERS = """
import keras

@keras.saving.register_keras_serializable("own")
class Registered(keras.layers.Layer):
    def call(self, x):
        return 2 * x

class Plain(keras.layers.Layer):
    def call(self, x):
        return x + 1
"""


@pytest.fixture
def own_model(tmp_path, monkeypatch):
    """Write a module with layers, and a model of them as a file, and forget both."""
    (tmp_path / "own_layers.py").write_text(OWN_LAYERS)
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])  # as an installed command has it
    before = dict(keras.saving.get_custom_objects())
    sys.path.insert(0, str(tmp_path))
    own = importlib.import_module("own_layers")
    x = keras.Input((3,), name="x")
    keras.Model(x, own.Plain()(own.Registered()(x))).save(tmp_path / "model.keras")

    def forget():
        sys.modules.pop("own_layers", None)
        keras.saving.get_custom_objects().clear()
        keras.saving.get_custom_objects().update(before)

    forget()
    sys.path.remove(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    yield "model.keras"
    forget()


def test_classes_of_a_module_that_is_imported_first(own_model, call):
    code, _, err = call("export", own_model, "bundle")
    assert code == 1
    assert_one_line(err)
    assert "does not know the class `Registered` of module `own_layers`" in err
    code, _, err = call("export", own_model, "bundle", "--import", "no_such_module")
    assert code == 1
    assert_one_line(err)
    assert err.startswith("error: Cannot import `no_such_module` (ModuleNotFoundError: ")
    code, out, err = call("export", own_model, "bundle", "--import", "own_layers", "--strict")
    assert code == 0, err
    assert "it matches Keras" in out


# ------------------------------------------------------------------------ verify


def test_verify_prints_a_table(exported, call):
    code, out, err = call("verify", exported)
    assert (code, err) == (0, "")
    header, *rows, last, largest = out.splitlines()
    assert header.split()[:2] == ["case", "output"]
    count = 2 * read_manifest(exported)["parity"]["cases"]
    assert len(rows) == count
    assert all(row.endswith(" ok") for row in rows)
    assert last == f"all {count} comparisons match over {count // 2} cases on CPUExecutionProvider"
    assert largest.startswith("largest difference ")


def test_verify_json(exported, call):
    code, out, err = call("verify", exported, "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["passed"] is True
    assert ParityReport.from_json(out).passed


def test_warnings_are_shown(bundle, call):
    file = bundle / "parity" / "report.json"
    report = json.loads(file.read_text())
    file.write_text(json.dumps(report | {"coverage": report["coverage"] | {"axes": {"queries_length": [6]}}}))
    reseal(bundle, "parity/report.json")
    said = "Axis `queries_length` is called dynamic, but only size 6 was compared."
    code, out, err = call("verify", bundle)
    assert (code, err) == (0, "")
    assert out.endswith(f"\nwarning: {said}\n")
    assert json.loads(call("verify", bundle, "--json")[1])["warnings"] == [said]
    assert re.search(r"^warning +Axis `queries_length` is called", call("inspect", bundle)[1], flags=re.MULTILINE)


def verify_rows(call, bundle):
    return json.loads(call("verify", bundle, "--json")[1])["rows"]


def test_verify_shows_a_mismatch(bundle, call):
    alter_golden_outputs(bundle)
    code, out, err = call("verify", bundle)
    assert code == 1
    (case,) = (row["case"] for row in verify_rows(call, bundle) if not row["passed"])
    said = f"`context` in case `{case}` is outside the tolerance. Add --trace to see where it begins."
    assert re.fullmatch(rf"error: 1 of \d+ outputs differ from Keras's: {re.escape(said)}\n", err)
    assert [line.split()[-5:] for line in out.splitlines() if "FAILED:" in line] == [
        ["FAILED:", "is", "outside", "the", "tolerance"]
    ]
    code, out, err = call("verify", bundle, "--json")
    assert code == 1
    assert_one_line(err)
    assert json.loads(out)["passed"] is False


@pytest.mark.parametrize(
    "command",
    [["verify", "--json"], ["inspect", "--json"], ["run", "--inputs", "none.npz", "--outputs", "out.npz"], ["bench"]],
)
def test_a_bundle_that_cannot_be_read(bundle, call, command):
    for break_it, said in (
        (lambda: flip_byte(bundle / "model.onnx"), "model.onnx is not the file that was exported"),
        ((bundle / "model.onnx").unlink, "is incomplete: model.onnx is missing"),
        ((bundle / "manifest.json").unlink, "No bundle at"),
    ):
        break_it()
        code, out, err = call(*command, bundle)
        assert (code, out) == (1, "")
        assert_one_line(err)
        assert said in err
        assert "unexpected" not in err


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="shows what an onnxruntime without CUDA says; .ci/run installs [cpu]",
)
@pytest.mark.parametrize("command", ["verify", "run", "export"])
def test_a_provider_that_is_absent(exported, model_file, samples, tmp_path, call, command):
    arguments = {
        "verify": [exported],
        "run": [exported, "--inputs", samples, "--outputs", tmp_path / "out.npz"],
        "export": [model_file, tmp_path / "new"],
    }
    code, out, err = call(command, *arguments[command], "--provider", "cuda")
    assert (code, out) == (1, "")
    assert_one_line(err)
    assert "keras-attn[gpu]" in err
    assert names(tmp_path) == ["samples.npz"]


# ----------------------------------------------------------------------- inspect


def test_inspect(exported, call):
    code, out, err = call("inspect", exported)
    assert (code, err) == (0, "")
    manifest = read_manifest(exported)
    for line in (
        rf"bundle +{exported}",
        r"size +\d+\.\d kB: ONNX \d+\.\d kB, SavedModel \d+\.\d kB",
        "model +small",
        r"inputs +queries: float32 \[batch, queries_length, 4\]",
        r" +valid_lens: int32 \[batch\]",
        r" +weights: float32 \[batch, queries_length, keys_length\]",
        "axes +batch, queries_length, keys_length",
        r"attention +attention \(AdditiveAttention\): portable, float32",
        rf"opset +18, needs onnxruntime {manifest['lowest_onnxruntime']} or newer",
        rf"made with +keras-attn {manifest['versions']['keras-attn']}, tensorflow .*",
        r"parity +all \d+ comparisons match over \d+ cases",
        r" +largest difference .* absolute, .* relative, .* of its",
        r" +allowed: what rounding does, on cpu",
        r"verify\.py +the one of the installed keras-attn",
    ):
        assert re.search(f"^{line}$", out, flags=re.MULTILINE), f"{line} is not in {out}"


def test_inspect_json(exported, call):
    code, out, err = call("inspect", exported, "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["bundle"] == str(exported)
    assert content["manifest"] == read_manifest(exported)
    assert content["report"]["passed"] is True


def test_the_code_in_a_bundle_is_not_run_and_told_from_ours(bundle, samples, tmp_path, call):
    """Each command works on a bundle whose `verify.py` is someone's own, as on any other."""
    (bundle / "verify.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    reseal(bundle, "verify.py")
    for command in (["verify"], ["run", "--inputs", samples, "--outputs", tmp_path / "out.npz"], ["inspect"]):
        code, out, err = call(*command, bundle)
        assert (code, err) == (0, "")
    assert re.search(r"^verify\.py +not the one of the installed keras-attn", out, flags=re.MULTILINE)
    assert names(tmp_path) == ["bundle", "out.npz", "samples.npz"]


def test_help_says_that_a_trace_runs_code(capsys):
    with pytest.raises(SystemExit):
        main(["verify", "--help"])
    assert "which is code of whoever made it" in " ".join(capsys.readouterr().out.split())


# --------------------------------------------------------------------------- run


@pytest.mark.parametrize("name", ["outputs.npz", "outputs"])
def test_run_writes_what_bundle_run_gives(exported, samples, tmp_path, call, name):
    code, out, err = call("run", exported, "--inputs", samples, "--outputs", tmp_path / name)
    assert (code, err) == (0, "")
    assert out == f"{tmp_path / name}: context float32[2, 3, 5], weights float32[2, 3, 7]\n"
    assert names(tmp_path) == sorted([name, "samples.npz"])
    wanted = load_bundle(exported).run(small_inputs())
    with np.load(tmp_path / name) as written:
        assert written.files == list(wanted)
        for output in written.files:
            assert_identical(written[output], wanted[output])


def test_run_replaces_earlier_outputs(exported, samples, tmp_path, call):
    target = tmp_path / "outputs.npz"
    target.write_text("earlier")
    assert call("run", exported, "--inputs", samples, "--outputs", target)[0] == 0
    assert zipfile.is_zipfile(target)


def test_run_keeps_earlier_outputs_when_it_fails(exported, tmp_path, call):
    inputs, target = tmp_path / "inputs.npz", tmp_path / "outputs.npz"
    target.write_text("earlier")
    np.savez(inputs, **(small_inputs() | {"valid_lens": np.array([1.0, 2.0])}))
    code, out, err = call("run", exported, "--inputs", inputs, "--outputs", target)
    assert (code, out) == (1, "")
    assert_one_line(err, "error: Input `valid_lens` must be of dtype int32. Received: float64.")
    assert target.read_text() == "earlier"
    assert names(tmp_path) == ["inputs.npz", "outputs.npz"]


def test_run_keeps_earlier_outputs_when_writing_fails(exported, samples, tmp_path, call, monkeypatch):
    def disk_full(*_, **__):
        raise OSError(28, "No space left on device")

    target = tmp_path / "outputs.npz"
    target.write_text("earlier")
    monkeypatch.setattr(np.lib.format, "write_array", disk_full)
    code, out, err = call("run", exported, "--inputs", samples, "--outputs", target)
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: Cannot write {target}: No space left on device.")
    assert target.read_text() == "earlier"
    assert names(tmp_path) == ["outputs.npz", "samples.npz"]


def test_run_needs_a_place_for_its_outputs(exported, samples, tmp_path, call):
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for place, said in (
        ("folder", "is there and is not a file"),
        ("pipe", "is there and is not a file"),
        ("nowhere/out.npz", "No such file or directory"),
        ("samples.npz/out.npz", "Not a directory"),
    ):
        code, out, err = call("run", exported, "--inputs", samples, "--outputs", tmp_path / place)
        assert (code, out) == (1, "")
        assert_one_line(err)
        assert str(tmp_path / place) in err
        assert said in err
    assert names(tmp_path) == ["folder", "pipe", "samples.npz"]
    assert (tmp_path / "pipe").is_fifo()


def test_outputs_of_any_name_are_written(tmp_path):
    arrays = {"file": np.ones(2, "float32"), "allow_pickle": np.array(3), "a/b": np.zeros((0, 2), bool)}
    run.write_arrays(tmp_path / "out.npz", arrays)
    with np.load(tmp_path / "out.npz") as written:
        assert written.files == list(arrays)
        for name, array in arrays.items():
            assert_identical(written[name], array)


def _save_objects(path):
    np.savez(path, x=np.array([{}], object))


def _save_single(path):
    with path.open("wb") as file:
        np.save(file, np.ones(3))


def _save_member_that_is_no_array(path):
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("queries.npy", b"text")


FILES = {
    "missing": (lambda path: None, "There is no file"),
    "folder": (lambda path: path.mkdir(), "Cannot read .*: Is a directory"),
    "empty": (lambda path: path.touch(), "it is no zip archive"),
    "text": (lambda path: path.write_text("1 2 3"), "it is no zip archive"),
    "broken archive": (lambda path: path.write_bytes(b"PK\x03\x04 and no more"), "it is no zip archive"),
    "pickle": (lambda path: path.write_bytes(b"\x80\x04}\x94."), "it is no zip archive"),
    "objects": (_save_objects, "holds objects, and to read those can run code"),
    "single array": (_save_single, "it holds a single array"),
    "no array": (_save_member_that_is_no_array, "is no array"),
    "far more than its size": (lambda path: np.savez_compressed(path, queries=np.zeros(2**23)), "would unpack to"),
}


@pytest.mark.parametrize("kind", FILES)
def test_files_that_hold_no_inputs(exported, tmp_path, call, kind):
    make, said = FILES[kind]
    file = tmp_path / "inputs.npz"
    make(file)
    if kind == "no array":
        with zipfile.ZipFile(file, "a") as archive:
            for name in ("keys", "values", "valid_lens"):
                archive.writestr(f"{name}.npy", b"text")
    code, out, err = call("run", exported, "--inputs", file, "--outputs", tmp_path / "out.npz")
    assert (code, out) == (1, "")
    assert_one_line(err)
    assert re.search(said, err)
    assert not (tmp_path / "out.npz").exists()


def test_a_pickle_is_not_run(exported, tmp_path, call):
    class Bomb:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    np.savez(tmp_path / "inputs.npz", queries=np.array([Bomb()], object))
    assert call("run", exported, "--inputs", tmp_path / "inputs.npz", "--outputs", tmp_path / "out.npz")[0] == 1
    assert names(tmp_path) == ["inputs.npz"]


# ------------------------------------------------------------------------ errors


@pytest.mark.parametrize(
    "arguments",
    [
        ["verify", "nowhere"],
        ["inspect", "nowhere"],
        ["run", "nowhere", "--inputs", "x.npz", "--outputs", "y.npz"],
        ["export", "nowhere.keras", "bundle"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_debug_shows_the_traceback(arguments, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = call(*arguments)
    assert (code, out) == (1, "")
    assert_one_line(err)
    code, out, debug = call(*arguments, "--debug")
    assert (code, out) == (1, "")
    assert "Traceback (most recent call last):" in debug
    assert err.removeprefix("error: ") in debug
    assert names(tmp_path) == []


def test_an_error_nobody_foresaw(exported, call, monkeypatch):
    def fail(_):
        raise RuntimeError("first line\n  second line")

    monkeypatch.setattr(inspect, "load_bundle", fail)
    code, out, err = call("inspect", exported)
    assert (code, out) == (1, "")
    assert_one_line(err, "error: unexpected RuntimeError: first line second line (run again with --debug to see where)")
    assert "Traceback" in call("inspect", exported, "--debug")[2]


def test_ctrl_c(exported, call, monkeypatch):
    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(inspect, "load_bundle", interrupted)
    assert call("inspect", exported) == (130, "", "interrupted: nothing was written\n")


def test_the_callers_signal_handler_is_kept(exported, call):
    def ours(*_):
        raise AssertionError("called")

    before = signal.signal(signal.SIGTERM, ours)
    try:
        assert call("inspect", exported)[0] == 0
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


# ------------------------------------------------------------------------ export


def test_export_with_options_prints_only_json(bundle, model_file, samples, tmp_path, call):
    code, out, err = call("export", model_file, bundle, "--samples", samples, "--opset", 20, "--overwrite", "--json")
    assert (code, err) == (0, "")
    content = json.loads(out)
    assert content["bundle"] == str(bundle)
    assert content["manifest"] == read_manifest(bundle)
    assert content["manifest"]["opset"] == 20
    assert {"samples", "base"} <= {row["case"] for row in content["report"]["rows"]}
    assert content["report"]["refused"] == {}
    assert names(tmp_path) == ["bundle", "samples.npz"]
    assert keras_attn_export.verify_bundle(bundle).passed


def test_export_does_not_replace_a_bundle_unasked(bundle, model_file, tmp_path, call):
    before = read_manifest(bundle)
    code, out, err = call("export", model_file, bundle)
    assert (code, out) == (1, "")
    assert_one_line(err, f"error: {bundle} already exists. Pass overwrite=True (--overwrite) to replace it.")
    assert read_manifest(bundle) == before
    assert names(tmp_path) == ["bundle"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere.keras", "new"], "There is no model file at nowhere.keras."),
        (["notes.txt", "new"], "notes.txt is not a `.keras` file."),
        (["broken.keras", "new"], "Keras cannot load broken.keras: "),
        (["MODEL", "new", "--opset", "17"], "`opset` must be an integer from 18 to 24. Received: 17."),
        (["MODEL", "new", "--lowering", "fused", "--opset", "18"], "`lowering='fused'` needs opset 24"),
        (["MODEL", "new", "--samples", "nowhere.npz"], "There is no file nowhere.npz."),
        (["MODEL", "new", "--samples", "notes.txt"], "notes.txt is not an .npz file of plain arrays"),
        (
            ["MODEL", "new", "--samples", "other.npz"],
            "`sample_inputs` names ['other'], of which the model does not take ['other']",
        ),
        (
            ["MODEL", "new", "--static", "length=3"],
            "`static_axes` names ['length']. The dynamic axes of this model are [",
        ),
        (["MODEL", "notes.txt"], "notes.txt is a file. A bundle is a folder"),
        (["MODEL", "notes.txt/new"], "notes.txt is a file, so "),
    ],
)
def test_exports_that_cannot_be_made(model_file, tmp_path, call, monkeypatch, arguments, said):
    monkeypatch.chdir(tmp_path)
    Path("notes.txt").write_text("mine")
    Path("broken.keras").write_bytes(b"PK\x03\x04 and no more")
    np.savez("other.npz", other=np.ones(3))
    code, out, err = call("export", *(model_file if word == "MODEL" else word for word in arguments))
    assert (code, out) == (1, "")
    assert_one_line(err)
    assert said in err
    assert names(tmp_path) == ["broken.keras", "notes.txt", "other.npz"]


@keras.saving.register_keras_serializable("tests")
class Running(keras.layers.Layer):
    """A sum over the steps so far, in a loop that TensorFlow cannot trace for an unknown number of steps."""

    def compute_output_spec(self, x):
        return keras.KerasTensor(x.shape, x.dtype)

    def call(self, x):
        return keras.ops.stack([keras.ops.sum(x[:, : step + 1], 1) for step in range(x.shape[1])], 1)


def test_static_axes_asked_for_and_not_avoided(tmp_path, call):
    x, y = keras.Input((None, 3), name="x"), keras.Input((None, 2), name="y")
    keras.Model([x, y], [Running()(x), keras.ops.relu(y)]).save(tmp_path / "model.keras")
    code, out, err = call("export", tmp_path / "model.keras", tmp_path / "bundle", "--static", "batch=2")
    assert code == 0
    assert_one_line(
        err, "warning: Axis `x_length` is static in the bundle. TensorFlow cannot trace it as unknown: 'None"
    )
    manifest = read_manifest(tmp_path / "bundle")
    assert [spec["shape"] for spec in manifest["inputs"]] == [[2, 6, 3], [2, "y_length", 2]]
    assert manifest["static"].keys() == {"batch", "x_length"}
    assert "static      batch: as asked\n            x_length: TensorFlow cannot trace it" in out
    assert "axes        y_length\n" in out


@pytest.mark.parametrize("text", ["batch", "=3", "batch=0", "batch=-1", "batch=two", "batch=1.5"])
def test_static_axes_are_names_and_sizes(text, model_file, tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["export", str(model_file), str(tmp_path / "bundle"), "--static", text])
    assert ended.value.code == 2
    assert f"'{text}' is not NAME=SIZE with a size of 1 or more" in capsys.readouterr().err


def test_only_unsafe_loads_a_file_that_holds_code(tmp_path, call):
    x = keras.Input((3,), name="x")
    keras.Model(x, keras.layers.Lambda(lambda y: y + 1)(x)).save(tmp_path / "model.keras")
    code, _, err = call("export", tmp_path / "model.keras", tmp_path / "bundle")
    assert code == 1
    assert_one_line(err)
    assert names(tmp_path) == ["model.keras"]
    code, _, err = call("export", tmp_path / "model.keras", tmp_path / "bundle", "--unsafe")
    assert (code, err) == (0, "")


def export_process(model, bundle, cwd):
    """Start `keras-attn export` as a shell would: in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "keras_attn_export", "export", str(model), str(bundle)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=cwd,
    )


def test_a_successful_export_is_silent_on_stderr(model_file, tmp_path):
    with export_process(model_file, tmp_path / "bundle", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    described, _, last = out.partition("\n\n")
    assert described == describe(load_bundle(tmp_path / "bundle"))
    assert re.fullmatch(rf"Exported to {tmp_path / 'bundle'} in \d+ s: it matches Keras\.\n", last)
    assert load_bundle(tmp_path / "bundle").report.refused == {}


def test_a_failing_export_says_one_line_on_stderr(tmp_path):
    model = keras.Sequential([keras.Input((3,)), keras.layers.Lambda(lambda x: x + 1)])
    model.save(tmp_path / "lambda.keras")
    with export_process(tmp_path / "lambda.keras", tmp_path / "bundle", cwd=tmp_path) as process:
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert_one_line(err, f"error: Keras cannot load {tmp_path / 'lambda.keras'}: ")
    assert "Lambda" in err
    assert names(tmp_path) == ["lambda.keras"]


def wait_for(condition, process, seconds=90):
    deadline = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, f"ended with {process.returncode}: {process.stderr.read()}"
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def test_ctrl_c_leaves_nothing(model_file, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    with export_process(model_file, place / "made" / "bundle", cwd=place) as process:
        wait_for(lambda: list(place.glob("made/.bundle.*.partial/bundle")), process)
        time.sleep(0.2)  # into the import of TensorFlow
        os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all processes of the group
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (130, "", "interrupted: nothing was written\n")
    assert names(place) == []


DROPPED = """
import os, signal, sys, time
from keras_attn_export._cli import main

class Fragile:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0)  # the handler runs here, where Python drops what it raises

def work(arguments):
    fragile = Fragile()
    del fragile
    time.sleep(30)

class Arguments:
    run, debug = staticmethod(work), False

class Parser:
    def parse_args(self, argv):
        return Arguments

main._parser = Parser
sys.exit(main.main([]))
"""


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_a_signal_that_python_drops_is_heeded_all_the_same(name, code):
    done = subprocess.run(
        [sys.executable, "-c", DROPPED.format(name=name)], capture_output=True, timeout=20, check=False
    )
    assert done.returncode == code
    assert b"Exception ignored" not in done.stderr


def lookup_model():
    x = keras.Input((), dtype="int64", name="x")
    return keras.Model(x, keras.layers.IntegerLookup(vocabulary=[4, 5], name="lookup")(x)), {"x": np.array([4, 5])}


def stateful_gru():
    x = keras.Input((4, 3), batch_size=2, name="x")
    return keras.Model(x, keras.layers.GRU(2, stateful=True, name="memory")(x)), None


def untold_integers():
    x = keras.Input((4,), dtype="int32", name="digits")
    return keras.Model(x, keras.ops.one_hot(x, 5)), None


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lookup_model, "`LookupTableFindV2` of layer `lookup`"),
        (stateful_gru, "`memory`"),
        (untold_integers, "`digits`"),
    ],
)
def test_models_that_are_refused_leave_nothing(build, said, tmp_path, capsys):
    model, samples = build()
    place = tmp_path / "place"
    place.mkdir()
    model.save(tmp_path / "model.keras")
    options = []
    if samples:
        np.savez(tmp_path / "samples.npz", **samples)
        options = ["--samples", str(tmp_path / "samples.npz")]
    assert main(["export", str(tmp_path / "model.keras"), str(place / "bundle"), *options]) == 1
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert names(place) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.out_of_turn)])
def test_being_told_to_end_leaves_nothing(number, model_file, tmp_path):
    place = tmp_path / "place"
    place.mkdir()
    with export_process(model_file, place / "bundle", cwd=place) as process:
        wait_for(lambda: list(place.glob(".bundle.*.partial/bundle/saved_model/fingerprint.pb")), process)
        time.sleep(0.3)  # until a process of its own runs the SavedModel, which this one now traces
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (128 + number, "", "")
    assert names(place) == []
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)  # the group has no process left
