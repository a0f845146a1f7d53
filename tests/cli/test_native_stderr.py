"""Tests of `silence_native_stderr`, which suppresses a part of the standard error.

It suppresses messages of native code and of child processes, Python warnings, and warnings of loggers. It still writes
what Python code prints to `sys.stderr`, and errors of loggers.
"""

import os
import subprocess
import sys
import warnings

import pytest
from small_bundle import run_python

from keras_attn_export._cli.native_stderr import silence_native_stderr

SCRIPT = """
import logging, os, sys, warnings
from keras_attn_export._cli.native_stderr import silence_native_stderr
real = sys.stderr
for round in (1, 2):
    print("before", file=sys.stderr)
    with silence_native_stderr():
        os.write(2, b"native\\n")
        os.system("echo child >&2")
        warnings.warn("a warning")
        logging.getLogger("tensorflow").warning("a log warning")
        logging.getLogger("tensorflow").error("logged error")
        print("inside", file=sys.stderr)
        if round == 1:
            handler = logging.StreamHandler()  # libraries create such handlers during import
    assert sys.stderr is real
    os.write(2, b"after\\n")
handler.emit(logging.makeLogRecord({"msg": "late"}))
print(logging.root.manager.disable, len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else "")
"""


@pytest.mark.slow
def test_prints_and_logged_errors_arrive_and_no_descriptor_leaks(tmp_path):
    stdout_texts = set()
    for rounds in ((1, 2), tuple(range(1, 10))):
        result = run_python("-c", SCRIPT.replace("(1, 2)", repr(rounds)), cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        round_lines = ["before", "logged error", "inside", "after"]
        assert result.stderr.splitlines() == [*round_lines * len(rounds), "late"]
        assert result.stdout.split()[0] == "0"
        stdout_texts.add(result.stdout)
    assert len(stdout_texts) == 1, "the number of open descriptors grows with the rounds"


def test_standard_error_and_filters_are_restored_after_an_error(capfd):
    stderr, filters = sys.stderr, list(warnings.filters)
    with pytest.raises(KeyError), silence_native_stderr():  # noqa: PT012
        os.write(2, b"native\n")
        raise KeyError
    os.write(2, b"after\n")
    assert sys.stderr is stderr
    assert warnings.filters == filters
    assert capfd.readouterr().err == "after\n"


def test_stream_that_is_not_descriptor_2_is_not_replaced(capsys):
    stream = sys.stderr
    with silence_native_stderr():
        assert sys.stderr is stream
        print("inside", file=sys.stderr)
    assert capsys.readouterr().err == "inside\n"


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="needs pseudo-terminals, which Windows lacks; CI runs Linux")
def test_terminal_stays_a_terminal(tmp_path):
    imports = "import sys; from keras_attn_export._cli.native_stderr import silence_native_stderr as silence"
    script = f"{imports}\nwith silence(): print(sys.stderr.isatty(), file=sys.stderr)"
    controller, terminal = os.openpty()
    subprocess.run([sys.executable, "-c", script], stderr=terminal, cwd=tmp_path, timeout=60, check=True)
    assert os.read(controller, 4096) == b"True\r\n"
    os.close(controller)
    os.close(terminal)
