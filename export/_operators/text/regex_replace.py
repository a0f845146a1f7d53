"""Handler for `StaticRegexReplace`: tokenize into matches and the text between them, replace the matches, join.

TensorFlow's RE2 prefers the first alternative that matches, onnxruntime's `Tokenizer` the longest match. So only
unambiguous patterns are converted: sequences of repeated character classes, in which no class with a variable number of
repetitions shares a character with its possible successors.
"""

import itertools
import re
import string
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..._private_api.python_internals import parse_pattern
from ..graph_builder import RejectionReason
from ..text import character_classes
from .string_builder import CHARACTER, StringReplacement

# Represents, in a set of characters, all non-ASCII characters that a pattern does not contain literally
OTHER_CHARACTERS = ""
WHOLE_MATCH = "\\0"
# Categories of RE2, which are ASCII only: those of Python's `re` contain other characters too
CATEGORIES = {
    "CATEGORY_DIGIT": string.digits,
    "CATEGORY_SPACE": "\t\n\f\r ",
    "CATEGORY_WORD": f"{string.ascii_letters}{string.digits}_",
}


class PatternItem(NamedTuple):
    """A character class of a pattern, and its minimal and maximal number of repetitions."""

    characters: frozenset[str]
    min_count: int
    max_count: int


def static_regex_replace(graph: Any, node: Any) -> RejectionReason:
    """Convert `StaticRegexReplace` of texts of any shape to `Tokenizer`, `RegexFullMatch` and `StringConcat`."""
    # tf2onnx writes an operator of onnxruntime-extensions, which onnxruntime does not contain
    pattern, rewrite = node.get_attr_str("pattern"), node.get_attr_str("rewrite")
    first_characters = find_first_characters(pattern)
    if first_characters is None and not character_classes.is_single_character_pattern(pattern):
        return f"its pattern {pattern!r} is ambiguous: the first and the longest match may differ"
    if not node.get_attr_value("replace_global", 1) or re.search(r"\\[1-9]", rewrite):
        return "replacing only the first match, and groups in the replacement, are not supported"
    gap_class = "" if first_characters is None else _format_complement(first_characters, _alphabet(pattern))
    op = StringReplacement(graph, node)
    alternatives = [f"(?:{pattern})", *([f"{gap_class}+"] if gap_class else ()), CHARACTER]
    tokens = op.tokenize(op.inputs[0], "|".join(alternatives))
    replacement: Any
    replacement, *suffixes = [tokens if part is None else np.array(part, object) for part in _split_rewrite(rewrite)]
    # One of two adjacent parts is `tokens`, so that the result has its shape
    for suffix in suffixes:
        replacement = op.concatenate(replacement, suffix, 2)
    return op.finish_joined(op.Where(op.full_match(tokens, pattern), replacement, tokens))


def _split_rewrite(rewrite: str) -> list[str | None]:
    """Return the literal parts of a replacement, and None for each `WHOLE_MATCH`."""
    parts: list[str | None] = [""]
    for part in re.split(r"(\\.)", rewrite):
        if part == WHOLE_MATCH:
            parts.append(None)
        elif isinstance(previous := parts[-1], str):
            parts[-1] = previous + part.removeprefix("\\")
        elif part:
            parts.append(part.removeprefix("\\"))
    return [part for part in parts if part != ""] or [""]


def find_first_characters(pattern: str) -> frozenset[str] | None:
    """Return the characters that a match may begin with; None if first and longest match of the pattern may differ."""
    # Both are equal if the alternatives begin with disjoint characters, and each matches in one way only
    with warnings.catch_warnings():
        # Python warns of syntax that RE2 reads in another way, such as nested sets
        warnings.simplefilter("error")
        try:
            parsed = parse_pattern(pattern)
        except (re.error, FutureWarning, DeprecationWarning):
            return None
    if parsed.state.flags != re.UNICODE.value:  # for example (?i)
        return None
    alphabet, alternatives = _alphabet(pattern), [list(parsed)]
    if len(parsed) == 1 and str(parsed[0][0]) == "BRANCH":
        alternatives = [list(alternative) for alternative in parsed[0][1][1]]
    begins = [_find_unambiguous_begin(alternative, alphabet) for alternative in alternatives]
    sets = [begin for begin in begins if begin is not None]
    if len(sets) < len(begins) or any(first & second for first, second in itertools.combinations(sets, 2)):
        return None
    return frozenset().union(*sets)


