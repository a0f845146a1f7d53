"""What docs/howto/distributed-training.md shows, taken from there, so that the page is what the tests run."""

import re
from pathlib import Path
from typing import Any

import keras

PAGE = Path(__file__).resolve().parents[2] / "docs" / "howto" / "distributed-training.md"


def block_with(text):
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    (found,) = [block for block in blocks if text in block]
    return found


def rules():
    """Return the page's rules: for paths of weights, as expressions, the axis of the mesh for each axis of theirs."""
    names: dict[str, Any] = {}
    exec(re.findall(r"^RULES = \{.*?^\}", block_with("RULES = {"), flags=re.MULTILINE | re.DOTALL)[0], names)
    return dict(names["RULES"])


def rule_of(path, rules):
    """Return what the one rule says that matches a path; None where none does."""
    found = [pattern for pattern in rules if re.fullmatch(pattern, path)]
    assert len(found) <= 1, f"{path} falls under {found}: Keras takes one rule for a weight"
    return rules[found[0]] if found else None


def layout_of(mesh):
    layout = keras.distribution.LayoutMap(mesh)
    for path, axes in rules().items():
        layout[path] = axes
    return layout
