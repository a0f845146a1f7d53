"""Format the examples of a report. An example shows one row of a golden case: its inputs and the predictions."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from .._format.manifest import Manifest, Spec
from .._format.names import Arrays, Case
from .encoding import format_number, format_shape
from .labels import Labels, join_words

MAX_NUMBERS = 60  # displayed elements of an array
MAX_SCORED_POSITIONS = 64  # displayed positions of a sequence with scores
MAX_CLASSES = 5  # displayed classes of a prediction without positions
MAX_CLASSES_OF_POSITION = 3  # displayed classes of one position
NUMBER_DIGITS = 6  # significant digits of an output
SCORE_DIGITS = 4  # significant digits of the score of a class


class LabelledAxis(NamedTuple):
    """Axis of a sequence. Each position has a word: a string, the label of an id, or the label of the best class."""

    dim: int | str  # static size, or name of a dynamic axis
    words: list[str]


@dataclass(frozen=True)
class Prediction:
    """Output of one example."""

    name: str
    text: str  # words (strings or labels), or numbers
    has_words: bool  # True if `text` consists of words
    has_probabilities: bool
    is_sequence: bool  # True if each position has a prediction
    # Rows of the best classes: (label, score) for each class, in a sequence (position, label, score, ...) per position
    class_rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Example:
    """Row of a case."""

    inputs: tuple[tuple[str, str], ...]  # names and texts
    predictions: tuple[Prediction, ...]  # outputs except attention weights, texts first
    labelled_axes: tuple[LabelledAxis, ...]  # one per sequence of strings, labelled ids or labelled scores


def find_probability_outputs(manifest: Manifest, labels: Labels, cases: Sequence[Case]) -> list[str]:
    """Return the names of labelled outputs whose finite values are probabilities: all in [0, 1], and not all equal."""
    # The values of all cases are tested, since a graph may compute a softmax or sigmoid by other operators. Logits are
    # practically never within these bounds in all cases. Constant outputs, such as zeros, are no probabilities.
    names = [spec.name for spec in manifest.outputs if spec.name in labels and "float" in spec.dtype]
    return [name for name in names if _are_probabilities([case.outputs[name] for case in cases])]


def _are_probabilities(arrays: Sequence[np.ndarray]) -> bool:
    values = np.concatenate([array[np.isfinite(array)].astype(np.float64) for array in arrays])
    rounding = 1e-3  # rounding error of a float16 softmax
    return values.size > 0 and 0 <= values.min() < values.max() <= 1 + rounding


def build_example(index: int, case: Case, manifest: Manifest, labels: Labels, probability_names: list[str]) -> Example:
    """Build the example of row `index` of a case. The outputs in `probability_names` are probabilities."""
    rows = _select_rows(index, case, manifest)
    words = {name: _find_words(row, labels.get(name)) for name, row in rows.items()}
    position_dims: dict[str, Any] = {spec.name: _find_position_dim(spec, rows[spec.name]) for spec in manifest.specs}
    lengths = {axis: max(0, int(rows[name])) for axis, name in manifest.lengths.items() if rows[name].ndim == 0}
    valid_positions = {name: slice(lengths.get(dim)) for name, dim in position_dims.items()}

    def format_value(name: str, digits: int | None = None) -> str:
        sequence = words[name]
        if sequence is None:
            return format_numbers(rows[name], digits)
        return join_words(sequence[valid_positions[name]], labels.get(name))

    def build_prediction(name: str) -> Prediction:
        row, has_words = rows[name], words[name] is not None
        has_classes = has_words and _has_scores(row)
        is_sequence = has_classes and position_dims[name] is not None
        classes = _format_classes(row[valid_positions[name]], labels[name]) if has_classes else ()
        text = format_value(name, NUMBER_DIGITS)
        return Prediction(name, text, has_words, name in probability_names, is_sequence, classes)

    predictions = [build_prediction(spec.name) for spec in manifest.outputs if spec.name not in manifest.weights_of]
    return Example(
        inputs=tuple((spec.name, format_value(spec.name)) for spec in manifest.inputs),
        predictions=tuple(sorted(predictions, key=lambda output: not output.has_words)),
        labelled_axes=tuple(
            LabelledAxis(dim, axis_words)
            for name, dim in position_dims.items()
            if dim is not None and (axis_words := words[name]) is not None
        ),
    )


def _select_rows(index: int, case: Case, manifest: Manifest) -> Arrays:
    """Return row `index` of each array with a batch axis, and the other arrays unchanged."""
    arrays = {**case.inputs, **case.outputs}
    rows = {spec.name: np.asarray(arrays[spec.name]) for spec in manifest.specs}
    batched = [spec.name for spec in manifest.specs if has_batch(spec, manifest) and index < len(rows[spec.name])]
    return rows | {name: np.asarray(rows[name][index]) for name in batched}


def has_batch(spec: Spec, manifest: Manifest) -> bool:
    """Return True if the first axis of an array is the batch: it is dynamic or has the most common first size."""
    return bool(spec.shape) and (isinstance(spec.shape[0], str) or spec.shape[0] == _find_batch_dim(manifest))


def count_examples(case: Case, manifest: Manifest) -> int:
    """Return the number of examples in a case."""
    arrays = {**case.inputs, **case.outputs}
    dim = _find_batch_dim(manifest)
    return next((len(arrays[spec.name]) for spec in manifest.specs if spec.shape and spec.shape[0] == dim), 1)


def _find_batch_dim(manifest: Manifest) -> int | str | None:
    # Of equally common dims, `most_common` returns the first one. Outputs come first, so that theirs is preferred
    specs = *manifest.outputs, *manifest.inputs
    dim_counts = Counter(spec.shape[0] for spec in specs if spec.shape)
    return dim_counts.most_common(1)[0][0] if dim_counts else None


def _has_scores(row: np.ndarray) -> bool:
    return row.dtype.kind == "f"


def _get_sequence_rank(row: np.ndarray) -> int:
    """Return the rank of a row with positions: 1, or 2 for scores, whose second axis has the classes."""
    return 2 if _has_scores(row) else 1


def _find_position_dim(spec: Spec, row: np.ndarray) -> int | str | None:
    """Return the dim of the axis of positions, the first axis after the batch; None if the row has no such axis."""
    return spec.shape[-row.ndim] if row.ndim == _get_sequence_rank(row) else None


def _find_words(row: np.ndarray, labels: Sequence[str] | None) -> list[str] | None:
    """Return the word of each position: a string, or the label of an id or of the best class; None if there is none."""
    if row.ndim > _get_sequence_rank(row):
        return None
    if row.dtype.kind in "OU":
        return [str(text) for text in row.ravel()]
    if labels is None:
        return None
    if _has_scores(row):
        return [_find_best_classes(scores, labels, 1)[0][0] for scores in np.atleast_2d(row)]
    return [labels[token] if 0 <= token < len(labels) else str(token) for token in np.atleast_1d(row).tolist()]


def _find_best_classes(scores: np.ndarray, labels: Sequence[str], count: int) -> tuple[tuple[str, ...], ...]:
    """Return (label, score) of the `count` best classes, the best first. Return (("NaN",),) if a score is NaN."""
    if np.isnan(scores).any():
        return (("NaN",),)
    scores64 = scores.astype(np.float64)
    order = np.argsort(-scores64, kind="stable")[:count].tolist() if count > 1 else [int(scores64.argmax())]
    return tuple((labels[index], format_number(scores[index], SCORE_DIGITS)) for index in order)


def _format_classes(scores: np.ndarray, labels: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    """Return the `class_rows` of a prediction. Scores without positions give no rows if one of them is NaN."""
    if scores.ndim == 1:
        return () if np.isnan(scores).any() else _find_best_classes(scores, labels, MAX_CLASSES)
    return tuple(
        (str(position), *chain.from_iterable(_find_best_classes(row, labels, MAX_CLASSES_OF_POSITION)))
        for position, row in enumerate(scores[:MAX_SCORED_POSITIONS])
    )


def format_numbers(row: np.ndarray, digits: int | None = None) -> str:
    """Format the first elements of an array in row order. The shape comes first if the array has several axes."""
    numbers = " ".join(format_number(value, digits) for value in row.ravel()[:MAX_NUMBERS])
    shape = f"{format_shape(row.shape)}: " if row.ndim > 1 else ""
    omitted_text = f" … ({row.size} numbers)" if row.size > MAX_NUMBERS else ""
    return f"{shape}{numbers}{omitted_text}"
