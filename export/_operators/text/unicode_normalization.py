"""Handlers for TensorFlow Text's Unicode normalization and case folding.

A text is decomposed, its marks are put in order, and pairs are composed (https://www.unicode.org/reports/tr15). Case
folding is such a form too, with decompositions of its own.
"""

from __future__ import annotations

import functools
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from ..._private_api.tensorflow_internals import eager_mode
from ..graph_builder import Writer
from ..text import character_classes
from .string_builder import CHARACTER, EMPTY, INT64, Strings, Text

FOLDED = "NFKC_Casefold"
COMPOSED = ("NFC", "NFKC", FOLDED)
SYLLABLES = range(0xAC00, 0xD7A4)  # of Hangul
LOWEST, HIGHEST = "\u0334", "\u0345"  # marks of the first class and of the last
NO_UNIT, GONE = -1, -2  # in the place of the number of a character: none that is in a pair, and none any more


def normalize(graph: Any, node: Any) -> None:
    """`NormalizeUTF8`."""
    _write(graph, node, node.get_attr_str("normalization_form"))


def fold(graph: Any, node: Any) -> None:
    """`CaseFoldUTF8`."""
    _write(graph, node, FOLDED)


def _write(graph: Any, node: Any, form: str) -> None:
    write, marks = Text(graph, node), _marks()
    decomposed = write.exchanged(write.tokens(write.inputs[0], CHARACTER), _decompositions(form))
    characters = write.tokens(write.joined(decomposed), CHARACTER)
    characters = _in_order(write, characters, marks)
    write.join(_composed(write, characters, marks, _pairs(form)) if form in COMPOSED else characters)


def _of(form: str, texts: Sequence[str]) -> list[str]:
    """Return a form of texts as TensorFlow Text has it."""
    import tensorflow_text  # which is there: the model has its operators

    with eager_mode():
        given = tf.constant(list(texts))
        made = tensorflow_text.case_fold_utf8(given) if form == FOLDED else tensorflow_text.normalize_utf8(given, form)
        return [each.decode() for each in made.numpy()]


@functools.cache
def _decompositions(form: str) -> dict[str, str]:
    """Return what becomes of characters; syllables of Hangul are left whole where they would be composed again."""
    everyone = character_classes.everyone()
    made = _of("NFD", _of({"NFC": "NFD", "NFKC": "NFKD"}.get(form, form), everyone))
    found = {each: other for each, other in zip(everyone, made, strict=True) if each != other}
    return {each: other for each, other in found.items() if form not in COMPOSED or ord(each) not in SYLLABLES}


@functools.cache
def _marks() -> dict[str, int]:
    """Return the classes of marks: of marks behind each other, those of a lower class are put before others."""
    everyone = character_classes.everyone()
    before, behind = _of("NFD", [HIGHEST + each for each in everyone]), _of("NFD", [each + LOWEST for each in everyone])
    moved = [
        each
        for each, one, other in zip(everyone, before, behind, strict=True)
        if not one.startswith(HIGHEST) or other.startswith(LOWEST)
    ]
    marks = [each for each in moved if len(_of("NFD", [each])[0]) == 1]
    of_class = {unicodedata.combining(each): each for each in marks if unicodedata.combining(each)}
    found = dict.fromkeys(marks, 0)
    for number in sorted(of_class):
        after = _of("NFD", [of_class[number] + each for each in marks])
        found |= {each: number for each, text in zip(marks, after, strict=True) if text[0] == of_class[number]}
    return found


@functools.cache
def _pairs(form: str) -> dict[tuple[str, str], str]:
    """Return what two characters, the second behind the first, are composed to."""
    everyone = character_classes.everyone()
    parts = [_of("NFD", everyone), _of("NFC", everyone), _of(form, everyone)]
    whole = [(each, apart) for each, apart, *same in zip(everyone, *parts, strict=True) if {*same} == {each} != {apart}]
    first = _of("NFC", [apart[:-1] for _, apart in whole])
    return {(one, apart[-1]): each for (each, apart), one in zip(whole, first, strict=True) if len(one) == 1}


def _in_order(write: Strings, characters: str, marks: Mapping[str, int]) -> str:
    """Return characters, (texts, most), with the marks behind each letter in the order of their classes."""
    classes = write.looked_up(characters, marks, 0)
    letters = write("CumSum", write("Cast", write("Equal", classes, np.int64(0)), to=INT64), np.int64(1))
    most = write.sizes(characters, 1, 2)
    keys = write("Add", write("Mul", letters, np.int64(256)), classes)
    keys = write("Add", write("Mul", keys, most), write.columns(characters))
    _, order = write.all_of("TopK", 2, keys, most, axis=1, largest=0, sorted=1)
    return write("GatherElements", characters, order, axis=1)


def _composed(write: Strings, characters: str, marks: Mapping[str, int], pairs: Mapping[tuple[str, str], str]) -> str:
    """Return characters with pairs as one; empty strings stand where the second was."""
    units = sorted({each for pair, whole in pairs.items() for each in (*pair, whole)})
    number = {each: place for place, each in enumerate(units)}
    known = {number[one] * len(units) + number[other]: number[whole] for (one, other), whole in pairs.items()}
    before = write.looked_up(characters, number, NO_UNIT)
    classes = write.looked_up(characters, marks, 0)
    none = write("Expand", np.int64(-1), write("Concat", write.sizes(characters, 0, 1), [1], axis=0))
    for each in (before, none):
        write.graph.set_shape(each, [-1, -1])

    def step(writer: Writer, number: str, made: str, letter: str, last: str) -> list[str]:
        inner = Strings(writer.graph)
        place = inner("Reshape", number, [1])
        mark, unit = inner("Gather", classes, place, axis=1), inner("Gather", made, place, axis=1)
        at = inner("Max", letter, np.int64(0))
        first = inner("GatherElements", made, at, axis=1)
        pair = inner("Add", inner("Mul", first, np.int64(len(units))), unit)
        pair = inner("Where", inner("Less", inner("Min", first, unit), np.int64(0)), np.int64(-1), pair)
        whole = inner.looked_up(pair, known, NO_UNIT)
        is_near = inner("Or", inner("Less", last, np.int64(1)), inner("Less", last, mark))
        is_one = inner(
            "And",
            inner("And", is_near, inner("GreaterOrEqual", letter, np.int64(0))),
            inner("GreaterOrEqual", whole, np.int64(0)),
        )
        here = inner("Expand", place, inner("Shape", letter))
        made = inner("ScatterElements", made, at, inner("Where", is_one, whole, first), axis=1)
        unit = inner("GatherElements", made, here, axis=1)
        made = inner("ScatterElements", made, here, inner("Where", is_one, np.int64(GONE), unit), axis=1)
        is_letter = inner("And", inner("Not", is_one), inner("Equal", mark, np.int64(0)))
        return [made, inner("Where", is_letter, here, letter), inner("Where", is_one, last, mark)]

    count = write("Squeeze", write.sizes(characters, 1, 2), [0])
    made = write.repeated(count, [before, none, none], step)[0]
    is_gone, is_other = write("Equal", made, np.int64(GONE)), write("Not", write("Equal", made, before))
    whole = write("Gather", np.array([*units, ""], object), write("Max", made, np.int64(0)), axis=0)
    return write("Where", is_gone, EMPTY, write("Where", is_other, whole, characters))
