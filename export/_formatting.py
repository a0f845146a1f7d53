"""Numbers as text, for commands, notebooks and reports."""


def bytes_text(count: int) -> str:
    """Return a number of bytes in the largest unit of which there is at least one."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
