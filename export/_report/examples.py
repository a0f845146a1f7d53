"""Examples of a report: the inputs and predictions of single rows of a case, as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._standalone.verify import Arrays, Case, Manifest, Spec
from .encoding import number_text, shape_text
from .labels import Labels, joined

MAX_NUMBERS = 60  # elements of an array that are shown
MAX_SCORED_POSITIONS = 64  # positions of a sequence whose scores are shown
BEST = 5  # labels of one prediction
BEST_OF_SEQUENCE = 3  # labels of each position of a sequence
DIGITS = 6
SCORE_DIGITS = 4

Words = tuple[int | str, list[str]]  # the second axis of a sequence: its name or size, and a word for each position


@dataclass(frozen=True)
class Prediction:
    """An output of one example.

    Attributes:
        name: The name of the output.
        text: Strings, labels or numbers.
        is_text: Whether the text consists of strings or labels.
        has_probabilities: Whether the scores are probabilities.
        is_sequence: Whether there is a prediction for each position.
        rows: The best classes of scores: a row of label and score for each class; for a sequence a row of the position,
            its labels and scores.
    """

    name: str
    text: str
    is_text: bool
    has_probabilities: bool = False
    is_sequence: bool = False
    rows: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class Example:
    """One row of a case.

    Attributes:
        inputs: Name and text of each input.
        predictions: Those outputs that are not attention weights, texts first.
        words: The words of each labelled sequence.
    """

    inputs: tuple[tuple[str, str], ...]
    predictions: tuple[Prediction, ...]
    words: tuple[Words, ...]


def probability_outputs(manifest: Manifest, labels: Labels, cases: Iterable[Case]) -> list[str]:
    """Return the labelled outputs that hold probabilities: all finite values are between 0 and 1, and they differ.

    The values decide, since a graph may compute a softmax or sigmoid by other operators. Logits of all cases are
    practically never within these bounds.
    """
    cases = list(cases)
    names = [spec.name for spec in manifest.outputs if spec.name in labels and "float" in spec.dtype]
    return [name for name in names if _are_probabilities([case.outputs[name] for case in cases])]


def _are_probabilities(arrays: Sequence[np.ndarray]) -> bool:
    values = np.concatenate([array[np.isfinite(array)].astype(np.float64) for array in arrays])
    rounding = 1e-3  # of a float16 softmax
    return values.size > 0 and 0 <= values.min() < values.max() <= 1 + rounding


def example_of(index: int, case: Case, manifest: Manifest, labels: Labels, probabilities: Collection[str]) -> Example:
    """Return one example of a case.

    Args:
        index: The index of its row.
        case: The arrays.
        manifest: The manifest of the bundle.
        labels: Labels by the name of an input or output.
        probabilities: The outputs whose scores are probabilities (`probability_outputs`).
    """
    rows = _rows(index, case, manifest)
    lengths = {axis: max(0, int(rows[name])) for axis, name in manifest.lengths.items() if rows[name].ndim == 0}
    words = {spec.name: _words(rows[spec.name], labels.get(spec.name)) for spec in manifest.specs}

    def cut(spec: Spec, sequence: Any) -> Any:
        return sequence[: lengths.get(str(spec.shape[1]))] if len(spec.shape) > 1 else sequence

    def text(spec: Spec, digits: int | None = None) -> str:
        sequence = words[spec.name]
        if sequence is None:
            return numbers_text(rows[spec.name], digits)
        return joined(cut(spec, sequence), labels.get(spec.name))

    def prediction(spec: Spec) -> Prediction:
        row, is_text = rows[spec.name], words[spec.name] is not None
        if row.dtype.kind != "f" or not is_text:
            return Prediction(spec.name, text(spec, DIGITS), is_text)
        is_sequence = _has_positions(row)
        best = _sequence_rows(cut(spec, row), labels[spec.name]) if is_sequence else _best(row, labels[spec.name], BEST)
        return Prediction(spec.name, text(spec), is_text, spec.name in probabilities, is_sequence, best)

    predictions = (prediction(spec) for spec in manifest.outputs if spec.name not in manifest.weights_of)
    return Example(
        inputs=tuple((spec.name, text(spec)) for spec in manifest.inputs),
        predictions=tuple(sorted(predictions, key=lambda output: not output.is_text)),
        words=tuple(
            (spec.shape[1], sequence)
            for spec in manifest.specs
            if (sequence := words[spec.name]) is not None and _has_positions(rows[spec.name])
        ),
    )


def _rows(index: int, case: Case, manifest: Manifest) -> Arrays:
    """Return one row of each array with a batch axis, and the others entirely."""
    arrays = {**case.inputs, **case.outputs}
    rows = {}
    for spec in manifest.specs:
        array = np.asarray(arrays[spec.name])
        has_row = has_batch(spec, manifest) and index < len(array)
        rows[spec.name] = np.asarray(array[index]) if has_row else array
    return rows


def has_batch(spec: Spec, manifest: Manifest) -> bool:
    """Return whether the first axis of an array is the batch: any dynamic axis, or the most common static one."""
    return bool(spec.shape) and (isinstance(spec.shape[0], str) or spec.shape[0] == _batch_axis(manifest))


def batch_size(case: Case, manifest: Manifest) -> int:
    """Return the number of examples in a case."""
    arrays = {**case.inputs, **case.outputs}
    axis = _batch_axis(manifest)
    return next((len(arrays[spec.name]) for spec in manifest.specs if spec.shape and spec.shape[0] == axis), 1)


def _batch_axis(manifest: Manifest) -> int | str | None:
    specs = *manifest.outputs, *manifest.inputs  # of axes that are equally common, that of an output
    axes = Counter(spec.shape[0] for spec in specs if spec.shape)
    return axes.most_common(1)[0][0] if axes else None


def _has_positions(row: np.ndarray) -> bool:
    """Return whether a row has an axis of positions: one before the axis of classes, if the row holds scores."""
    return row.ndim == (2 if row.dtype.kind == "f" else 1)


def _words(row: np.ndarray, labels: Sequence[str] | None) -> list[str] | None:
    """Return the word at each position: a string, the label of an id or of the best class; `None` if there is none."""
    if row.dtype.kind in "OU":
        return [str(text) for text in row.ravel()] if row.ndim <= 1 else None
    if labels is None or row.ndim > (2 if row.dtype.kind == "f" else 1):
        return None
    if row.dtype.kind == "f":
        return [(_best(scores, labels, 1) or [("NaN",)])[0][0] for scores in np.atleast_2d(row)]
    return [labels[id_] if 0 <= id_ < len(labels) else str(id_) for id_ in np.atleast_1d(row).tolist()]


def _best(scores: np.ndarray, labels: Sequence[str], count: int) -> tuple[tuple[str, str], ...]:
    """Return label and score of the classes with the highest scores, best first; none if a score is NaN."""
    if np.isnan(scores).any():
        return ()
    order = np.argsort(-scores.astype(np.float64), kind="stable")[:count].tolist()
    return tuple((labels[index], number_text(scores[index], SCORE_DIGITS)) for index in order)


def _sequence_rows(positions: np.ndarray, labels: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    best = [_best(scores, labels, BEST_OF_SEQUENCE) for scores in positions[:MAX_SCORED_POSITIONS]]
    return tuple(
        (str(index), *(text for pair in pairs or [("NaN",)] for text in pair)) for index, pairs in enumerate(best)
    )


def numbers_text(row: np.ndarray, digits: int | None = None) -> str:
    """Return the elements of an array in row order, with its shape if there are several axes; many are cut."""
    numbers = " ".join(number_text(value, digits) for value in row.ravel()[:MAX_NUMBERS])
    shape = f"{shape_text(row.shape)}: " if row.ndim > 1 else ""
    more = f" … ({row.size} numbers)" if row.size > MAX_NUMBERS else ""
    return f"{shape}{numbers}{more}"
