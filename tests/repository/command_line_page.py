"""Tables of docs/reference/command-line.md, generated from the parser of `keras-attn`.

`python tests/repository/command_line_page.py` updates the page after a change of options.
"""

import argparse
from pathlib import Path

from keras_attn_export._cli.main import _build_parser

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.md"
COMMON_OPTIONS = ("--help", "--debug")


def list_subcommands():
    (action,) = (action for action in _build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


def format_section(name, parser):
    actions = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    rows = [format_row(action) for action in actions if not set(action.option_strings) & set(COMMON_OPTIONS)]
    table = "\n".join(["", "| argument | what it is |", "|---|---|", *rows, ""]) if rows else ""
    return f"## keras-attn {name}\n\n{parser.description}\n{table}"


def format_row(action):
    name = next((option for option in action.option_strings if option.startswith("--")), "")
    values = "" if action.nargs == 0 else action.metavar or action.dest.upper()
    text = (action.help or "") % {**vars(action), "prog": "keras-attn"}
    text = text.replace("|", r"\|")
    if action.choices and action.option_strings:
        text += ": " + ", ".join(f"`{choice}`" for choice in action.choices)
    requirement = "; must be given" if action.required and action.option_strings else ""
    return f"| `{f'{name} {values}'.strip()}` | {text}{requirement} |"


def build_page():
    """Return the page: its present introduction, and the generated tables."""
    intro = PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    return "\n".join([intro + "\n", *(format_section(name, parser) for name, parser in list_subcommands().items())])


if __name__ == "__main__":
    PAGE.write_text(build_page(), encoding="utf-8")
