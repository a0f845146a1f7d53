"""Format numbers for commands, notebooks and reports."""


def format_bytes(count: int) -> str:
    """Return a number of bytes with a unit, such as "1.2 MB"; units are decimal."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count} bytes"
