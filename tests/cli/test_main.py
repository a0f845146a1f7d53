"""The `keras-attn` command as a whole: usage, help, exit codes, errors that all commands share, signals."""

import os
import signal
import sys
from pathlib import Path
from types import SimpleNamespace

import onnxruntime
import pytest
from bundles import assert_one_line, finished, flip_byte, names, python
from interrupts import heeding_interrupts

from keras_attn_export._cli import inspect
from keras_attn_export._cli.main import main
from keras_attn_export._cli.shared import quiet_backend

COMMANDS = ("export", "verify", "run", "predict", "inspect", "report", "bench", "doctor")


@pytest.mark.parametrize(
    "arguments",
    [
        "",
        "bundle",
        *COMMANDS[:-1],
        "doctor bundle",
        "export model.keras",
        "export model.keras bundle --opset high",
        "export model.keras bundle --lowering magic",
        "export model.keras bundle --precision float8",
        "verify bundle --provider tpu",
        "verify bundle other",
        "run bundle --inputs x.npz",
        "run bundle --outputs y.npz",
        "inspect bundle --provider cpu",
        "inspect bundle --trace",
        "bench bundle --threads all",
        "bench bundle other.onnx",
    ],
)
def test_wrong_usage(arguments, wrong_usage):
    wrong_usage(*arguments.split())


@pytest.mark.parametrize(
    ("arguments", "replacement"),
    [
        ("convert bundle model.tflite --to litert", "Keras's own `model.export("),
        ("layout bundle models --target triton", "the example service, or the Triton"),
        ("sign bundle --key key.pem", "`model_signing sign key` on the folder"),
    ],
)
def test_a_removed_command_names_its_replacement(arguments, replacement, wrong_usage):
    command, *_ = words = arguments.split()
    assert f"`{command}` was removed: use {replacement}" in wrong_usage(*words)


@pytest.mark.parametrize("option", ["--public-key", "--signature"])
def test_a_removed_option_names_its_replacement(option, wrong_usage):
    for words in ((option, "file"), (f"{option}=file",)):
        said = wrong_usage("verify", "bundle", *words)
        assert f"`verify {option}` was removed: use `model_signing verify key` on the folder" in said


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    out, err = capsys.readouterr()
    assert (caught.value.code, err) == (0, "")
    assert out.startswith(" ".join(["usage: keras-attn", *command]))
    for expected in ["--debug"] if command else [*COMMANDS, "Exit codes"]:
        assert expected in out


def test_both_ways_to_start_it(tmp_path):
    for start in ([sys.executable, "-m", "keras_attn_export"], [Path(sys.executable).with_name("keras-attn")]):
        done = finished(*start, "inspect", "nowhere", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert_one_line(done.stderr, "error: No bundle at nowhere")


def test_only_export_loads_tensorflow_and_keras(exported, samples, tmp_path):
    heavy = ("tensorflow", "keras", "keras_attn", "tf2onnx", "rich")
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


def test_a_bundle_that_cannot_be_read(bundle, fails):
    flip_byte(bundle / "model.onnx")
    for command in (["verify"], ["inspect", "--json"], ["run", "--inputs", "x.npz", "--outputs", "y.npz"], ["bench"]):
        fails(*command, bundle, said=f"error: {bundle / 'model.onnx'} is not the file that was exported")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="shows what an onnxruntime without CUDA says; .ci/run installs [runtime]",
)
def test_a_provider_that_is_absent(exported, model_file, samples, tmp_path, fails):
    for command in (
        ["verify", exported],
        ["run", exported, "--inputs", samples, "--outputs", tmp_path / "out.npz"],
        ["export", model_file, tmp_path / "new"],
    ):
        fails(*command, "--provider", "cuda", said="keras-attn[gpu]")
    assert names(tmp_path) == ["samples.npz"]


@pytest.mark.parametrize(
    "arguments",
    ["verify nowhere", "run nowhere --inputs x.npz --outputs y.npz", "export nowhere.keras bundle"],
)
def test_debug_shows_the_traceback(arguments, call, fails, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    err = fails(*arguments.split(), said="nowhere")
    code, out, debug = call(*arguments.split(), "--debug")
    assert (code, out) == (1, "")
    assert "Traceback (most recent call last):" in debug
    assert err.removeprefix("error: ") in debug
    assert names(tmp_path) == []


def raising(error):
    def fail(*_):
        raise error

    return fail


def test_errors_that_nobody_foresaw(exported, call, fails, monkeypatch):
    for error, said in (
        (RuntimeError("first line\n  second line"), "unexpected RuntimeError: first line second line (run again with"),
        (SystemExit(0), "code that was run called `sys.exit(0)`"),  # which would pass for success
    ):
        monkeypatch.setattr(inspect, "load_bundle", raising(error))
        fails("inspect", exported, said=f"error: {said}")
    monkeypatch.setattr(inspect, "load_bundle", raising(RuntimeError()))
    assert "Traceback" in call("inspect", exported, "--debug")[2]


def test_ctrl_c(exported, call, monkeypatch):
    monkeypatch.setattr(inspect, "load_bundle", raising(KeyboardInterrupt()))
    assert call("inspect", exported) == (130, "", "interrupted: nothing was written\n")


def test_the_callers_signal_handler_is_kept(exported, succeeds):
    before = signal.signal(signal.SIGTERM, ours := raising(AssertionError("called")))
    try:
        succeeds("inspect", exported)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return the working folder, which is empty, and where modules are found that a test writes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


@pytest.mark.parametrize("text", ["import sys; sys.exit(0)", "raise SystemExit('usage: no such file')"])
def test_a_module_that_ends_python_when_it_is_imported(text, model_file, fails, here):
    (here / "a_script.py").write_text(text)
    fails("export", model_file, "bundle", "--import", "a_script", said="error: Cannot import `a_script` (SystemExit: ")
    assert not (here / "bundle").exists()


def test_a_signal_while_a_module_is_imported_ends_the_command(model_file, call, here):
    (here / "told_to_end.py").write_text("import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)")
    assert call("export", model_file, "bundle", "--import", "told_to_end") == (128 + signal.SIGTERM, "", "")


LOST = """
import os, signal, sys, time
from types import SimpleNamespace
from keras_attn_export._cli import main

class Fragile:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0)  # the handler runs here, where Python drops what it raises

def dropped():
    fragile = Fragile()
    del fragile

def caught():
    try:
        os.kill(os.getpid(), signal.{name})
        time.sleep(0)
    except:
        pass

def work(arguments):
    {how}()
    time.sleep(30)

arguments = SimpleNamespace(run=work, debug=False)
main._parser = lambda: SimpleNamespace(parse_args=lambda argv: arguments)
sys.exit(main.main([]))
"""


@pytest.mark.parametrize("given", [None, "false"])
def test_tensorflow_leaves_memory_of_a_gpu_to_others(given, monkeypatch):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", given)
    with quiet_backend(SimpleNamespace(debug=True, json=False)):
        assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == (given or "true")


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129), ("SIGINT", 130)])
@pytest.mark.parametrize("how", ["dropped", "caught"])
def test_a_signal_that_is_lost_is_heeded_all_the_same(name, code, how):
    """Python drops one, and tf2onnx catches all that is raised in places."""
    with heeding_interrupts():
        done = finished(sys.executable, "-c", LOST.format(name=name, how=how), timeout=20)
    assert done.returncode == code
    assert "Exception ignored" not in done.stderr
