"""Print lines on terminals of any encoding."""

import sys
from typing import TextIO

from .printing import escape_unprintable


def print_escaped(*lines: str, file: TextIO | None = None) -> None:
    """Print lines, by default to standard output; escape characters that are unprintable or not in its encoding."""
    stream = sys.stdout if file is None else file
    encoding = getattr(stream, "encoding", None) or "utf-8"
    for line in lines:
        print(escape_unprintable(line).encode(encoding, "backslashreplace").decode(encoding), file=stream)


def join_lines(message: object) -> str:
    """Return a message in one line, with single spaces."""
    return " ".join(str(message).split())
