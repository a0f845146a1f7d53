"""The `keras-attn` command as a whole: usage, help, exit codes, errors that all commands share, signals."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import onnxruntime
import pytest
from bundles import assert_one_line, flip_byte, names, python

from keras_attn_export._cli import inspect
from keras_attn_export._cli.main import main
from keras_attn_export._cli.shared import quiet_backend

pytest_plugins = ("bundle_fixtures", "command_fixtures")

COMMANDS = ("export", "verify", "sign", "run", "predict", "inspect", "report", "convert", "layout", "bench")


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
from keras_attn_export._cli.shared import quiet_backend
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


def test_code_that_ends_python_is_no_success(exported, call, monkeypatch):
    monkeypatch.setattr(inspect, "load_bundle", lambda _: sys.exit(0))
    code, out, err = call("inspect", exported)
    assert (code, out) == (1, "")
    assert_one_line(err, "error: code that was run called `sys.exit(0)`")


def test_the_callers_signal_handler_is_kept(exported, call):
    def ours(*_):
        raise AssertionError("called")

    before = signal.signal(signal.SIGTERM, ours)
    try:
        assert call("inspect", exported)[0] == 0
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.mark.parametrize("text", ["import sys; sys.exit(0)", "raise SystemExit('usage: no such file')"])
def test_a_module_that_ends_python_when_it_is_imported(text, model_file, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("a_script.py").write_text(text)
    code, out, err = call("export", model_file, "bundle", "--import", "a_script")
    assert (code, out) == (1, "")
    assert_one_line(err, "error: Cannot import `a_script` (SystemExit: ")
    assert not Path("bundle").exists()


def test_a_signal_while_a_module_is_imported_ends_the_command(model_file, call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("told_to_end.py").write_text("import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)")
    assert call("export", model_file, "bundle", "--import", "told_to_end") == (128 + signal.SIGTERM, "", "")


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


@pytest.mark.parametrize("given", [None, "false"])
def test_tensorflow_leaves_memory_of_a_gpu_to_others(given, monkeypatch):
    if given is None:
        monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    else:
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", given)
    with quiet_backend(debug=True):
        assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == (given or "true")


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
def test_a_signal_that_python_drops_is_heeded_all_the_same(name, code):
    done = subprocess.run(
        [sys.executable, "-c", DROPPED.format(name=name)], capture_output=True, timeout=20, check=False
    )
    assert done.returncode == code
    assert b"Exception ignored" not in done.stderr
