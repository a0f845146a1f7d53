"""Handlers for TensorFlow Text's Unicode normalization and case folding.

A text is decomposed, its marks are ordered, and pairs are composed (Unicode Standard Annex 15, UAX 15,
https://www.unicode.org/reports/tr15). Case folding is such a form too, with its own decompositions. The tables of these
steps are computed by TensorFlow Text, so that its Unicode version counts, not that of Python's `unicodedata`.
"""

import functools
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..._private_api.tensorflow_internals import eager_mode
from ..graph_builder import GraphBuilder
from ..text import character_classes
from .string_builder import CHARACTER, EMPTY, INT64, StringBuilder, StringReplacement

CASE_FOLDING = "NFKC_Casefold"
COMPOSED_FORMS = ("NFC", "NFKC", CASE_FOLDING)
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)
# Marks of the lowest and the highest combining class (1 and 240)
LOWEST_CLASS_MARK, HIGHEST_CLASS_MARK = "\u0334", "\u0345"
# Values instead of the index of a character: in no pair that composes; removed, because it was composed
NOT_IN_A_PAIR, REMOVED = -1, -2


def normalize_utf8(graph: Any, node: Any) -> None:
    """Convert `NormalizeUTF8` of texts of any shape to `Tokenizer`, `LabelEncoder`, `TopK` and a `Loop`."""
    _convert(graph, node, node.get_attr_str("normalization_form"))


def case_fold_utf8(graph: Any, node: Any) -> None:
    """Convert `CaseFoldUTF8` of texts of any shape, as `NormalizeUTF8`."""
    _convert(graph, node, CASE_FOLDING)


def _convert(graph: Any, node: Any, form: str) -> None:
    """Replace a node by the normalization of its input; `form` is a Unicode normalization form."""
    op = StringReplacement(graph, node)
    marks = _compute_mark_classes()
    decomposed = op.replace(op.tokenize(op.inputs[0], CHARACTER), _compute_decompositions(form))
    characters = _order_marks(op, op.tokenize(op.join(decomposed), CHARACTER), marks)
    op.finish_joined(_compose(op, characters, marks, _compute_pairs(form)) if form in COMPOSED_FORMS else characters)


def _normalize(form: str, texts: Sequence[str]) -> list[str]:
    # TensorFlow Text is optional, but a model with its operators cannot be loaded without it
    import tensorflow_text as tft

    with eager_mode():
        inputs = tf.constant(list(texts))
        outputs = tft.case_fold_utf8(inputs) if form == CASE_FOLDING else tft.normalize_utf8(inputs, form)
        return [text.decode() for text in outputs.numpy()]


@functools.cache
def _compute_decompositions(form: str) -> dict[str, str]:
    """Return the decompositions of characters under a form, without those of characters that stay unchanged."""
    characters = character_classes.all_characters()
    texts = _normalize("NFD", _normalize({"NFC": "NFD", "NFKC": "NFKD"}.get(form, form), characters))
    changes = {character: text for character, text in zip(characters, texts, strict=True) if character != text}
    # Hangul syllables would be composed again: 11,172 entries less in the file
    keeps_hangul = form in COMPOSED_FORMS
    return {key: text for key, text in changes.items() if not keeps_hangul or ord(key) not in HANGUL_SYLLABLES}


@functools.cache
def _compute_mark_classes() -> dict[str, int]:
    """Return the canonical combining classes of marks as TensorFlow Text orders them."""
    # A character is a mark if a mark of the highest class before it, or one of the lowest class after it, is reordered.
    # The class of a mark is the highest one whose representative stays in front of the mark.
    characters = character_classes.all_characters()
    prefixed_texts = _normalize("NFD", [HIGHEST_CLASS_MARK + character for character in characters])
    suffixed_texts = _normalize("NFD", [character + LOWEST_CLASS_MARK for character in characters])
    reordered = [
        character
        for character, after_mark, before_mark in zip(characters, prefixed_texts, suffixed_texts, strict=True)
        if not after_mark.startswith(HIGHEST_CLASS_MARK) or before_mark.startswith(LOWEST_CLASS_MARK)
    ]
    marks = [mark for mark in reordered if len(_normalize("NFD", [mark])[0]) == 1]
    representatives = {unicodedata.combining(mark): mark for mark in marks if unicodedata.combining(mark)}
    classes = dict.fromkeys(marks, 0)
    for mark_class, representative in sorted(representatives.items()):
        texts = _normalize("NFD", [representative + mark for mark in marks])
        classes |= {mark: mark_class for mark, text in zip(marks, texts, strict=True) if text[0] == representative}
    return classes


@functools.cache
def _compute_pairs(form: str) -> dict[tuple[str, str], str]:
    """Return the composed character of each pair (character, next character) that a form composes."""
    characters = character_classes.all_characters()
    texts = zip(*(_normalize(name, characters) for name in ("NFD", "NFC", form)), strict=True)
    # Composed characters are unchanged by both NFC and the form, but not by NFD
    decomposed = {
        character: nfd
        for character, (nfd, nfc, normalized) in zip(characters, texts, strict=True)
        if nfc == normalized == character != nfd
    }
    first_texts = _normalize("NFC", [nfd[:-1] for nfd in decomposed.values()])
    pairs = zip(decomposed.items(), first_texts, strict=True)
    return {(first, nfd[-1]): character for (character, nfd), first in pairs if len(first) == 1}


