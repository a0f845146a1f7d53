"""What a fault is, and where in a tree of files it goes."""

from dataclasses import dataclass
from pathlib import Path

MUTATED = ("keras_attn", "export", "examples")


class StaleFaultError(Exception):
    """A fault that no longer fits the code: its snippet is gone or ambiguous, or a test file is."""


@dataclass(frozen=True)
class Fault:
    """A line that is wrong.

    Attributes:
        name: What is wrong, in a few words.
        snippet: Code that occurs exactly once in `keras_attn/`, `export/` and `examples/`.
        replacement: What stands there instead.
        tests: Where it should be seen, best first: the stem of a test file anywhere below `tests/`, and options of
            pytest that narrow it, such as `test_masking -k causal`.
        equivalent: Why no test can see it; empty for all others.
    """

    name: str
    snippet: str
    replacement: str
    tests: tuple[str, ...]
    equivalent: str = ""


def fault(name: str, snippet: str, replacement: str, *tests: str, equivalent: str = "") -> Fault:
    """A fault, its tests as arguments of their own."""
    return Fault(name, snippet, replacement, tests, equivalent)


def sources(root: Path) -> dict[Path, str]:
    """The text of every file that may be mutated."""
    files = (file for folder in MUTATED for file in sorted((root / folder).rglob("*.py")))
    return {file: file.read_text(encoding="utf-8") for file in files}


def place_of(fault: Fault, texts: dict[Path, str]) -> Path:
    """The one file that holds the snippet.

    Raises:
        StaleFaultError: It occurs nowhere, or more than once.
    """
    count = sum(text.count(fault.snippet) for text in texts.values())
    if count != 1:
        raise StaleFaultError(f"{fault.name}: its snippet occurs {count} times, and must once: {fault.snippet!r}")
    return next(file for file, text in texts.items() if fault.snippet in text)


def arguments_for(root: Path, tests: str) -> list[str]:
    """The arguments of pytest for an entry of `Fault.tests`.

    Raises:
        StaleFaultError: There is not exactly one such test file.
    """
    stem, *options = tests.split()
    found = sorted((root / "tests").rglob(f"{stem}.py"))
    if len(found) != 1:
        raise StaleFaultError(f"there must be one {stem}.py below tests/, and there are {len(found)}")
    return [str(found[0].relative_to(root)), *options]
