"""How much memory the tensors of a model may take."""

from __future__ import annotations

import functools
import re
from pathlib import Path

from .._errors import InputError

_UNITS = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
LEAST, MOST = 2**20, 2**50


def memory_limit(asked: int | str | None) -> int:
    """Return a limit in bytes.

    Args:
        asked: Bytes, or a text such as `"2G"`, `"512MiB"`; `None` for half of what is free.

    Raises:
        InputError: It is neither, or less than 1 MiB.
    """
    if asked is None:
        return _default()
    told = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([kmgt]?)(?:i?b)?\s*", str(asked), flags=re.IGNORECASE)
    if isinstance(asked, bool) or not isinstance(asked, int | str) or told is None:
        raise InputError(
            f"A limit of memory is a number of bytes, or a text such as '2G' or '512MiB'. Received: {asked!r}."
        )
    limit = min(int(float(told[1]) * _UNITS[told[2].lower()]), MOST)
    if limit < LEAST:
        raise InputError(f"A limit of memory must be 1 MiB or more. Received: {asked!r}.")
    return limit


@functools.cache
def _default() -> int:
    """Return half of what is free at first: what a run takes for later ones is not free then."""
    return max(LEAST, free_memory() // 2)


def free_memory() -> int:
    """Return how many bytes this process may still take, by Linux and its control groups; elsewhere 4 GiB."""
    try:
        told = re.search(
            r"^MemAvailable:\s+([0-9]+) kB", Path("/proc/meminfo").read_text(encoding="ascii"), re.MULTILINE
        )
    except OSError:
        told = None
    free = int(told[1]) * 1024 if told else 4 * 2**30
    for most, used in _CONTROL_GROUPS:
        try:
            free = min(free, int(Path(most).read_text(encoding="ascii")) - int(Path(used).read_text(encoding="ascii")))
        except (OSError, ValueError):  # no such group, or one without a limit, which says `max`
            continue
    return max(free, 0)


_CONTROL_GROUPS = (
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    ("/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"),
)
