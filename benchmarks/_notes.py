"""The lines of text below a table: who was not timed and why, when and on which machine the others were."""

import re
import textwrap
from typing import Any

WIDTH = 100  # of lines of text
LONGEST = 140  # characters of an error
REASONS = {  # by what the error says
    r"No Op registered for (\w+)": "onnxruntime has no operator `{}`.",
    r"Required inputs \(\['([^']+)'": "The file has inputs that the model does not have, such as `{}`.",
    r"code returned while running (\w+) node": "The operator `{}` fails.",
    r"(This is an invalid model)": "The file is not a valid model.",
}


def machine(environment: dict[str, Any]) -> str:
    """Return when and on what a result was measured."""
    versions = ", ".join(f"{name} {version}" for name, version in environment["versions"].items())
    processor = f"{environment['processor']}, {environment['cores']} cores ({environment['system']})"
    how = f"{environment['threads']} threads, system load {environment['load']} before"
    return wrapped(f"Measured {environment['date']}: {processor}, {how}; {versions}.")


def missing(result: dict[str, Any]) -> list[str]:
    """Return a line for each contestant that was not timed everywhere: where, and why."""
    found: dict[tuple[str, str], list[str]] = {}
    for case in result["cases"]:
        for row in case["rows"]:
            if "unavailable" in row:
                key = (row["contestant"], _reason(row["unavailable"]))
                found.setdefault(key, []).append(case.get("size") or case["model"])
    lines = [
        wrapped(f"- {contestant}: not timed for {'; '.join(dict.fromkeys(sizes))}. {reason}", "  ")
        for (contestant, reason), sizes in found.items()
    ]
    return ["\n".join(lines)] if lines else []


def _reason(error: str) -> str:
    """Return why a file was not timed: a sentence for the errors that are known, of others the start."""
    for pattern, sentence in REASONS.items():
        if said := re.search(pattern, error):
            return sentence.format(said[1])
    return error if len(error) <= LONGEST else f"{error[:LONGEST].rsplit(' ', 1)[0]} ..."


def wrapped(text: str, indent: str = "") -> str:
    """Return text in lines of at most 100 characters."""
    return textwrap.fill(text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
