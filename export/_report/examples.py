"""Examples of a report: the inputs and predictions of single rows of a case, as text."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from .._format.manifest import Manifest, Spec
from .._format.names import Arrays, Case
from .encoding import number_text, shape_text
from .labels import Labels, joined

MAX_NUMBERS = 60  # elements of an array that are shown
MAX_SCORED_POSITIONS = 64  # positions of a sequence whose scores are shown
MAX_CLASSES = 5  # of one prediction
MAX_CLASSES_OF_POSITION = 3  # in a sequence
NUMBER_DIGITS = 6  # significant
SCORE_DIGITS = 4


class LabelledAxis(NamedTuple):
    """The words of a sequence: `axis`, its name or size, and `words`, one for each position."""

    axis: int | str
    words: list[str]


@dataclass(frozen=True)
class Prediction:
    """An output of one example.

    `rows` are the best classes of scores: a row of label and score for each class; for a sequence a row of the
    position, its labels and scores.
    """

    name: str
    text: str  # strings, labels or numbers
    is_text: bool  # of strings or labels
    has_probabilities: bool
    is_sequence: bool  # with a prediction for each position
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Example:
    """One row of a case."""

    inputs: tuple[tuple[str, str], ...]  # names and texts
    predictions: tuple[Prediction, ...]  # outputs except attention weights, texts first
    labelled_axes: tuple[LabelledAxis, ...]  # of sequences of strings, labelled ids or labelled scores


def probability_outputs(manifest: Manifest, labels: Labels, cases: Sequence[Case]) -> list[str]:
    """Return the labelled outputs that hold probabilities: finite values in [0, 1], not all equal, as in zero outputs.

    The values decide, since a graph may compute a softmax or sigmoid by other operators. Logits of all cases are
    practically never within these bounds.
    """
    names = [spec.name for spec in manifest.outputs if spec.name in labels and "float" in spec.dtype]
    return [name for name in names if _are_probabilities([case.outputs[name] for case in cases])]


def _are_probabilities(arrays: Sequence[np.ndarray]) -> bool:
    values = np.concatenate([array[np.isfinite(array)].astype(np.float64) for array in arrays])
    rounding = 1e-3  # of a float16 softmax
    return values.size > 0 and 0 <= values.min() < values.max() <= 1 + rounding


def example_of(index: int, case: Case, manifest: Manifest, labels: Labels, probabilities: Collection[str]) -> Example:
    """Return the example in one row of a case; the scores of some outputs are probabilities."""
    rows = _rows(index, case, manifest)
    words = {name: _words_of_row(row, labels.get(name)) for name, row in rows.items()}
    axes: dict[str, Any] = {spec.name: _position_axis(spec, rows[spec.name]) for spec in manifest.specs}
    lengths = {axis: max(0, int(rows[name])) for axis, name in manifest.lengths.items() if rows[name].ndim == 0}
    without_padding = {name: slice(lengths.get(axis)) for name, axis in axes.items()}  # positions within a length

    def text(name: str, digits: int | None = None) -> str:
        sequence = words[name]
        if sequence is None:
            return numbers_text(rows[name], digits)
        return joined(sequence[without_padding[name]], labels.get(name))

    def prediction(name: str) -> Prediction:
        row, is_text = rows[name], words[name] is not None
        has_classes = is_text and _is_scores(row)
        is_sequence = has_classes and axes[name] is not None
        classes = _class_rows(row[without_padding[name]], labels[name]) if has_classes else ()
        return Prediction(name, text(name, NUMBER_DIGITS), is_text, name in probabilities, is_sequence, classes)

    predictions = [prediction(spec.name) for spec in manifest.outputs if spec.name not in manifest.weights_of]
    return Example(
        inputs=tuple((spec.name, text(spec.name)) for spec in manifest.inputs),
        predictions=tuple(sorted(predictions, key=lambda output: not output.is_text)),
        labelled_axes=tuple(
            LabelledAxis(axis, labelled)
            for name, axis in axes.items()
            if axis is not None and (labelled := words[name]) is not None
        ),
    )


def _rows(index: int, case: Case, manifest: Manifest) -> Arrays:
    """Return one row of each array with a batch axis, and the others entirely."""
    arrays = {**case.inputs, **case.outputs}
    rows = {spec.name: np.asarray(arrays[spec.name]) for spec in manifest.specs}
    batched = [spec.name for spec in manifest.specs if has_batch(spec, manifest) and index < len(rows[spec.name])]
    return rows | {name: np.asarray(rows[name][index]) for name in batched}


def has_batch(spec: Spec, manifest: Manifest) -> bool:
    """Return whether the first axis of an array is the batch: any dynamic axis, or the most common static one."""
    return bool(spec.shape) and (isinstance(spec.shape[0], str) or spec.shape[0] == _batch_axis(manifest))


def batch_size(case: Case, manifest: Manifest) -> int:
    """Return the number of examples in a case."""
    arrays = {**case.inputs, **case.outputs}
    axis = _batch_axis(manifest)
    return next((len(arrays[spec.name]) for spec in manifest.specs if spec.shape and spec.shape[0] == axis), 1)


def _batch_axis(manifest: Manifest) -> int | str | None:
    specs = *manifest.outputs, *manifest.inputs  # outputs first: of equally common axes, most_common returns the first
    axes = Counter(spec.shape[0] for spec in specs if spec.shape)
    return axes.most_common(1)[0][0] if axes else None


def _is_scores(row: np.ndarray) -> bool:
    return row.dtype.kind == "f"


def _position_rank(row: np.ndarray) -> int:
    """Return the rank of a row with an axis of positions: scores have an axis of classes behind it."""
    return 2 if _is_scores(row) else 1


def _position_axis(spec: Spec, row: np.ndarray) -> int | str | None:
    """Return the axis of positions: the first one after the batch, if the array has one; `None` without positions."""
    return spec.shape[-row.ndim] if row.ndim == _position_rank(row) else None


def _words_of_row(row: np.ndarray, labels: Sequence[str] | None) -> list[str] | None:
    """Return the word at each position: a string, the label of an id or of the best class; `None` if there is none."""
    if row.ndim > _position_rank(row):
        return None
    if row.dtype.kind in "OU":
        return [str(text) for text in row.ravel()]
    if labels is None:
        return None
    if _is_scores(row):
        return [_best(scores, labels, 1)[0][0] for scores in np.atleast_2d(row)]
    return [labels[id_] if 0 <= id_ < len(labels) else str(id_) for id_ in np.atleast_1d(row).tolist()]


def _best(scores: np.ndarray, labels: Sequence[str], count: int) -> tuple[tuple[str, ...], ...]:
    """Return label and score of the classes with the highest scores, best first; only "NaN" if a score is NaN."""
    if np.isnan(scores).any():
        return (("NaN",),)
    wide = scores.astype(np.float64)
    order = np.argsort(-wide, kind="stable")[:count].tolist() if count > 1 else [int(wide.argmax())]
    return tuple((labels[index], number_text(scores[index], SCORE_DIGITS)) for index in order)


def _class_rows(scores: np.ndarray, labels: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the `rows` of a prediction; none for a single one that is NaN."""
    if scores.ndim == 1:
        return () if np.isnan(scores).any() else _best(scores, labels, MAX_CLASSES)
    return tuple(
        (str(position), *chain.from_iterable(_best(row, labels, MAX_CLASSES_OF_POSITION)))
        for position, row in enumerate(scores[:MAX_SCORED_POSITIONS])
    )


def numbers_text(row: np.ndarray, digits: int | None = None) -> str:
    """Return the elements of an array in row order, with its shape if there are several axes; many are cut."""
    numbers = " ".join(number_text(value, digits) for value in row.ravel()[:MAX_NUMBERS])
    shape = f"{shape_text(row.shape)}: " if row.ndim > 1 else ""
    more = f" … ({row.size} numbers)" if row.size > MAX_NUMBERS else ""
    return f"{shape}{numbers}{more}"
