"""Progress of an export: a function, the step on a terminal, or the seconds of each step in a notebook."""

import io
import os
import re
import subprocess
import sys

import pytest

from keras_attn_export import _progress
from keras_attn_export._progress import progress_display

STOPPED = "Stopped after 1.5 s, at the last of these steps:\n    0.2 s  one\n    1.2 s  two\n"


class Notebook(io.StringIO):
    """Standard error of a notebook, which is not a terminal."""

    __module__ = "ipykernel.iostream"


def test_progress_calls_a_function(capfd):
    steps = []
    with progress_display(steps.append, verb="Exported") as step:
        step("one")
        step("two")
    assert steps == ["one", "two"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("progress", [None, True, False])
def test_no_progress_is_shown_without_a_terminal(progress, capfd):
    with progress_display(progress, verb="Exported") as step:
        step("one")
    assert capfd.readouterr() == ("", "")


def test_no_progress_is_shown_in_a_notebook_if_it_is_false(monkeypatch):
    monkeypatch.setattr(sys, "stderr", notebook := Notebook())
    with progress_display(False, verb="Exported") as step:
        step("one")
    assert notebook.getvalue() == ""


def test_notebook_shows_the_seconds_of_each_step(monkeypatch):
    seconds = iter([0.0, 1.0, 1.5, 14.0])
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(sys, "stderr", notebook := Notebook())
    with progress_display(None, verb="Exported") as step:
        for name in ("one", "two", "three\n"):
            step(name)
    assert notebook.getvalue().splitlines() == [
        "Exported in 14.0 s:",
        "    1.0 s  one",
        "    0.5 s  two",
        "   12.5 s  three\\n",
    ]


@pytest.mark.parametrize(("duration", "text"), [(1.5, STOPPED), (0.5, "")])
def test_notebook_shows_the_step_at_which_a_slow_export_stopped(duration, text, monkeypatch):
    seconds = iter([0.0, 0.25, duration])
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(sys, "stderr", notebook := Notebook())

    def interrupt():
        with progress_display(None, verb="Exported") as step:
            step("one")
            step("two")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupt()
    assert notebook.getvalue() == text


@pytest.mark.slow
@pytest.mark.parametrize("last_statement", ["pass", "raise ValueError('wrong')"])
def test_terminal_shows_the_step_and_then_the_seconds(last_statement, tmp_path):
    script = (
        "import time; from keras_attn_export._progress import progress_display\n"
        "with progress_display(None, verb='Made') as step:\n"
        f"    step('one'); time.sleep(0.3); step('two'); time.sleep(0.8); {last_statement}\n"
    )
    terminal, other_end = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen([sys.executable, "-c", script], stderr=other_end, cwd=tmp_path, env=environment) as process:
        os.close(other_end)
        output = b""
        while piece := _read(terminal):
            output += piece
    os.close(terminal)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.decode())
    assert re.search(r"\S 0:00:00 one", text)
    assert re.search(r"\S 0:00:00 two", text)
    display, erase_code, last_lines = output.decode().rpartition("\x1b[2K")
    assert erase_code
    assert "two" in display
    if last_statement == "pass":
        assert process.returncode == 0
        assert re.fullmatch(r"(\x1b\[\?25h)?Made in 1\.\d s:\r\n {4}0\.\d s  one\r\n {4}0\.\d s  two\r\n", last_lines)
    else:
        assert re.match(r"(\x1b\[\?25h)?Stopped after 1\.\d s[^T]+ two\r\nTraceback", last_lines)
        assert last_lines.endswith("ValueError: wrong\r\n")


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # Linux raises it when the other end is closed
        return b""
