"""Commands on a page: `keras-attn`, python and openssl run, further commands are checked for existence."""

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

# Commands that may be missing on this machine: they belong to systems or to packages that a page installs.
EXTERNAL_COMMANDS = re.compile(
    r"apt-get|cat|cd|cmake|cp|curl|docker|dotnet|export|g\+\+|ls|mkdir|node|npm|npx|nvidia-smi|"
    r"model_signing|openssl|python|python3|source|sudo|tar|uv"
)
PYTHON = sys.executable
PROGRAMS = {"keras-attn": [PYTHON, "-m", "keras_attn_export"], "python": [PYTHON], "openssl": ["openssl"]}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
SETTING = re.compile(r"[A-Z_]+=\S*")


def parse_commands(source: str) -> list[list[str]]:
    """Return the commands of a block as lists of words; a backslash continues a line."""
    lines = source.replace("\\\n", " ").splitlines()
    return [words for line in lines if (words := shlex.split(line, comments=True))]


def split_settings(words: list[str]) -> tuple[list[str], dict[str, str]]:
    """Return a command without its leading `NAME=VALUE` settings, and the settings."""
    count = next((number for number, word in enumerate(words) if not SETTING.fullmatch(word)), len(words))
    return words[count:], dict(word.split("=", 1) for word in words[:count])


def check_command(words: list[str]) -> None:
    """Assert that a command, its options and its extras exist, without running it."""
    command, *arguments = split_settings(words)[0]
    name = Path(command).name
    if name == "keras-attn" or arguments[:2] == ["-m", "keras_attn_export"]:
        arguments = arguments[2:] if arguments[:1] == ["-m"] else arguments
        with contextlib.redirect_stderr(io.StringIO()) as message, contextlib.redirect_stdout(io.StringIO()):
            code = 0
            try:
                command_line._build_parser().parse_args(arguments)
            except SystemExit as error:  # also of `--help`
                code = error.code
        assert not code, message.getvalue()
    elif command.startswith(("scripts/", ".ci/")):
        assert os.access(ROOT / command, os.X_OK), f"{command} is not an executable file"
    elif name == "pip" or arguments[:2] == ["-m", "pip"]:
        for extras in re.findall(r"(?:^\.|keras-attn)\[([\w,-]+)\]", "\n".join(arguments), flags=re.MULTILINE):
            unknown = set(extras.split(",")) - set(PROJECT["optional-dependencies"])
            assert not unknown, f"pyproject.toml has no extra {sorted(unknown)}"
    else:
        is_known = EXTERNAL_COMMANDS.fullmatch(name) or (ROOT / ".venv" / "bin" / name).exists()
        assert is_known, f"unknown command {command}"


def run_command(words: list[str], folder: Path, code: int = 0) -> str | None:
    """Run a command of `PROGRAMS` in a folder, and assert its exit code; check further commands without running them.

    Returns:
        The standard output, after the standard error if `code` is not 0; None for a command that did not run.
    """
    check_command(words)
    (command, *arguments), settings = split_settings(words)
    program = PROGRAMS.get(command, [command])
    if command not in PROGRAMS or arguments[:2] == ["-m", "pip"] or not shutil.which(program[0]):
        return None
    if command == "keras-attn" and not settings:
        exit_code, out, errors = _run_in_process(arguments)
    else:
        options = {"cwd": folder, "env": os.environ | settings, "timeout": 300}
        process = subprocess.run([*program, *arguments], **options, capture_output=True, text=True, check=False)
        exit_code, out, errors = process.returncode, process.stdout, process.stderr
    assert exit_code == code, f"exit code {exit_code}: {errors or out}"
    return errors + out if code else out


def _run_in_process(arguments: list[str]) -> tuple[int, str, str]:
    """Run `keras-attn` in this process, which has imported TensorFlow already."""
    imported = set(sys.modules)
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as errors:
        code = command_line.main(arguments)
    folder = Path.cwd()
    for name in set(sys.modules) - imported:  # of `--import`: another page may have a module with the same name
        if folder in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
            del sys.modules[name]
    return code, out.getvalue(), errors.getvalue()
