"""Private interface of Python's `re` module."""

import re
from typing import Any


def parse_pattern(pattern: str) -> Any:
    """Return the syntax tree of a regular expression; `sre_parse` is its deprecated public name."""
    return re._parser.parse(pattern)  # type: ignore[attr-defined]
