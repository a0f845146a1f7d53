"""The `keras-attn` command as a whole: usage, help, exit codes, errors that all commands share, signals."""

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import onnxruntime
import pytest
from sigint import enable_interrupts
from small_bundle import assert_one_line, flip_byte, list_names, run_command, run_python

from keras_attn_export._cli import inspect
from keras_attn_export._cli.command_helpers import silence_backend
from keras_attn_export._cli.main import main

COMMANDS = ("export", "verify", "run", "predict", "inspect", "report", "bench", "doctor")


@pytest.mark.parametrize(
    "arguments",
    ["", "bundle", "verify", "verify bundle --provider tpu", "verify bundle other", "run bundle --inputs x.npz"],
)
def test_wrong_usage_exits_with_2(arguments, wrong_usage):
    wrong_usage(*arguments.split())


@pytest.mark.parametrize(
    ("arguments", "replacement"),
    [
        ("convert bundle model.tflite --to litert", "`convert` was removed: use Keras's own `model.export("),
        ("layout bundle models", "`layout` was removed: use the example service, or the Triton"),
        ("sign bundle --key key.pem", "`sign` was removed: use `model_signing sign key` on the folder"),
        ("verify bundle --public-key file", "`verify --public-key` was removed: use `model_signing verify key`"),
        ("verify bundle --signature=file", "`verify --signature` was removed: use `model_signing verify key`"),
    ],
)
def test_removed_commands_and_options_name_their_replacement(arguments, replacement, wrong_usage):
    assert replacement in wrong_usage(*arguments.split())


@pytest.mark.parametrize("command", [(), *((name,) for name in COMMANDS)], ids=" ".join)
def test_help_lists_options_and_exits_with_0(command, capsys):
    with pytest.raises(SystemExit) as caught:
        main([*command, "--help"])
    out, err = capsys.readouterr()
    assert (caught.value.code, err) == (0, "")
    assert out.startswith(" ".join(["usage: keras-attn", *command]))
    for expected in ["--debug"] if command else [*COMMANDS, "Exit codes"]:
        assert expected in out


def test_command_and_module_start_alike(tmp_path):
    for start in ([sys.executable, "-m", "keras_attn_export"], [Path(sys.executable).with_name("keras-attn")]):
        done = run_command(*start, "inspect", "nowhere", cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert_one_line(done.stderr, "error: No bundle at nowhere")


@pytest.mark.parametrize(
    ("line", "answer"),
    [
        ("keras-attn export --lowering ", {"adaptive", "portable", "fused"}),
        ("keras-attn inspect b", {"bundle/"}),
    ],
)
def test_shells_complete_options_and_paths(line, answer, tmp_path):
    pytest.importorskip("argcomplete", reason="completes lines in shells; it is in `keras-attn[test]`")
    (tmp_path / "bundle").mkdir()
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "|", "_ARGCOMPLETE_STDOUT_FILENAME": "answer"}
    environment = {**os.environ, **asked, "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    run_command(sys.executable, "-m", "keras_attn_export", cwd=tmp_path, env=environment)
    assert set((tmp_path / "answer").read_text().split("|")) == answer


def test_commands_but_export_import_neither_tensorflow_nor_keras(exported, samples, tmp_path):
    heavy = ("tensorflow", "keras", "keras_attn", "tf2onnx", "rich")
    code = f"""
import sys
from keras_attn_export._cli.main import main
from keras_attn_export._cli.command_helpers import silence_backend
commands = "verify B --trace|run B --inputs X --outputs Y|inspect B|bench B --seconds 0.01 --threads 1|--help"
for command in map(str.split, commands.split("|")):
    paths = {{"B": {str(exported)!r}, "X": {str(samples)!r}, "Y": {str(tmp_path / "outputs.npz")!r}}}
    try:
        code = main([paths.get(word, word) for word in command])
    except SystemExit as exit:
        code = exit.code
    print("LOADED", command[0], code, *sorted(set(sys.modules) & set({heavy!r})))
"""
    done = run_python("-c", code, cwd=tmp_path)
    loaded = [line for line in done.stdout.splitlines() if line.startswith("LOADED")]
    assert loaded == [f"LOADED {name} 0" for name in ("verify", "run", "inspect", "bench", "--help")], done.stderr
    assert done.stderr == ""


def test_commands_refuse_a_changed_bundle(bundle, fails):
    flip_byte(bundle / "model.onnx")
    for command in (["verify"], ["inspect", "--json"], ["run", "--inputs", "x.npz", "--outputs", "y.npz"], ["bench"]):
        fails(*command, bundle, said=f"error: {bundle / 'model.onnx'} is not the file that was exported")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="shows what an onnxruntime without CUDA says; .ci/run installs [runtime]",
)
def test_commands_name_the_extra_of_an_absent_provider(exported, model_file, tmp_path, fails):
    for command in (["verify", exported], ["export", model_file, tmp_path / "new"]):
        fails(*command, "--provider", "cuda", said="keras-attn[gpu]")
    assert list_names(tmp_path) == []


