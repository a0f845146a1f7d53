"""Handler for `StaticRegexReplace`, by tokens that match or lie between matches.

TensorFlow and onnxruntime read patterns by one library, RE2, but TensorFlow takes the first way in which a pattern
matches, and onnxruntime's `Tokenizer` the longest. So a pattern is written where there is but one way: characters that
may be repeated, none of which could as well be the next.
"""

import itertools
import re
import string
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..graph_builder import Refusal
from ..text import character_classes
from .string_builder import CHARACTER, StringReplacement

OTHER_CHARACTERS = ""  # stands for all characters beyond ASCII that are not in a pattern themselves
WHOLE_MATCH = "\\0"  # what matched, in what stands in its place
CATEGORIES = {  # of RE2, to which they are of ASCII
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_SPACE": "\t\n\f\r ",
    "CATEGORY_WORD": f"{string.ascii_letters}{string.digits}_",
}


class PatternItem(NamedTuple):
    """Characters at one place of a pattern, and how many of them at least and at most."""

    characters: frozenset[str]
    min_count: int
    max_count: int


def static_regex_replace(graph: Any, node: Any) -> Refusal:
    """Convert `StaticRegexReplace`: tokens that match are replaced, and all tokens are joined."""
    pattern, rewrite = node.get_attr_str("pattern"), node.get_attr_str("rewrite")
    begins = find_first_characters(pattern)
    if begins is None and not character_classes.is_single_character_pattern(pattern):
        return f"the pattern {pattern!r} may match in several ways"
    if not node.get_attr_value("replace_global", 1) or re.search(r"\\[1-9]", rewrite):
        return "a replacement of the first match only, or with groups of the match, is not supported"
    between = "" if begins is None else _format_complement(begins, _alphabet(pattern))
    op = StringReplacement(graph, node)
    alternatives = [f"(?:{pattern})", *([f"{between}+"] if between else ()), CHARACTER]
    tokens = op.tokenize(op.inputs[0], "|".join(alternatives))
    first, *others = [tokens if part is None else np.array(part, object) for part in _split_rewrite(rewrite)]
    replacement: Any = first
    for part in others:  # of two adjacent parts one is the tokens, whose shape the result has
        replacement = op.concatenate(replacement, part, 2)
    return op.finish_joined(op.Where(op.full_match(tokens, pattern), replacement, tokens))


def _split_rewrite(rewrite: str) -> list[str | None]:
    """Return the parts of a replacement: `None` is the match."""
    parts: list[str | None] = [""]
    for part in re.split(r"(\\.)", rewrite):
        if part == WHOLE_MATCH:
            parts.append(None)
        elif isinstance(before := parts[-1], str):
            parts[-1] = before + part.removeprefix("\\")
        elif part:
            parts.append(part.removeprefix("\\"))
    return [part for part in parts if part != ""] or [""]


def find_first_characters(pattern: str) -> frozenset[str] | None:
    """Return the characters that a match may begin with; `None` where the longest match may be another than the first.

    Args:
        pattern: That of TensorFlow.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of what RE2 reads otherwise than Python
        try:
            parsed = re._parser.parse(pattern)  # type: ignore[attr-defined]
        except (re.error, FutureWarning, DeprecationWarning):
            return None
    if parsed.state.flags != re.UNICODE.value:  # as (?i)
        return None
    everything, choices = _alphabet(pattern), [list(parsed)]
    if len(parsed) == 1 and str(parsed[0][0]) == "BRANCH":
        choices = [list(each) for each in parsed[0][1][1]]
    begins = [_find_unambiguous_begin(items, everything) for items in choices]
    known = [each for each in begins if each is not None]
    if len(known) < len(begins) or any(one & other for one, other in itertools.combinations(known, 2)):
        return None
    return frozenset().union(*known)


def _alphabet(pattern: str) -> frozenset[str]:
    return frozenset([*map(chr, range(1, 128)), *(each for each in pattern if not each.isascii()), OTHER_CHARACTERS])


def _find_unambiguous_begin(parsed: Sequence[tuple[Any, Any]], everything: frozenset[str]) -> frozenset[str] | None:
    """Return what a sequence may begin with, if there is one way only to match it, and never nothing."""
    items = [_parse_item(str(kind), value, everything) for kind, value in parsed]
    sequence = [item for item in items if item is not None]
    if len(sequence) < len(items) or not any(item.min_count for item in sequence):
        return None
    for place, item in enumerate(sequence):
        if item.min_count < item.max_count and item.characters & _find_next_characters(sequence[place + 1 :]):
            return None
    return _find_next_characters(sequence)


def _find_next_characters(sequence: Sequence[PatternItem]) -> frozenset[str]:
    """Return the characters that may come first."""
    found = frozenset[str]()
    for item in sequence:
        found |= item.characters
        if item.min_count:
            break
    return found


def _parse_item(kind: str, value: Any, everything: frozenset[str]) -> PatternItem | None:
    if kind == "MAX_REPEAT":
        least, most, (inner, *others) = value
        item = None if others else _parse_item(str(inner[0]), inner[1], everything)
        once = item is not None and (item.min_count, item.max_count) == (1, 1)
        return PatternItem(item.characters, int(least), int(most)) if item is not None and once else None
    found = _parse_characters(kind, value, everything)
    return None if found is None else PatternItem(found, 1, 1)


def _parse_characters(kind: str, value: Any, everything: frozenset[str]) -> frozenset[str] | None:
    """Return the characters of a part of a pattern, as Python's parser has it; `None` where they are not known."""
    if kind == "LITERAL":
        return frozenset([chr(value)]) & everything or None
    if kind == "NOT_LITERAL":
        return everything - {chr(value)}
    if kind == "ANY":
        return everything - {"\n"}
    if kind == "RANGE" and value[1] < 128:
        return frozenset(map(chr, range(max(value[0], 1), value[1] + 1)))
    if kind == "CATEGORY":
        name = str(value).replace("_NOT_", "_")
        found = frozenset(CATEGORIES.get(name, ()))
        return (everything - found if name != str(value) else found) if found else None
    if kind == "IN":
        parts = [_parse_characters(str(part), of, everything) for part, of in value if str(part) != "NEGATE"]
        known = [part for part in parts if part is not None]
        within = frozenset().union(*known) if len(known) == len(parts) else None
        return everything - within if within is not None and str(value[0][0]) == "NEGATE" else within
    return None


def _format_complement(characters: frozenset[str], everything: frozenset[str]) -> str:
    """Return the class of RE2 of all other characters, nothing if there are none."""
    is_listed = OTHER_CHARACTERS in characters
    listed = everything - characters if is_listed else characters
    codes = "".join(f"\\x{{{ord(each):x}}}" for each in sorted(listed))
    return f"[{'' if is_listed else '^'}{codes}]" if codes else ""
