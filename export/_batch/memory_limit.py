"""Memory limits of a run, and recognition of errors that report a lack of memory."""

import re

from .._errors import InputError
from .._machine import measure_available_memory

UNIT_BYTES = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
# onnxruntime has no error class for a lack of memory. These texts come from its arena, C++ and CUDA.
MESSAGES = ("available memory of", "failed to allocate memory", "bad_alloc", "bad allocation", "out of memory")


def parse_memory_limit(requested: int | str | None) -> int:
    """Return a limit in bytes for a number of bytes, a text such as "2G", or None for half of the available memory."""
    if requested is None:
        return max(2**20, measure_available_memory() // 2)
    match = re.fullmatch(r"(\d+(?:\.\d+)?) *([kmgt]?)(?:i?b)?", str(requested).strip().lower())
    limit = int(float(match[1]) * UNIT_BYTES[match[2]]) if match else 0
    if not 2**20 <= limit < 2**63:
        raise InputError(
            f"`limit_memory` must be bytes or a text such as '2G', of 1 MiB or more. Received: {requested}."
        )
    return limit


def is_out_of_memory(error: Exception) -> bool:
    """Return True if an error reports a lack of memory."""
    return isinstance(error, MemoryError) or any(message in str(error).lower() for message in MESSAGES)
