"""Numbers and bytes as a page has them."""

from __future__ import annotations

import base64
import gzip
import math
from typing import Any


def bytes_text(count: int) -> str:
    """Return a number of bytes in the unit that suits it."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"


def count_text(count: int) -> str:
    """Return a whole number with its thousands apart."""
    return f"{count:,}"


def number(value: Any) -> str:
    """Return a small number as it is read; reports hold what is not finite as text."""
    return f"{value:.1e}" if isinstance(value, int | float) and math.isfinite(value) else str(value)


def packed(raw: bytes) -> str:
    """Return bytes, compressed, as text; a browser has what it takes to unpack them."""
    return base64.b64encode(gzip.compress(raw, 9, mtime=0)).decode("ascii")
