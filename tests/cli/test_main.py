"""The `keras-attn` command: usage, help, exit codes, errors common to all commands, signals."""

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
from small_bundle import assert_one_line, flip_bit, list_names, run_command, run_python

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
    with pytest.raises(SystemExit) as error:
        main([*command, "--help"])
    out, err = capsys.readouterr()
    assert (error.value.code, err) == (0, "")
    assert out.startswith(" ".join(["usage: keras-attn", *command]))
    for expected in ["--debug"] if command else [*COMMANDS, "Exit codes"]:
        assert expected in out


def test_command_and_module_start_the_same_program(tmp_path):
    for start in ([sys.executable, "-m", "keras_attn_export"], [Path(sys.executable).with_name("keras-attn")]):
        result = run_command(*start, "inspect", "nowhere", cwd=tmp_path)
        assert (result.returncode, result.stdout) == (1, "")
        assert_one_line(result.stderr, "error: No bundle at nowhere")


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
    completion = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "|", "_ARGCOMPLETE_STDOUT_FILENAME": "answer"}
    environment = {**os.environ, **completion, "COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_TYPE": "9"}
    run_command(sys.executable, "-m", "keras_attn_export", cwd=tmp_path, env=environment)
    assert set((tmp_path / "answer").read_text().split("|")) == answer


def test_commands_except_export_import_neither_tensorflow_nor_keras(exported, samples, tmp_path):
    heavy_packages = ("tensorflow", "keras", "keras_attn", "tf2onnx", "rich")
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
    print("LOADED", command[0], code, *sorted(set(sys.modules) & set({heavy_packages!r})))
"""
    result = run_python("-c", code, cwd=tmp_path)
    lines = [line for line in result.stdout.splitlines() if line.startswith("LOADED")]
    assert lines == [f"LOADED {name} 0" for name in ("verify", "run", "inspect", "bench", "--help")], result.stderr
    assert result.stderr == ""


def test_commands_refuse_a_changed_bundle(bundle, fails):
    flip_bit(bundle / "model.onnx")
    for command in (["verify"], ["inspect", "--json"], ["run", "--inputs", "x.npz", "--outputs", "y.npz"], ["bench"]):
        fails(*command, bundle, message=f"error: {bundle / 'model.onnx'} is not the file that was exported")


@pytest.mark.skipif(
    "CUDAExecutionProvider" in onnxruntime.get_available_providers(),
    reason="needs an onnxruntime without CUDA; .ci/run installs [runtime]",
)
def test_commands_name_the_extra_of_an_absent_provider(exported, model_file, tmp_path, fails):
    for command in (["verify", exported], ["export", model_file, tmp_path / "new"]):
        fails(*command, "--provider", "cuda", message="keras-attn[gpu]")
    assert list_names(tmp_path) == []


def test_debug_shows_the_traceback(call, fails):
    err = fails("verify", "nowhere", message="nowhere")
    code, out, debug = call("verify", "nowhere", "--debug")
    assert (code, out) == (1, "")
    assert "Traceback (most recent call last):" in debug
    assert err.removeprefix("error: ") in debug


def make_raiser(error):
    def fail(*_):
        raise error

    return fail


def test_unexpected_errors_are_one_line(exported, call, fails, monkeypatch):
    for error, message in (
        (RuntimeError("first line\n  second line"), "unexpected RuntimeError: first line second line (run again with"),
        # An exit with code 0 would look like success.
        (SystemExit(0), "code called by this command ran `sys.exit(0)`; the command did not finish"),
    ):
        monkeypatch.setattr(inspect, "load_bundle", make_raiser(error))
        fails("inspect", exported, message=f"error: {message}")
    monkeypatch.setattr(inspect, "load_bundle", make_raiser(RuntimeError()))
    assert "Traceback" in call("inspect", exported, "--debug")[2]


def test_broken_pipe_is_an_error_on_windows(exported, fails, monkeypatch):
    monkeypatch.delattr(select, "poll")  # as on Windows
    monkeypatch.setattr(inspect, "load_bundle", make_raiser(BrokenPipeError("the pipe is closed")))
    fails("inspect", exported, message="error: the pipe is closed")


def test_ctrl_c_exits_with_130(exported, call, monkeypatch):
    monkeypatch.setattr(inspect, "load_bundle", make_raiser(KeyboardInterrupt()))
    assert call("inspect", exported) == (130, "", "interrupted: nothing was written\n")


def test_signal_handler_of_the_caller_is_restored(exported, succeeds):
    previous_handler = signal.signal(signal.SIGTERM, own_handler := make_raiser(AssertionError("called")))
    try:
        succeeds("inspect", exported)
        assert signal.getsignal(signal.SIGTERM) is own_handler
    finally:
        signal.signal(signal.SIGTERM, previous_handler)


@pytest.fixture
def working_folder(tmp_path, monkeypatch):
    """The empty working folder; modules in it can be imported."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_module_that_calls_exit_is_an_error(model_file, fails, working_folder):
    (working_folder / "script.py").write_text("import sys; sys.exit(0)")
    fails("export", model_file, "bundle", "--import", "script", message="error: Cannot import `script` (SystemExit: ")
    assert not (working_folder / "bundle").exists()


def test_signal_while_a_module_is_imported_ends_the_command(model_file, call, working_folder):
    (working_folder / "stopping_module.py").write_text(
        "import os, signal, time; os.kill(os.getpid(), signal.SIGTERM); time.sleep(9)"
    )
    assert call("export", model_file, "bundle", "--import", "stopping_module") == (128 + signal.SIGTERM, "", "")


@pytest.mark.parametrize("setting", [None, "false"])
def test_tensorflow_does_not_reserve_all_memory_of_a_gpu(setting, monkeypatch):
    monkeypatch.delenv("TF_FORCE_GPU_ALLOW_GROWTH", raising=False)
    if setting is not None:
        monkeypatch.setenv("TF_FORCE_GPU_ALLOW_GROWTH", setting)
    with silence_backend(SimpleNamespace(debug=True, json=False)):
        assert os.environ["TF_FORCE_GPU_ALLOW_GROWTH"] == (setting or "true")


LOST_EXCEPTION_SCRIPT = """
import os, signal, sys, time
from types import SimpleNamespace
from keras_attn_export._cli import main

def stop():
    os.kill(os.getpid(), signal.{name})
    time.sleep(0)  # the handler runs here

class Dropped:
    def __del__(self):
        stop()

def catch_all():
    try:
        stop()
    except:
        pass

def work(arguments):
    {step}()
    time.sleep(30)

main._build_parser = lambda: SimpleNamespace(parse_args=lambda argv: SimpleNamespace(command_main=work, debug=False))
sys.exit(main.main([], owns_process=True))
"""


@pytest.mark.parametrize(("step", "name", "code"), [("Dropped", "SIGTERM", 143), ("catch_all", "SIGINT", 130)])
def test_signal_whose_exception_is_lost_ends_the_command(step, name, code):
    """Python drops exceptions in `__del__`, and parts of tf2onnx catch all exceptions."""
    with enable_interrupts():
        result = run_command(sys.executable, "-c", LOST_EXCEPTION_SCRIPT.format(name=name, step=step), timeout=20)
    assert result.returncode == code


def test_command_with_a_closed_output_pipe_ends_quietly(exported):
    command = [sys.executable, "-m", "keras_attn_export", "inspect", "--json", exported]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 141)
