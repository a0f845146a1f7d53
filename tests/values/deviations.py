"""Differences between onnxruntime and TensorFlow that no cheap combination of ONNX operators avoids."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Deviation(NamedTuple):
    """A row of the table.

    Attributes:
        operators: Types of ONNX operators.
        kind: Kind of value: `"NaN"` (also the result of infinities in a model), `"infinity"`, `"an axis of 0"` or
            `"rounding"`.
        reason: The difference, as the end of a sentence.
    """

    operators: tuple[str, ...]
    kind: str
    reason: str


_ALL_CHANNELS = "TensorFlow adds channels out of reach too, multiplied by zero"
DEVIATIONS = (
    Deviation(
        ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "MaxPool", "GlobalMaxPool", "TopK"),
        "NaN",
        "onnxruntime keeps or ignores a NaN, depending on its position",
    ),
    Deviation(("MaxPool",), "infinity", "TensorFlow gives the lowest finite number for a window of -infinity"),
    Deviation(("Softmax", "LogSoftmax"), "infinity", "a row with an infinity is all NaN in onnxruntime"),
    Deviation(("Softmax",), "NaN", "a row with a NaN is all NaN in onnxruntime"),
    Deviation(("LRN",), "NaN", _ALL_CHANNELS),
    Deviation(("LRN",), "infinity", _ALL_CHANNELS),
    Deviation(("LSTM", "GRU", "RNN"), "NaN", "onnxruntime clips the inputs of gates, which turns NaN into a number"),
    Deviation(("LSTM", "GRU", "RNN"), "infinity", "onnxruntime clips the inputs of gates"),
    Deviation(("Reshape",), "an axis of 0", "onnxruntime does not reshape empty tensors to computed sizes"),
    Deviation(
        ("MaxPool", "AveragePool"), "an axis of 0", "onnxruntime may give a number for an axis shorter than the window"
    ),
    Deviation(
        ("Cast",), "rounding", "a cast to integers depends on the last bit of the float, here of Lanczos's sines"
    ),
)


def find_deviation(operators: Iterable[str], kind: str) -> Deviation | None:
    """Return the row for one of these operators and a kind of value, or None."""
    types = {*operators}
    return next((row for row in DEVIATIONS if row.kind == kind and types.intersection(row.operators)), None)
