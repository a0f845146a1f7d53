"""`Ndtri`, the quantiles of the normal distribution, and `Erfinv`, which TensorFlow takes from them.

The rational approximations are those of Cephes (S. Moshier, `ndtri.c`), in the order in which Eigen adds them up: near
zero the inverse of the error function has the digits that are left of (1 + x) / 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from .writing import Replacement, Value, Writer


def _numbers(text: str) -> list[float]:
    return [float(each) for each in text.split()]


MIDDLE = (
    _numbers("-59.9633501014107895 98.0010754185999662 -56.6762857469070293 13.9312609387279680 -1.23916583867381258"),
    _numbers("""1 1.95448858338141760 4.67627912898881538 86.3602421390890591 -225.462687854119371
             200.260212380060660 -82.0372256168333340 15.9056225126211696 -1.18331621121330003"""),
)
TAIL = (
    _numbers("""4.05544892305962420 31.5251094599893867 57.1628192246421288 44.0805073893200835 14.6849561928858024
             2.18663306850790268 -0.140256079171354496 -0.0350424626827848203 -0.000857456785154685414"""),
    _numbers("""1 15.7799883256466750 45.3907635128879211 41.3172038254672031 15.0425385692907503
             2.50464946208309416 -0.142182922854787789 -0.0380806407691578277 -0.000933259480895457427"""),
)
FAR = (
    _numbers("""3.23774891776946036 6.91522889068984212 3.93881025292474443 1.33303460815807542 0.201485389549179082
             0.0123716634817820021 0.000301581553508235416 2.65806974686737551e-6 6.23974539184983294e-9"""),
    _numbers("""1 6.02427039364742014 3.67983563856160860 1.37702099489081330 0.216236993594496636
             0.0134204006088543189 0.000328014464682127739 2.89247864745380684e-6 6.79019408009981274e-9"""),
)
EDGE = 0.13533528323661269189  # exp(-2): below it, and as far from 1, are the tails


def quantile(graph: Any, node: Any) -> None:
    """`Ndtri` and `Erfinv` of floats."""
    dtype = tensor_dtype_to_np_dtype(node.output_dtypes[0])
    write = Replacement(graph, node)

    def number(value: float) -> np.ndarray:
        return np.array(value, dtype)

    (share,) = write.inputs
    if node.type == "Erfinv":
        share = write("Add", write("Mul", share, number(0.5)), number(0.5))
    above = write("Greater", share, number(1 - EDGE))
    small = write("Where", above, write("Sub", number(1), share), share)
    centred = write("Sub", small, number(0.5))
    square = write("Mul", centred, centred)
    moved = write("Mul", centred, write("Mul", square, _ratio(write, square, MIDDLE, dtype)))
    middle = write("Mul", write("Add", centred, moved), number(np.sqrt(2 * np.pi)))
    depth = write("Sqrt", write("Mul", write("Log", small), number(-2)))
    inverse = write("Div", number(1), depth)
    near, far = (write("Mul", inverse, _ratio(write, inverse, each, dtype)) for each in (TAIL, FAR))
    tail = write("Sub", depth, write("Div", write("Log", depth), depth))
    tail = write("Sub", tail, write("Where", write("Less", depth, number(8)), near, far))
    tail = write("Where", above, tail, write("Neg", tail))
    found = write("Where", write("Greater", small, number(EDGE)), middle, tail)
    for end, value in ((0, -np.inf), (1, np.inf)):
        found = write("Where", write("Equal", share, number(end)), number(value), found)
    write.last("Mul", found, number(np.sqrt(0.5) if node.type == "Erfinv" else 1))


def _ratio(write: Writer, x: str, polynomials: Sequence[Sequence[float]], dtype: np.dtype[Any]) -> str:
    """Write a ratio of two polynomials, the coefficient of the highest power first."""
    over, under = (_polynomial(write, x, each, dtype) for each in polynomials)
    return write("Div", over, under)


def _polynomial(write: Writer, x: str, coefficients: Sequence[float], dtype: np.dtype[Any]) -> Value:
    found: Value = np.array(coefficients[0], dtype)
    for each in coefficients[1:]:
        found = write("Add", write("Mul", found, x), np.array(each, dtype))
    return found
