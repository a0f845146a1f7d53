"""Progress: a function of the caller's, the step on a terminal, or nothing; and where the time went."""

import io
import os
import re
import subprocess
import sys

import pytest

from keras_attn_export import _progress
from keras_attn_export._progress import shown_progress


class Notebook(io.StringIO):
    """Standard error in a notebook, which is no terminal."""

    __module__ = "ipykernel.iostream"


def test_a_function_of_the_callers(capfd):
    steps = []
    with shown_progress(steps.append, done="Exported") as step:
        step("one")
        step("two")
    assert steps == ["one", "two"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("progress", [None, True, False])
def test_nothing_where_there_is_no_terminal(progress, capfd):
    with shown_progress(progress, done="Exported") as step:
        step("one")
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("progress", "done"), [(False, "Exported"), (None, None)])
def test_nothing_in_a_notebook_where_it_is_not_wanted(progress, done, monkeypatch):
    monkeypatch.setattr(sys, "stderr", notebook := Notebook())
    with shown_progress(progress, done=done) as step:
        step("one")
    assert notebook.getvalue() == ""


def test_a_line_in_a_notebook_of_the_longest_steps(monkeypatch):
    """Steps begin at these seconds, and the last is counted to the end; one that comes again is one."""
    seconds = iter([0.0, 1.0, 1.5, 4.0, 9.0, 9.25, 9.25])
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(sys, "stderr", notebook := Notebook())
    with shown_progress(None, done="Exported") as step:
        for name in ("one", "two", "three", "one", "four\n"):
            step(name)
    assert notebook.getvalue() == "Exported in 9.2 s: one 6.0 s; three 2.5 s; two 0.5 s; 1 other 0.2 s.\n"


@pytest.mark.parametrize(("took", "said"), [(1.5, "Stopped after 1.5 s, at: two.\n"), (0.5, "")])
@pytest.mark.parametrize("stop", [ValueError("wrong"), KeyboardInterrupt()], ids=repr)
def test_where_it_stopped_is_said_unless_that_was_at_once(stop, took, said, monkeypatch):
    seconds = iter([0.0, 0.25, took])
    monkeypatch.setattr(_progress.time, "perf_counter", lambda: next(seconds))
    monkeypatch.setattr(sys, "stderr", notebook := Notebook())

    def stopped():
        with shown_progress(None, done="Exported") as step:
            step("one")
            step("two")
            raise stop

    with pytest.raises(type(stop)):
        stopped()
    assert notebook.getvalue() == said


@pytest.mark.parametrize("ends", ["pass", "raise ValueError('wrong')"])
def test_the_step_on_a_terminal(ends, tmp_path):
    script = (
        "import time; from keras_attn_export._progress import shown_progress\n"
        "with shown_progress(None, done='Made') as step:\n"
        f"    step('one'); time.sleep(0.3); step('two'); time.sleep(0.8); {ends}\n"
    )
    ours, theirs = os.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "PYTHONIOENCODING": "utf-8"}
    with subprocess.Popen([sys.executable, "-c", script], stderr=theirs, cwd=tmp_path, env=environment) as process:
        os.close(theirs)
        seen = b""
        while piece := _read(ours):
            seen += piece
    os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert re.search(r"\S 0:00:00 one", text)
    assert re.search(r"\S 0:00:00 two", text)
    shown, wiped, left = seen.decode().rpartition("\x1b[2K")
    assert wiped
    assert "two" in shown
    if ends == "pass":
        assert process.returncode == 0
        assert re.fullmatch(r"(\x1b\[\?25h)?Made in 1\.\d s: two 0\.\d s; one 0\.\d s\.\r\n", left)
    else:
        assert re.match(r"(\x1b\[\?25h)?Stopped after 1\.\d s, at: two\.\r\nTraceback", left)
        assert left.endswith("ValueError: wrong\r\n")


def _read(terminal):
    try:
        return os.read(terminal, 4096)
    except OSError:  # how Linux says that the other end is closed
        return b""
