"""Rewrite rules: operators on complex numbers as operators on their real and imaginary parts.

A rule gets the builder of `split_complex.py`, which writes TensorFlow's operators on real tensors, and the parts of the
node's inputs. The rule returns the parts of the output, or None after redirecting the node to real tensors. Parts have
the shape of their complex tensor.
"""

from collections.abc import Callable
from typing import Any

Pair = tuple[str, str]


def _real(op: Any, z: Pair) -> None:
    op.redirect(z[0], op_type="Identity")


def _imag(op: Any, z: Pair) -> None:
    op.redirect(z[1], op_type="Identity")


def _angle(op: Any, z: Pair) -> None:
    op.redirect(z[1], z[0], op_type="Atan2")


def _conj(op: Any, z: Pair) -> Pair:
    return z[0], op.Neg(z[1])


def _conjugate_transpose(op: Any, z: Pair, order: Pair) -> Pair:
    real, imaginary = (op.Transpose(part, order[0]) for part in z)
    return real, op.Neg(imaginary)


def _product(op: Any, a: Pair, b: Pair) -> Pair:
    """Return (a + ib)(c + id) = (ac - bd) + i(ad + bc), elementwise or of matrices, by the node's own operator."""
    return (
        op.Sub(op.same_op(a[0], b[0]), op.same_op(a[1], b[1])),
        op.AddV2(op.same_op(a[0], b[1]), op.same_op(a[1], b[0])),
    )


def _batch_mat_mul(op: Any, a: Pair, b: Pair) -> Pair:
    """Return a product of matrices; the operator conjugates the matrices that it transposes."""
    return _product(op, *(op.adjoint(z, side) for z, side in ((a, "x"), (b, "y"))))


def _square(op: Any, z: Pair) -> Pair:
    real = op.Sub(op.Square(z[0]), op.Square(z[1]))
    product = op.Mul(*z)
    return real, op.AddV2(product, product)


def _quotient(op: Any, a: Pair, b: Pair) -> Pair:
    """Return (a + ib) / (c + id) as ((ac' + bd') + i(bc' - ad')) / (cc' + dd'), with c', d' = c, d / max(|c|, |d|)."""
    # Without the scale, squares of c and d overflow float32 from 1.8e19 on
    scale = op.Maximum(op.Abs(b[0]), op.Abs(b[1]))
    c, d = (op.RealDiv(part, scale) for part in b)
    divisor = op.AddV2(op.Mul(b[0], c), op.Mul(b[1], d))
    real = op.AddV2(op.Mul(a[0], c), op.Mul(a[1], d))
    imaginary = op.Sub(op.Mul(a[1], c), op.Mul(a[0], d))
    return op.RealDiv(real, divisor), op.RealDiv(imaginary, divisor)


def _reciprocal(op: Any, z: Pair) -> Pair:
    return _quotient(op, _ones_like(op, z), z)


def _exp(op: Any, z: Pair) -> Pair:
    magnitude = op.Exp(z[0])
    return op.Mul(magnitude, op.Cos(z[1])), op.Mul(magnitude, op.Sin(z[1]))


def _log(op: Any, z: Pair) -> Pair:
    return op.Log(op.magnitude(z)), op.Atan2(z[1], z[0])


def _ones_like(op: Any, z: Pair) -> Pair:
    return op.OnesLike(z[0]), op.ZerosLike(z[0])


def _cast(op: Any, z: Pair) -> Pair | None:
    """Cast to real numbers, or from real numbers, whose parts are the same tensor twice."""
    if not op.has_complex_output():
        op.redirect(z[0])
        return None
    real = op.Cast(z[0], to=op.real_dtype())
    return real, op.ZerosLike(real) if z[0] == z[1] else op.Cast(z[1], to=op.real_dtype())


RULES: dict[str, Callable[..., Pair | None]] = {
    "Real": _real,
    "Imag": _imag,
    "Angle": _angle,
    "Conj": _conj,
    "ConjugateTranspose": _conjugate_transpose,
    **dict.fromkeys(("Mul", "Einsum", "MatMul"), _product),
    **dict.fromkeys(("BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _batch_mat_mul),
    "Square": _square,
    **dict.fromkeys(("Div", "RealDiv"), _quotient),
    **dict.fromkeys(("Reciprocal", "Inv"), _reciprocal),
    "Exp": _exp,
    "Log": _log,
    "OnesLike": _ones_like,
    "Cast": _cast,
}
