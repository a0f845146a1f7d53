"""Whether a block of output on a page is what came."""

import re

NUMBER = re.compile(r"-?(?:\d+\.\d*|\d*\.\d+|\d+)(?:[eE][-+]?\d+)?")
MEASURED = re.compile(r"\.|[eE]")  # a number with a point or an exponent was computed, another one counted


def differs(shown: str, came: str) -> str:
    """Say where the output differs from the one that is shown, or nothing.

    A line `...` stands for any lines, `...` within a line for any text. Computed numbers differ between machines: those
    within a tenth of each other, or within 0.1, are alike, and so are all shares of a limit. So are spaces and dashes,
    which tables have as many of as their widest number needs.
    """
    lines, shown_lines = came.strip().splitlines(), shown.strip().splitlines()
    place, anywhere = 0, False
    for wanted in shown_lines:
        if wanted.strip() == "...":
            anywhere = True
            continue
        candidates = range(place, len(lines)) if anywhere else range(place, min(place + 1, len(lines)))
        match = next((at for at in candidates if alike(wanted, lines[at])), None)
        if match is None:
            came = "\n  ".join(lines[place : place + 8] or ["nothing"])
            return f"the page shows\n  {wanted}\nand what came is\n  {came}"
        place, anywhere = match + 1, False
    if place < len(lines) and not anywhere:
        return f"the page does not show what came at the end:\n  {lines[place]}"
    return ""


def alike(wanted: str, line: str) -> bool:
    """Whether two lines are the same but for spaces, what `...` stands for, and the last digits of computed numbers."""
    texts = [re.escape(squeezed(part)).replace("\0", f"({NUMBER.pattern})") for part in wanted.split("...")]
    match = re.fullmatch(r"\s*.*?\s*".join(texts), squeezed(line, keep_numbers=True))
    shown = [number for part in wanted.split("...") for number in NUMBER.findall(part)]
    return match is not None and all(map(near, shown, match.groups()))


def squeezed(text: str, *, keep_numbers: bool = False) -> str:
    """Return a line with single spaces and dashes, and numbers as placeholders."""
    text = re.sub(r"[-─━]{2,}", "--", text)
    text = re.sub(r"0\.\d+ of its limit", "some of its limit", text)
    text = text if keep_numbers else NUMBER.sub("\0", text)
    return re.sub(r"\s+", " ", text).strip()


def near(shown: str, came: str) -> bool:
    """Whether two numbers as text are alike."""
    if not MEASURED.search(shown) and not MEASURED.search(came):
        return shown == came
    return abs(float(shown) - float(came)) <= max(0.1, 0.1 * abs(float(shown)))