def _alphabet(pattern: str) -> frozenset[str]:
    """Return the characters to distinguish: ASCII, those of the pattern, and `OTHER_CHARACTERS`."""
    non_ascii = (character for character in pattern if not character.isascii())
    return frozenset([*map(chr, range(1, 128)), *non_ascii, OTHER_CHARACTERS])


def _find_unambiguous_begin(parsed: Sequence[tuple[Any, Any]], alphabet: frozenset[str]) -> frozenset[str] | None:
    """Return the characters that a sequence may begin with; None if it is ambiguous or matches the empty string."""
    items = [_parse_item(str(kind), value, alphabet) for kind, value in parsed]
    sequence = [item for item in items if item is not None]
    if len(sequence) < len(items) or not any(item.min_count for item in sequence):
        return None
    for index, item in enumerate(sequence):
        if item.min_count < item.max_count and item.characters & _find_next_characters(sequence[index + 1 :]):
            return None
    return _find_next_characters(sequence)


def _find_next_characters(sequence: Sequence[PatternItem]) -> frozenset[str]:
    characters = frozenset[str]()
    for item in sequence:
        characters |= item.characters
        if item.min_count:
            break
    return characters


def _parse_item(kind: str, value: Any, alphabet: frozenset[str]) -> PatternItem | None:
    """Return a part of Python's parsed pattern as an item; None unless it is a character class or one repeated."""
    if kind == "MAX_REPEAT":
        min_count, max_count, (repeated_item, *other_items) = value
        item = None if other_items else _parse_item(str(repeated_item[0]), repeated_item[1], alphabet)
        is_class = item is not None and (item.min_count, item.max_count) == (1, 1)
        return PatternItem(item.characters, int(min_count), int(max_count)) if item is not None and is_class else None
    characters = _parse_characters(kind, value, alphabet)
    return None if characters is None else PatternItem(characters, 1, 1)


def _parse_characters(kind: str, value: Any, alphabet: frozenset[str]) -> frozenset[str] | None:
    """Return the characters of a part of Python's parsed pattern; None if it is unsupported."""
    if kind == "LITERAL":
        return frozenset([chr(value)]) & alphabet or None
    if kind == "NOT_LITERAL":
        return alphabet - {chr(value)}
    if kind == "ANY":
        return alphabet - {"\n"}
    if kind == "RANGE" and value[1] < 128:
        return frozenset(map(chr, range(max(value[0], 1), value[1] + 1)))
    if kind == "CATEGORY":
        name = str(value).replace("_NOT_", "_")
        characters = frozenset(CATEGORIES.get(name, ()))
        return (alphabet - characters if name != str(value) else characters) if characters else None
    if kind == "IN":
        parts = [_parse_characters(str(part), content, alphabet) for part, content in value if str(part) != "NEGATE"]
        sets = [part for part in parts if part is not None]
        union = frozenset().union(*sets) if len(sets) == len(parts) else None
        return alphabet - union if union is not None and str(value[0][0]) == "NEGATE" else union
    return None


def _format_complement(characters: frozenset[str], alphabet: frozenset[str]) -> str:
    """Return the RE2 class of the characters of the alphabet that are not in a set; empty if there are none."""
    # Only a negated class, [^...], contains the characters that `OTHER_CHARACTERS` represents
    is_negated = OTHER_CHARACTERS not in characters
    members = characters if is_negated else alphabet - characters
    codes = "".join(f"\\x{{{ord(character):x}}}" for character in sorted(members))
    return f"[{'^' if is_negated else ''}{codes}]" if codes else ""
