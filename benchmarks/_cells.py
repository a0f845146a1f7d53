"""Cells of Markdown tables, and tables of them."""

from collections.abc import Iterable
from typing import Any


def table(heads: list[str], rows: Iterable[list[str]]) -> str:
    """Return a Markdown table, the first column to the left and the others to the right."""
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def times(spread: dict[str, float]) -> str:
    """Return a median and its spread."""
    return f"{number(spread['median'])} ({number(spread['p10'])} to {number(spread['p90'])})"


def speed(row: dict[str, Any]) -> str:
    """Return how many times faster than the peer."""
    return f"{number(row['faster']['median'])}x" if row["faster"] else ""


def number(value: float) -> str:
    """Return three digits of a number, without an exponent."""
    if value == 0:
        return "0"
    text = f"{value:.3g}"
    return f"{value:.0f}" if "e+" in text else (f"{value:.6f}".rstrip("0") if "e-" in text else text)
