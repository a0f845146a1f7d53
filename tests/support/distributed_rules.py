"""Which rule of a `layout_map` a weight falls under."""

import re
from collections.abc import Mapping
from typing import Any


def rule_of(path: str, rules: Mapping[str, Any]) -> Any:
    """Return what the one rule says that matches a path; None where none does."""
    found = [pattern for pattern in rules if re.fullmatch(pattern, path)]
    assert len(found) <= 1, f"{path} falls under {found}: Keras takes one rule for a weight"
    return rules[found[0]] if found else None
