"""Comparison of the output on a page with the actual output."""

import re

NUMBER = re.compile(r"-?(?:\d+\.\d*|\d*\.\d+|\d+)(?:[eE][-+]?\d+)?")
MEASURED = re.compile(r"\.|[eE]")  # a point or an exponent: computed numbers may differ, counts may not


def describe_difference(shown: str, actual: str) -> str:
    """Describe the first difference between the shown and the actual output; an empty string if they match.

    A line `...` matches any lines, `...` within a line any text. Computed numbers differ between machines: they match
    within a tenth or within 0.1, and all shares of a limit match. Runs of spaces or dashes match whatever their length,
    because tables have columns as wide as their widest number.
    """
    lines, shown_lines = actual.strip().splitlines(), shown.strip().splitlines()
    position, may_skip = 0, False
    for expected in shown_lines:
        if expected.strip() == "...":
            may_skip = True
            continue
        candidates = range(position, len(lines)) if may_skip else range(position, min(position + 1, len(lines)))
        match = next((index for index in candidates if lines_match(expected, lines[index])), None)
        if match is None:
            following = "\n  ".join(lines[position : position + 8] or ["nothing"])
            return f"the page shows\n  {expected}\nbut the output is\n  {following}"
        position, may_skip = match + 1, False
    if position < len(lines) and not may_skip:
        return f"the page does not show the end of the output:\n  {lines[position]}"
    return ""


def lines_match(shown: str, line: str) -> bool:
    """Return True if two lines differ only in spaces, text for `...`, and the last digits of computed numbers."""
    texts = [re.escape(normalize_line(part)).replace("\0", f"({NUMBER.pattern})") for part in shown.split("...")]
    match = re.fullmatch(r"\s*.*?\s*".join(texts), normalize_line(line, keep_numbers=True))
    numbers = [number for part in shown.split("...") for number in NUMBER.findall(part)]
    return match is not None and all(map(numbers_match, numbers, match.groups()))


def normalize_line(text: str, *, keep_numbers: bool = False) -> str:
    """Return a line with single spaces and dashes, and numbers as placeholders."""
    text = re.sub(r"[-─━]{2,}", "--", text)
    text = re.sub(r"0\.\d+ of its limit", "some of its limit", text)
    text = text if keep_numbers else NUMBER.sub("\0", text)
    return re.sub(r"\s+", " ", text).strip()


def numbers_match(shown: str, actual: str) -> bool:
    """Return True if two numbers, given as text, match."""
    if not MEASURED.search(shown) and not MEASURED.search(actual):
        return shown == actual
    return abs(float(shown) - float(actual)) <= max(0.1, 0.1 * abs(float(shown)))
