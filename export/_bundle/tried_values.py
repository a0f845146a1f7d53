"""What was tried of each input, in words: "integers 1 to 59; -1, 60 equal", "normal floats; NaN differs in ..."."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def values_text(known: Mapping[str, Any]) -> str:
    """Return what golden cases held of an input, as `inspect` and the manifest say it; see `coverage_of`.

    Nothing where a report of an earlier version does not tell.
    """
    if not (values := known.get("values")):
        return ""
    equal = [f"{', '.join(values['equal'])} equal"] if values.get("equal") else []
    differ = [f"{kind} differs in {found['in']}" for kind, found in values.get("differ", {}).items()]
    return "; ".join([values["drawn"], *equal, *differ])


def differences(coverage: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence for each kind of value that a file gives something else for."""
    for name, known in coverage["inputs"].items():
        for kind, found in known.get("values", {}).get("differ", {}).items():
            why = f": {found['why']}" if found["why"] else ""
            yield f"Where input `{name}` holds {kind}, the file differs from Keras, in {found['in']}{why}."
