"""Text forms of numbers, shapes and bytes in a report."""

import base64
import gzip
import math
from collections.abc import Iterable
from typing import Any

import numpy as np


def format_shape(shape: Iterable[int | str]) -> str:
    """Format a shape as sizes with multiplication signs between them, and the empty shape of a scalar in words."""
    return " \N{MULTIPLICATION SIGN} ".join(map(str, shape)) or "a single number"


def format_difference(value: float) -> str:
    """Format a difference with two significant digits."""
    return f"{value:.1e}" if math.isfinite(value) else format_number(value)


def format_number(value: Any, digits: int | None = None) -> str:
    """Format an element of an array as JavaScript does: NaN, Infinity, true.

    A finite float gets `digits` significant digits. If `digits` is None, it gets the fewest that identify it.
    """
    if isinstance(value, bool | np.bool_):
        return str(bool(value)).lower()
    if isinstance(value, float | np.floating):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return f"{value:.{digits}g}" if digits else str(value).removesuffix(".0")
    return str(value)


def encode_gzip_base64(content: bytes) -> str:
    """Compress bytes to text that a browser decodes without a library."""
    return base64.b64encode(gzip.compress(content, 9, mtime=0)).decode("ascii")