def test_debug_shows_the_traceback(call, fails):
    err = fails("verify", "nowhere", said="nowhere")
    code, out, debug = call("verify", "nowhere", "--debug")
    assert (code, out) == (1, "")
    assert "Traceback (most recent call last):" in debug
    assert err.removeprefix("error: ") in debug


def raising(error):
    def fail(*_):
        raise error

    return fail


def test_unexpected_errors_are_one_line(exported, call, fails, monkeypatch):
    for error, said in (
        (RuntimeError("first line\n  second line"), "unexpected RuntimeError: first line second line (run again with"),
        (
            SystemExit(0),
            "code called by this command ran `sys.exit(0)`; the command did not finish",
        ),  # which would pass for success
    ):
        monkeypatch.setattr(inspect, "load_bundle", raising(error))
        fails("inspect", exported, said=f"error: {said}")
    monkeypatch.setattr(inspect, "load_bundle", raising(RuntimeError()))
    assert "Traceback" in call("inspect", exported, "--debug")[2]


def test_broken_pipe_is_an_error_on_windows(exported, fails, monkeypatch):
    monkeypatch.delattr(select, "poll")  # as on Windows
    monkeypatch.setattr(inspect, "load_bundle", raising(BrokenPipeError("the pipe is closed")))
    fails("inspect", exported, said="error: the pipe is closed")


def test_ctrl_c_exits_with_130(exported, call, monkeypatch):
    monkeypatch.setattr(inspect, "load_bundle", raising(KeyboardInterrupt()))
    assert call("inspect", exported) == (130, "", "interrupted: nothing was written\n")


def test_signal_handler_of_the_caller_is_kept(exported, succeeds):
    before = signal.signal(signal.SIGTERM, ours := raising(AssertionError("called")))
    try:
        succeeds("inspect", exported)
        assert signal.getsignal(signal.SIGTERM) is ours
    finally:
        signal.signal(signal.SIGTERM, before)


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Return the working folder, which is empty; modules in it can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_module_that_calls_exit_is_an_error(model_file, fails, here):
    (here / "a_script.py").write_text("import sys; sys.exit(0)")
    fails("export", model_file, "bundle", "--import", "a_script", said="error: Cannot import `a_script` (SystemExit: ")
    assert not (here / "bundle").exists()


def test_signal_while_a_module_is_imported_ends_the_command(model_file, call, here):
    (here / "told_to_end.py").write_text("import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)")
    assert call("export", model_file, "bundle", "--import", "told_to_end") == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize("given", [None, "false"])
def test_tensorflow_does_not_reserve_all_memory_of_a_gpu(given, monkeypatch):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    if given is not None:
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", given)
    with silence_backend(SimpleNamespace(debug=True, json=False)):
        assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == (given or "true")


LOST = """
import os, signal, sys, time
from types import SimpleNamespace
from keras_attn_export._cli import main

def stop():
    os.kill(os.getpid(), signal.{name})
    time.sleep(0)  # the handler runs here

class Dropped:
    def __del__(self):
        stop()

def caught():
    try:
        stop()
    except:
        pass

def work(arguments):
    {how}()
    time.sleep(30)

main._build_parser = lambda: SimpleNamespace(parse_args=lambda argv: SimpleNamespace(run=work, debug=False))
sys.exit(main.main([], is_process=True))
"""


@pytest.mark.parametrize(("how", "name", "code"), [("Dropped", "SIGTERM", 143), ("caught", "SIGINT", 130)])
def test_signal_whose_exception_is_lost_ends_the_command(how, name, code):
    """Python drops an exception in `__del__`, and tf2onnx catches all exceptions in places."""
    with enable_interrupts():
        done = run_command(sys.executable, "-c", LOST.format(name=name, how=how), timeout=20)
    assert done.returncode == code


def test_command_whose_reader_has_gone_ends_quietly(exported):
    command = [sys.executable, "-m", "keras_attn_export", "inspect", "--json", exported]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)