def _order_marks(op: StringBuilder, characters: str, marks: Mapping[str, int]) -> str:
    """Return characters, (texts, max characters), with the marks after each starter sorted by class."""
    # UAX 15, canonical ordering: a stable sort by (number of starters up to here, class). Classes are below 256, so the
    # key (256 * starters + class) * columns + column has this order, and no two keys are equal.
    classes = op.look_up(characters, marks, 0)
    starters = op.CumSum(op.Cast(op.Equal(classes, np.int64(0)), to=INT64), np.int64(1))
    columns = op.dims(characters, 1, 2)
    keys = op.Add(op.Mul(starters, np.int64(256)), classes)
    keys = op.Add(op.Mul(keys, columns), op.column_indices(characters))
    (order,) = op.multi_output("TopK", [False, True], keys, columns, axis=1, largest=0, sorted=1)
    return op.GatherElements(characters, order, axis=1)


def _compose(op: StringBuilder, characters: str, marks: Mapping[str, int], pairs: Mapping[tuple[str, str], str]) -> str:
    """Return characters, (texts, max characters), with pairs composed; empty strings replace second characters."""
    # UAX 15, canonical composition: from the left, each character is composed with the last starter (a character of
    # class 0) if both are a pair and the character is not blocked. The character is blocked if a character between both
    # has the same or a higher class. A `Loop` runs over the columns, for all texts at once, on int64 indices of the
    # characters that occur in pairs.
    units = sorted({unit for pair, composition in pairs.items() for unit in (*pair, composition)})
    unit_indices = {unit: index for index, unit in enumerate(units)}
    keys = [unit_indices[first] * len(units) + unit_indices[second] for first, second in pairs]
    compositions = {key: unit_indices[unit] for key, unit in zip(keys, pairs.values(), strict=True)}
    start = op.look_up(characters, unit_indices, NOT_IN_A_PAIR)
    classes = op.look_up(characters, marks, 0)
    minus_ones = op.Expand(np.int64(-1), op.concat_shape(op.dims(characters, 0, 1), 1))
    for name in (start, minus_ones):
        op.graph.set_shape(name, [-1, -1])

    def step(body: GraphBuilder, index: str, row: str, last_starter: str, last_class: str) -> list[str]:
        """Compose the character of one column, (texts, 1), with the last starter."""
        # The state is the indices of all characters, (texts, max characters), the column of the last starter, -1 if
        # there is none, and the class of the last character that was not composed, (texts, 1)
        op = StringBuilder(body.graph)
        column = op.Reshape(index, [1])
        mark_class = op.Gather(classes, column, axis=1)
        unit = op.Gather(row, column, axis=1)
        # Look up the pair as one number; -1 if one of both characters is in no pair
        starter = op.Max(last_starter, np.int64(0))
        starter_unit = op.GatherElements(row, starter, axis=1)
        pair = op.Add(op.Mul(starter_unit, np.int64(len(units))), unit)
        pair = op.Where(op.Less(op.Min(starter_unit, unit), np.int64(0)), np.int64(-1), pair)
        composition = op.look_up(pair, compositions, NOT_IN_A_PAIR)
        # Composed if there is a starter, the two are a pair, and nothing between them blocks the character
        is_unblocked = op.Or(op.Less(last_class, np.int64(1)), op.Less(last_class, mark_class))
        has_starter = op.GreaterOrEqual(last_starter, np.int64(0))
        is_pair = op.GreaterOrEqual(composition, np.int64(0))
        is_composed = op.And(op.And(is_unblocked, has_starter), is_pair)
        # The starter becomes the composed character, and the second one is removed
        column_of_texts = op.Expand(column, op.Shape(last_starter))
        row = op.ScatterElements(row, starter, op.Where(is_composed, composition, starter_unit), axis=1)
        unit = op.GatherElements(row, column_of_texts, axis=1)
        row = op.ScatterElements(row, column_of_texts, op.Where(is_composed, np.int64(REMOVED), unit), axis=1)
        # A character of class 0 that was not composed is the next starter
        is_starter = op.And(op.Not(is_composed), op.Equal(mark_class, np.int64(0)))
        return [row, op.Where(is_starter, column_of_texts, last_starter), op.Where(is_composed, last_class, mark_class)]

    end = op.for_loop(op.dims(characters, 1, 2), step, start, minus_ones, minus_ones)[0]
    is_removed = op.Equal(end, np.int64(REMOVED))
    is_changed = op.Not(op.Equal(end, start))
    composition = op.Gather(np.array([*units, ""], object), op.Max(end, np.int64(0)), axis=0)
    return op.Where(is_removed, EMPTY, op.Where(is_changed, composition, characters))
