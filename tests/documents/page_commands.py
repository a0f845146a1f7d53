"""Commands on a page: which run, and that the others are there."""

import contextlib
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

from page_blocks import ROOT

from keras_attn_export._cli import main as command_line

# What a page may name without its being here: it belongs to systems or to what the page installs.
OF_OTHERS = re.compile(
    r"apt-get|cat|cd|cmake|cp|curl|docker|dotnet|export|g\+\+|ls|mkdir|node|npm|npx|nvidia-smi|"
    r"model_signing|openssl|python|python3|source|sudo|tar|uv"
)
PYTHON = sys.executable
PROGRAMS = {"keras-attn": [PYTHON, "-m", "keras_attn_export"], "python": [PYTHON], "openssl": ["openssl"]}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SETTING = re.compile(r"[A-Z_]+=\S*")


def commands_of(source: str) -> list[list[str]]:
    """Return the commands of a block, each as its words; lines that end in a backslash go on."""
    lines = source.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def without_settings(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Take `NAME=VALUE` off the front of a command."""
    count = next((number for number, word in enumerate(words) if not SETTING.fullmatch(word)), len(words))
    return words[count:], dict(word.split("=", 1) for word in words[:count])


def check(words: list[str]) -> None:
    """Fail where a command names what is not there."""
    command, *arguments = without_settings(words)[0]
    name = Path(command).name
    if name == "keras-attn" or arguments[:2] == ["-m", "keras_attn_export"]:
        arguments = arguments[2:] if arguments[:1] == ["-m"] else arguments
        with contextlib.redirect_stderr(io.StringIO()) as complaint, contextlib.redirect_stdout(io.StringIO()):
            code = 0
            try:
                command_line._build_parser().parse_args(arguments)
            except SystemExit as end:  # of `--help`, too
                code = end.code
        assert not code, complaint.getvalue()
    elif command.startswith(("scripts/", ".ci/")):
        assert os.access(ROOT / command, os.X_OK), f"{command} is no executable file"
    elif name == "pip" or arguments[:2] == ["-m", "pip"]:
        for extras in re.findall(r"(?:^\.|keras-attn)\[([\w,-]+)\]", "\n".join(arguments), flags=re.MULTILINE):
            unknown = set(extras.split(",")) - set(PROJECT["optional-dependencies"])
            assert not unknown, f"pyproject.toml has no extra {sorted(unknown)}"
    else:
        is_known = OF_OTHERS.fullmatch(name) or (ROOT / ".venv" / "bin" / name).exists()
        assert is_known, f"nobody knows the command {command}"


def run(words: list[str], folder: Path, code: int = 0) -> str | None:
    """Run a command that is ours, or openssl, in a folder; check the others.

    Returns:
        What it wrote to standard output, or to standard error where the exit code is not 0; None for what is not ours.
    """
    check(words)
    (command, *arguments), settings = without_settings(words)
    program = PROGRAMS.get(command, [command])
    if command not in PROGRAMS or arguments[:2] == ["-m", "pip"] or not shutil.which(program[0]):
        return None
    if command == "keras-attn" and not settings:
        found, out, errors = _run_here(arguments)
    else:
        options = {"cwd": folder, "env": os.environ | settings, "timeout": 300}
        done = subprocess.run([*program, *arguments], **options, capture_output=True, text=True, check=False)
        found, out, errors = done.returncode, done.stdout, done.stderr
    assert found == code, f"exit code {found}: {errors or out}"
    return errors + out if code else out


def _run_here(arguments: list[str]) -> tuple[int, str, str]:
    """In this process, which has imported TensorFlow already."""
    imported = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = command_line.main(arguments)
    here = Path.cwd()
    for name in set(sys.modules) - imported:  # of `--import`: another page may have a module of that name
        if here in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
            del sys.modules[name]
    return code, out.getvalue(), errors.getvalue()
