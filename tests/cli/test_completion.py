"""A shell that asks how a line of the command may go on is answered where argcomplete is installed."""

import os
import subprocess
import sys

import pytest


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
    command = [sys.executable, "-m", "keras_attn_export"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, timeout=60)
    assert set((tmp_path / "answer").read_text().split("|")) == answer
