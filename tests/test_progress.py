"""Progress: a function of the caller's, a list of steps on a terminal, or nothing."""

import os
import re
import subprocess
import sys

import pytest

from keras_attn_export._progress import shown_progress


def test_a_function_of_the_callers():
    steps = []
    with shown_progress(steps.append) as step:
        step("one")
        step("two")
    assert steps == ["one", "two"]


@pytest.mark.parametrize("progress", [None, True, False])
def test_nothing_where_there_is_no_terminal(progress, capfd):
    with shown_progress(progress) as step:
        step("one")
    assert capfd.readouterr() == ("", "")


def test_steps_on_a_terminal(tmp_path):
    script = (
        "import time; from keras_attn_export._progress import shown_progress\n"
        "with shown_progress(None) as step:\n"
        "    step('one'); time.sleep(0.3); step('two'); time.sleep(0.3)\n"
    )
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen([sys.executable, "-c", script], stderr=theirs, cwd=tmp_path, env=environment) as process:
        os.close(theirs)
        seen = b""
        while piece := _read(ours):
            seen += piece
    os.close(ours)
    assert process.returncode == 0
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert re.search(r"\S 0:00:00 one", text)
    assert re.search(r"✓ 0:00:00 one *\r\n\S 0:00:00 two", text)
    assert seen.count(b"\x1b[2K") >= 2  # the list is wiped at the end


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other end is closed
        return b""
