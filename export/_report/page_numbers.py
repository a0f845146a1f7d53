"""Numbers as a page shows them."""

from __future__ import annotations


def bytes_text(count: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def count_text(count: int) -> str:
    """Return a whole number with its thousands apart."""
    return f"{count:,}"
