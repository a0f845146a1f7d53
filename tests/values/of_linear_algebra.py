"""Linear algebra of `keras.ops`, and operators on matrices and diagonals."""

from functools import partial

import numpy as np
from keras import ops

from .grids import DTYPES, FLOAT32, FLOATS, INT32, NAN, NUMBERS, REALS, feed, fill, mix
from .table import add, add_ops

RNG = np.random.default_rng(5)
SHAPES = [(1, 1), (3, 3), (2, 4, 4), (2, 3, 6, 6), (17, 17), (64, 64)]
add_linalg = partial(add_ops, ops.linalg, dtypes=FLOAT32)


def draw_matrices(*shape: int) -> np.ndarray:
    """Draw well-conditioned matrices of this shape, whose pivots are not on the diagonal."""
    return RNG.normal(size=shape) + 3 * np.eye(shape[-1])[::-1] * shape[-1] ** 0.5


for shape in SHAPES:
    for is_static in (True, False):
        variant = f"{shape}, {'known' if is_static else 'unknown'}"
        add_linalg("det", feed(draw_matrices(*shape)), variant=variant, is_static=is_static, limit=2e-4)

MATRIX, VECTOR = draw_matrices(3, 3), RNG.normal(size=3)
REFUSED_OPERATORS = {
    "cholesky": ("Cholesky", np.eye(3)),
    "cholesky_inverse": ("MatrixTriangularSolve", MATRIX),
    "eig": ("ComplexEig", MATRIX),
    "eigh": ("SelfAdjointEigV2", MATRIX),
    "inv": ("MatrixInverse", MATRIX),
    "lstsq": ("Svd", MATRIX, VECTOR),
    "lu_factor": ("Lu", MATRIX),
    "matrix_rank": ("Svd", MATRIX),
    "pinv": ("Svd", MATRIX),
    "qr": ("Qr", MATRIX),
    "solve": ("MatrixSolve", MATRIX, VECTOR),
    "solve_triangular": ("MatrixTriangularSolve", MATRIX, VECTOR),
    "svd": ("Svd", MATRIX),
}
for name, (operator, *arrays) in REFUSED_OPERATORS.items():
    add_linalg(name, feed(*arrays), is_static=True, refusal=f"Op `{operator}`")
add_ops(ops, "logdet", feed(np.eye(3)), FLOAT32, refusal="Op `Cholesky`")
add_ops(ops, "slogdet", feed(MATRIX), FLOAT32, refusal="Op `LogMatrixDeterminant`")

# Without NaN for norms that are a maximum or minimum: its NaN is a documented deviation.
CUBE, CUBE_WITHOUT_NAN = mix(3, 4, 5), mix(3, 4, 5, skip_kinds=(NAN,))
INFINITE_ORDERS = (np.inf, -np.inf)
for order in (None, 1, 2, 0, 3, *INFINITE_ORDERS):
    make_inputs, variant = CUBE_WITHOUT_NAN if order in INFINITE_ORDERS else CUBE, f"vectors, order {order}"
    add_linalg("norm", make_inputs, dtypes=FLOATS, variant=variant, ord=order, axis=-1, limit=1e-5)
    add_linalg("norm", mix(3, 4), dtypes=INT32, variant=f"{variant}, integers", ord=order, axis=-1)
for order in (None, "fro", 1, -1, np.inf, -np.inf):
    make_inputs, variant = CUBE if order in (None, "fro") else CUBE_WITHOUT_NAN, f"matrices, order {order}"
    add_linalg("norm", make_inputs, dtypes=FLOATS, variant=variant, ord=order, axis=(2, 0), limit=1e-5)

for k in (-2, 0, 1, 5):
    add_ops(ops, "tril triu", mix(3, 4, 5), DTYPES, variant=f"k={k}", k=k)
    add_ops(ops, "tril triu", mix(4, 5), DTYPES, variant=f"2 axes, k={k}", k=k)
for k in (-1, 0, 2):
    add_ops(ops, "diag diagflat", mix(4), DTYPES, variant=f"{k=}, of a vector", k=k)
    add_ops(ops, "diag", mix(4, 5), DTYPES, variant=f"{k=}, of a matrix", k=k)
    add_ops(ops, "diagonal trace", mix(3, 4, 5), NUMBERS, variant=f"{k=}", offset=k)
    add_ops(ops, "diagonal trace", mix(3, 4, 5), NUMBERS, variant=f"{k=}, last axes", offset=k, axis1=1, axis2=2)
    add("keras.ops.eye", partial(lambda k, x: ops.eye(ops.shape(x)[0], 4, k=k), k), mix(3), NUMBERS, f"{k=}")
    tri = partial(lambda k, x: ops.tri(ops.shape(x)[0], 5, k=k), k)
    add("keras.ops.tri", tri, mix(4), NUMBERS, f"{k=}", is_static=True)
add("keras.ops.identity", lambda x: ops.identity(ops.shape(x)[0]), mix(3), NUMBERS)

MATRICES = fill((3, 4), (4, 5))
add_ops(ops, "matmul dot", MATRICES, NUMBERS)
add_ops(ops, "matmul", fill((2, 1, 3, 4), (5, 4, 2)), REALS, variant="broadcast")
add_ops(ops, "matmul dot inner vdot", fill((4,), (4,)), NUMBERS, variant="vectors", is_static=True)
add_ops(ops, "kron", fill((3, 4), (2, 3)), is_static=True, refusal="cannot be traced")
add_ops(ops, "outer", fill((3, 4), (5,)), NUMBERS)
add_ops(ops, "inner vdot", fill((3, 4), (3, 4)), NUMBERS)
add_ops(ops, "cross", fill((5, 3), (5, 3)), NUMBERS, is_static=True)
for axes in (0, 1, [[1], [0]]):
    add_ops(ops, "tensordot", MATRICES, NUMBERS, variant=f"{axes=}", axes=axes)
EINSUMS = "ij,jk->ik i,j->ij i,i-> ij-> ij->ji ij->i ii->i ii-> bii->bi ...ij,...jk->...ik abc,abd->acd abc,bcd,d->a"
SIZES = dict(zip("abcdijk", (2, 3, 4, 5, 4, 4, 4), strict=True))
for equation in EINSUMS.split():
    terms = equation.partition("->")[0].replace("...", "a").split(",")
    shapes = [tuple(SIZES[letter] for letter in term) for term in terms]
    add("keras.ops.einsum", partial(ops.einsum, equation), fill(*shapes), NUMBERS, equation)
