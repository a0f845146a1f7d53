"""The tables of docs/reference/command-line.md, of the parser of `keras-attn`.

`python tests/repository/command_line_page.py` writes the page anew, where an option has changed.
"""

import argparse
from pathlib import Path

from keras_attn_export._cli.main import _build_parser

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "command-line.md"
OF_ALL = ("--help", "--debug")


def subcommands():
    (action,) = (action for action in _build_parser()._actions if isinstance(action, argparse._SubParsersAction))
    return dict(action.choices)


def section(name, parser):
    shown = (action for action in parser._actions if action.help != argparse.SUPPRESS)
    rows = [row(action) for action in shown if not set(action.option_strings) & set(OF_ALL)]
    table = "\n".join(["", "| argument | what it is |", "|---|---|", *rows, ""]) if rows else ""
    return f"## keras-attn {name}\n\n{parser.description}\n{table}"


def row(action):
    name = next((each for each in action.option_strings if each.startswith("--")), "")
    values = "" if action.nargs == 0 else action.metavar or action.dest.upper()
    text = (action.help or "") % {**vars(action), "prog": "keras-attn"}
    text = text.replace("|", r"\|")
    if action.choices and action.option_strings:
        text += ": " + ", ".join(f"`{choice}`" for choice in action.choices)
    needed = "; must be given" if action.required and action.option_strings else ""
    return f"| `{f'{name} {values}'.strip()}` | {text}{needed} |"


def page():
    """Return the page with the tables of the parser below its own beginning."""
    head = PAGE.read_text(encoding="utf-8").partition("\n## ")[0].rstrip()
    return "\n".join([head + "\n", *(section(name, parser) for name, parser in subcommands().items())])


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
