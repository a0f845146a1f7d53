"""Rules that rewrite operators on complex numbers with real and imaginary parts.

Each form gets what writes operators of TensorFlow on parts (`split_complex.py`), and the parts of what its node reads;
it returns those of what the node makes, or makes the node itself read real numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Pair = tuple[str, str]


def _part(number: int) -> Callable[[Any, Pair], None]:
    """`Real` and `Imag`."""
    return lambda write, z: write.reads(z[number], op="Identity")


def _angle(write: Any, z: Pair) -> None:
    write.reads(z[1], z[0], op="Atan2")


def _conjugate(write: Any, z: Pair) -> Pair:
    return z[0], write("Neg", z[1])


def _transposed_conjugate(write: Any, z: Pair, order: Pair) -> Pair:
    real, imaginary = (write("Transpose", part, order[0]) for part in z)
    return real, write("Neg", imaginary)


def _product(write: Any, a: Pair, b: Pair) -> Pair:
    """Of numbers or of matrices, by the node's own operator."""
    return (
        write("Sub", write.same(a[0], b[0]), write.same(a[1], b[1])),
        write("AddV2", write.same(a[0], b[1]), write.same(a[1], b[0])),
    )


def _matrix_product(write: Any, a: Pair, b: Pair) -> Pair:
    """A product whose operator takes the conjugate of what it transposes."""
    return _product(write, *(write.adjoint(z, side) for z, side in ((a, "x"), (b, "y"))))


def _square(write: Any, z: Pair) -> Pair:
    real = write("Sub", write("Square", z[0]), write("Square", z[1]))
    product = write("Mul", *z)
    return real, write("AddV2", product, product)


def _quotient(write: Any, a: Pair, b: Pair) -> Pair:
    """(a + ib) / (c + id), with c and d scaled by the larger, so that no square leaves the range of float32."""
    scale = write("Maximum", write("Abs", b[0]), write("Abs", b[1]))
    c, d = (write("RealDiv", part, scale) for part in b)
    whole = write("AddV2", write("Mul", b[0], c), write("Mul", b[1], d))
    real = write("AddV2", write("Mul", a[0], c), write("Mul", a[1], d))
    imaginary = write("Sub", write("Mul", a[1], c), write("Mul", a[0], d))
    return write("RealDiv", real, whole), write("RealDiv", imaginary, whole)


def _reciprocal(write: Any, z: Pair) -> Pair:
    one, zero = write("OnesLike", z[0]), write("ZerosLike", z[0])
    return _quotient(write, (one, zero), z)


def _exponential(write: Any, z: Pair) -> Pair:
    size = write("Exp", z[0])
    return write("Mul", size, write("Cos", z[1])), write("Mul", size, write("Sin", z[1]))


def _logarithm(write: Any, z: Pair) -> Pair:
    return write("Log", write.size(z)), write("Atan2", z[1], z[0])


def _ones(write: Any, z: Pair) -> Pair:
    return write("OnesLike", z[0]), write("ZerosLike", z[0])


def _cast(write: Any, z: Pair) -> Pair | None:
    """To real numbers, or from them; `z` is the same twice then."""
    if not write.makes_complex():
        write.reads(z[0])
        return None
    real = write.cast(z[0])
    return real, write("ZerosLike", real) if z[0] == z[1] else write.cast(z[1])


FORMS: dict[str, Callable[..., Pair | None]] = {
    "Real": _part(0),
    "Imag": _part(1),
    "Angle": _angle,
    "Conj": _conjugate,
    "ConjugateTranspose": _transposed_conjugate,
    "Mul": _product,
    "Einsum": _product,
    "MatMul": _product,
    "BatchMatMul": _matrix_product,
    "BatchMatMulV2": _matrix_product,
    "BatchMatMulV3": _matrix_product,
    "Square": _square,
    "Div": _quotient,
    "RealDiv": _quotient,
    "Reciprocal": _reciprocal,
    "Inv": _reciprocal,
    "Exp": _exponential,
    "Log": _logarithm,
    "OnesLike": _ones,
    "Cast": _cast,
}
