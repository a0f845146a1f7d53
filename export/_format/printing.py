"""Escaping of names from a bundle, and the table of comparisons."""

import re
from collections.abc import Iterable, Mapping
from typing import Any

# Characters without a visible glyph that `str.isprintable` accepts: fillers and variation selectors.
_INVISIBLE = re.compile("[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")


def escape_unprintable(text: str) -> str:
    """Escape control, line-break, bidirectional and invisible characters, which could forge output of a terminal."""
    pairs = ((char, char.encode("unicode_escape").decode()) for char in text)
    return "".join(char if char.isprintable() and not _INVISIBLE.match(char) else code for char, code in pairs)


def format_rows(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Format comparisons as the lines of a table."""
    table = [("case", "output", "shape", "max abs", "max rel", "of limit", "")]
    for row in rows:
        verdict = "ok" if row["passed"] else f"FAILED: {row['problem']}"
        verdict += f" ({row['ties']} decided by rounding)" if row["ties"] else ""
        shape = "x".join(map(str, row["shape"])) or "scalar"
        numbers = f"{row['max_abs']:.1e}", f"{row['max_rel']:.1e}", f"{row['of_limit']:.2g}"
        table.append((escape_unprintable(row["case"]), escape_unprintable(row["name"]), shape, *numbers, verdict))
    widths = [max(len(line[column]) for line in table) for column in range(6)]  # the verdict is last
    return ["  ".join([*map(str.ljust, line[:6], widths), line[6]]) for line in table]
