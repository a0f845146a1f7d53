"""Cells of Markdown tables, and tables of them."""

from collections.abc import Callable, Iterable
from typing import Any

from _stats import rows_of

Case = dict[str, Any]


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table, the first column to the left and the others to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def by_case(what: str, cases: list[Case], **columns: Callable[[Case], str]) -> str:
    """Return a table with a row for each case, a column for the times of each contestant, and others."""
    labels = list(dict.fromkeys(label for case in cases for label in rows_of(case)))
    heads = [what, *(f"{label}: ms (p10 to p90)" for label in labels), *columns]
    rows = (
        [case["size"], *(cell(case, label) for label in labels), *(column(case) for column in columns.values())]
        for case in cases
    )
    return table(heads, rows)


def cell(case: Case, label: str) -> str:
    """Return the median time of a contestant and its spread; nothing where it was not timed."""
    row = rows_of(case).get(label)
    return "{} ({} to {})".format(*(number(row["ms"][part]) for part in ("median", "p10", "p90"))) if row else ""


def factor(value: float | None) -> str:
    """Return how many times something is something else; nothing where that is not known."""
    return "" if value is None else f"{number(value)}x"


def number(value: float) -> str:
    """Return three digits of a number, without an exponent."""
    if value == 0:
        return "0"
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e+" in text else (f"{value:.6f}".rstrip("0") if "e-" in text else text)
