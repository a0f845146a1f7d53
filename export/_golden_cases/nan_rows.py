"""Rows of a batch on which Keras gives NaN: replaced, so that a golden case compares all other rows."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from .._format.names import Arrays
from .input_generators import Source


def nan_rows(inputs: Arrays, outputs: Arrays) -> np.ndarray:
    """Return a mask of the rows on which an output is NaN.

    The mask is empty if inputs and outputs do not agree in their first axis, or if every row has NaN.
    """
    sizes = {array.shape[:1] for array in (*inputs.values(), *outputs.values())}
    if len(sizes) != 1 or sizes & {(), (0,)}:
        return np.zeros(0, bool)
    floats = [array for array in outputs.values() if array.dtype.kind == "f" and array.size]
    rows = np.any([np.isnan(array).reshape(len(array), -1).any(1) for array in floats], axis=0)
    return rows if np.ndim(rows) and not rows.all() else np.zeros(0, bool)


def with_other_rows(inputs: Arrays, rows: np.ndarray) -> Arrays:
    """Return inputs whose masked rows are replaced with copies of the other rows."""
    index = np.arange(len(rows))
    index[rows] = np.resize(index[~rows], np.count_nonzero(rows))
    return {name: array[index] for name, array in inputs.items()}


def texts_of(sources: Mapping[str, Source], inputs: Arrays, rows: np.ndarray) -> dict[str, list[str]]:
    """Return by input of strings the texts in masked rows."""
    names = [name for name, source in sources.items() if source.words]
    return {name: [" ".join(row) for row in inputs[name][rows].reshape(np.count_nonzero(rows), -1)] for name in names}
