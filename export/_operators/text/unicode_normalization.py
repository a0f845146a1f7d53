"""Handlers for TensorFlow Text's Unicode normalization and case folding.

A text is decomposed, its marks are put in order, and pairs are composed (https://www.unicode.org/reports/tr15). Case
folding is such a form too, with decompositions of its own.
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
HANGUL_SYLLABLES = range(0xAC00, 0xD7A4)  # of Hangul
LOWEST_CLASS_MARK, HIGHEST_CLASS_MARK = "\u0334", "\u0345"  # marks of the first class and of the last
NOT_IN_A_PAIR, REMOVED = -1, -2  # in the place of the number of a character: none that is in a pair, and none any more


def normalize_utf8(graph: Any, node: Any) -> None:
    """Convert `NormalizeUTF8`."""
    _convert(graph, node, node.get_attr_str("normalization_form"))


def case_fold_utf8(graph: Any, node: Any) -> None:
    """Convert `CaseFoldUTF8`."""
    _convert(graph, node, CASE_FOLDING)


def _convert(graph: Any, node: Any, form: str) -> None:
    op = StringReplacement(graph, node)
    marks = _compute_mark_classes()
    decomposed = op.replace(op.tokenize(op.inputs[0], CHARACTER), _compute_decompositions(form))
    characters = _order_marks(op, op.tokenize(op.join(decomposed), CHARACTER), marks)
    op.finish_joined(_compose(op, characters, marks, _compute_pairs(form)) if form in COMPOSED_FORMS else characters)


def _normalize(form: str, texts: Sequence[str]) -> list[str]:
    """Return a form of texts as TensorFlow Text has it."""
    import tensorflow_text  # which is there: the model has its operators

    with eager_mode():
        given = tf.constant(list(texts))
        made = (
            tensorflow_text.case_fold_utf8(given)
            if form == CASE_FOLDING
            else tensorflow_text.normalize_utf8(given, form)
        )
        return [each.decode() for each in made.numpy()]


@functools.cache
def _compute_decompositions(form: str) -> dict[str, str]:
    """Return what becomes of characters; syllables of Hangul are left whole where they would be composed again."""
    everyone = character_classes.all_characters()
    made = _normalize("NFD", _normalize({"NFC": "NFD", "NFKC": "NFKD"}.get(form, form), everyone))
    found = {each: other for each, other in zip(everyone, made, strict=True) if each != other}
    return {
        each: other for each, other in found.items() if form not in COMPOSED_FORMS or ord(each) not in HANGUL_SYLLABLES
    }


@functools.cache
def _compute_mark_classes() -> dict[str, int]:
    """Return the classes of marks: of marks behind each other, those of a lower class are put before others."""
    everyone = character_classes.all_characters()
    before, behind = (
        _normalize("NFD", [HIGHEST_CLASS_MARK + each for each in everyone]),
        _normalize("NFD", [each + LOWEST_CLASS_MARK for each in everyone]),
    )
    moved = [
        each
        for each, one, other in zip(everyone, before, behind, strict=True)
        if not one.startswith(HIGHEST_CLASS_MARK) or other.startswith(LOWEST_CLASS_MARK)
    ]
    marks = [each for each in moved if len(_normalize("NFD", [each])[0]) == 1]
    of_class = {unicodedata.combining(each): each for each in marks if unicodedata.combining(each)}
    found = dict.fromkeys(marks, 0)
    for number in sorted(of_class):
        after = _normalize("NFD", [of_class[number] + each for each in marks])
        found |= {each: number for each, text in zip(marks, after, strict=True) if text[0] == of_class[number]}
    return found


@functools.cache
def _compute_pairs(form: str) -> dict[tuple[str, str], str]:
    """Return what two characters, the second behind the first, are composed to."""
    everyone = character_classes.all_characters()
    parts = [_normalize("NFD", everyone), _normalize("NFC", everyone), _normalize(form, everyone)]
    whole = [(each, apart) for each, apart, *same in zip(everyone, *parts, strict=True) if {*same} == {each} != {apart}]
    first = _normalize("NFC", [apart[:-1] for _, apart in whole])
    return {(one, apart[-1]): each for (each, apart), one in zip(whole, first, strict=True) if len(one) == 1}


def _order_marks(op: StringBuilder, characters: str, marks: Mapping[str, int]) -> str:
    """Return characters, (texts, max characters), with the marks behind each letter in the order of their classes.

    UAX 15, canonical ordering: a stable sort by (number of letters so far, class), here by the key
    (256 letters + class) columns + column.
    """
    classes = op.look_up(characters, marks, 0)
    letters = op.CumSum(op.Cast(op.Equal(classes, np.int64(0)), to=INT64), np.int64(1))
    most = op.dims(characters, 1, 2)
    keys = op.Add(op.Mul(letters, np.int64(256)), classes)
    keys = op.Add(op.Mul(keys, most), op.column_indices(characters))
    (order,) = op.write_outputs("TopK", [False, True], keys, most, axis=1, largest=0, sorted=1)
    return op.GatherElements(characters, order, axis=1)


def _compose(op: StringBuilder, characters: str, marks: Mapping[str, int], pairs: Mapping[tuple[str, str], str]) -> str:
    """Return characters, (texts, max characters), with pairs composed; empty strings replace second characters.

    UAX 15, canonical composition: from the left, each character is composed with the last starter (a character of
    class 0) if both are a pair and the character is not blocked. It is blocked if a character between both has a class
    that is not lower. A `Loop` goes through the columns, for all texts at once, with numbers for the characters that
    are in pairs.
    """
    units = sorted({unit for pair, composed in pairs.items() for unit in (*pair, composed)})
    number = {unit: index for index, unit in enumerate(units)}
    composed_units = {
        number[one] * len(units) + number[other]: number[composed] for (one, other), composed in pairs.items()
    }
    before = op.look_up(characters, number, NOT_IN_A_PAIR)
    classes = op.look_up(characters, marks, 0)
    unset = op.Expand(np.int64(-1), op.vector(op.dims(characters, 0, 1), 1))
    for name in (before, unset):
        op.graph.set_shape(name, [-1, -1])

    def step(body: GraphBuilder, index: str, row: str, last_starter: str, last_class: str) -> list[str]:
        """Compose the character of one column, (texts, 1), with the last starter.

        Args:
            body: The builder of the loop's body.
            index: The column.
            row: The numbers of all characters, (texts, max characters).
            last_starter: The column of the last starter, (texts, 1), -1 if there is none.
            last_class: The class of the character before, without those composed, (texts, 1).
        """
        op = StringBuilder(body.graph)
        column = op.Reshape(index, [1])
        mark_class = op.Gather(classes, column, axis=1)
        unit = op.Gather(row, column, axis=1)
        # The pair of both as one number, looked up; -1 if one of them is in no pair
        starter = op.Max(last_starter, np.int64(0))
        first = op.GatherElements(row, starter, axis=1)
        pair = op.Add(op.Mul(first, np.int64(len(units))), unit)
        pair = op.Where(op.Less(op.Min(first, unit), np.int64(0)), np.int64(-1), pair)
        composed = op.look_up(pair, composed_units, NOT_IN_A_PAIR)
        # Composed if there is a starter, the two are a pair, and nothing between them blocks the character
        is_unblocked = op.Or(op.Less(last_class, np.int64(1)), op.Less(last_class, mark_class))
        has_starter = op.GreaterOrEqual(last_starter, np.int64(0))
        is_pair = op.GreaterOrEqual(composed, np.int64(0))
        is_composed = op.And(op.And(is_unblocked, has_starter), is_pair)
        # The starter becomes the composed character, and the second one is removed
        here = op.Expand(column, op.Shape(last_starter))
        row = op.ScatterElements(row, starter, op.Where(is_composed, composed, first), axis=1)
        unit = op.GatherElements(row, here, axis=1)
        row = op.ScatterElements(row, here, op.Where(is_composed, np.int64(REMOVED), unit), axis=1)
        # A character of class 0 that is left is the next starter
        is_starter = op.And(op.Not(is_composed), op.Equal(mark_class, np.int64(0)))
        return [row, op.Where(is_starter, here, last_starter), op.Where(is_composed, last_class, mark_class)]

    after = op.for_loop(op.dims(characters, 1, 2), step, before, unset, unset)[0]
    is_gone = op.Equal(after, np.int64(REMOVED))
    is_changed = op.Not(op.Equal(after, before))
    composed = op.Gather(np.array([*units, ""], object), op.Max(after, np.int64(0)), axis=0)
    return op.Where(is_gone, EMPTY, op.Where(is_changed, composed, characters))
