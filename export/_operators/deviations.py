"""What onnxruntime or TensorFlow does otherwise than the other, and no standard operator of ONNX mends cheaply.

An export warns of a row where its file gives something else for a value of that kind. One that an operator gives for
any other kind is an error.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Deviation(NamedTuple):
    """A row of the table.

    Attributes:
        operators: Types of ONNX operators.
        kind: The kind of value: `"NaN"`, which models make of infinities too, `"infinity"` or `"large integers"`; or of
            what no case of an export holds, `"an axis of 0"` or `"rounding"`.
        why: What differs, as the end of a sentence.
    """

    operators: tuple[str, ...]
    kind: str
    why: str


_ALL_CHANNELS = "TensorFlow adds all channels, those that are not near times zero"
DEVIATIONS = (
    Deviation(
        ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin", "MaxPool", "GlobalMaxPool", "TopK"),
        "NaN",
        "onnxruntime takes or passes over NaN by where it stands",
    ),
    Deviation(("MaxPool",), "infinity", "of nothing but -infinity TensorFlow gives the lowest finite number"),
    Deviation(("Softmax", "LogSoftmax"), "infinity", "beside an infinity onnxruntime gives NaN everywhere"),
    Deviation(("Softmax",), "NaN", "beside a NaN onnxruntime gives NaN everywhere"),
    Deviation(("LRN",), "NaN", _ALL_CHANNELS),
    Deviation(("LRN",), "infinity", _ALL_CHANNELS),
    Deviation(("LSTM", "GRU", "RNN"), "NaN", "onnxruntime bounds what goes into its gates, and NaN is then a bound"),
    Deviation(("LSTM", "GRU", "RNN"), "infinity", "onnxruntime bounds what goes into its gates"),
    Deviation(
        ("ReduceSum", "ReduceProd", "ReduceMean", "CumSum", "Cast", "Pow"),
        "large integers",
        "what does not fit the integer type is not the same number everywhere",
    ),
    Deviation(("Reshape",), "an axis of 0", "onnxruntime does not reshape what is empty to sizes that it computes"),
    Deviation(("MaxPool", "AveragePool"), "an axis of 0", "an axis below its window may give a number in onnxruntime"),
    Deviation(("Cast",), "rounding", "what a float is cut to hangs on its last bit, as that of Lanczos's sines"),
)


def deviation(operators: Iterable[str], kind: str) -> Deviation | None:
    """Return the row for one of these operators and a kind of value, if there is one."""
    return next((each for each in DEVIATIONS if each.kind == kind and {*operators}.intersection(each.operators)), None)


def operators_for(kind: str) -> set[str]:
    """Return the operators that have a row for a kind of value."""
    return {operator for each in DEVIATIONS if each.kind == kind for operator in each.operators}
