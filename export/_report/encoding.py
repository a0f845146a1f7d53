"""Text forms of numbers, tensors and bytes in a report."""

import base64
import gzip
import math
from collections.abc import Iterable
from typing import Any

import numpy as np


def shape_text(shape: Iterable[int | str]) -> str:
    """Return a shape as text."""
    return " \N{MULTIPLICATION SIGN} ".join(map(str, shape)) or "a single number"


def difference_text(value: float) -> str:
    """Return a difference with two digits."""
    return f"{value:.1e}" if math.isfinite(value) else number_text(value)


def number_text(value: Any, digits: int | None = None) -> str:
    """Return an element of an array as JavaScript writes it (NaN, Infinity, true), a float with significant digits."""
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"{value:.{digits}g}" if digits else str(value).removesuffix(".0")
    return str(value)


def gzip_base64(content: bytes) -> str:
    """Return bytes, compressed, as text that a browser can decode by itself."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")
