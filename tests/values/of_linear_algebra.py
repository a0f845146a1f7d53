"""Linear algebra of `keras.ops`."""

from functools import partial

import numpy as np
from keras import ops

from .grids import ALL, FLOATS, NAN, NUMBERS, REALS, fixed, images, ordinary
from .table import add, rows_of

DRAW = np.random.default_rng(5)
SIZES = [(1, 1), (3, 3), (2, 4, 4), (2, 3, 6, 6), (17, 17), (64, 64)]
of_matrices = partial(rows_of, ops.linalg, dtypes=("float32",))


def square(*shape: int) -> np.ndarray:
    """Matrices whose pivots are not on the diagonal, and whose condition is small."""
    return DRAW.normal(size=shape) + 3 * np.eye(shape[-1])[::-1] * shape[-1] ** 0.5


for shape in SIZES:
    for known in (True, False):
        how = f"{shape}, {'known' if known else 'unknown'}"
        of_matrices("det", fixed(square(*shape)), how=how, known=known, limit=2e-4)

MATRIX, VECTOR = square(3, 3), DRAW.normal(size=3)
REFUSED = {
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
for name, (operator, *given) in REFUSED.items():
    of_matrices(name, fixed(*given), known=True, refused=f"Op `{operator}`")
rows_of(ops, "logdet", fixed(np.eye(3)), ("float32",), refused="Op `Cholesky`")
rows_of(ops, "slogdet", fixed(MATRIX), ("float32",), refused="Op `LogMatrixDeterminant`")

CUBE, FEWER = images(3, 4, 5), images(3, 4, 5, without=(NAN,))  # NaN of a maximum is written down
EDGES = (np.inf, -np.inf)
for order in (None, 1, 2, 0, 3, *EDGES):
    of_matrices(
        "norm",
        CUBE if order not in EDGES else FEWER,
        dtypes=FLOATS,
        how=f"vectors, order {order}",
        ord=order,
        axis=-1,
        limit=1e-5,
    )
    of_matrices("norm", images(3, 4), dtypes=("int32",), how=f"vectors, order {order}, integers", ord=order, axis=-1)
for order in (None, "fro", 1, -1, np.inf, -np.inf):
    of_matrices(
        "norm",
        CUBE if order in (None, "fro") else FEWER,
        dtypes=FLOATS,
        how=f"matrices, order {order}",
        ord=order,
        axis=(2, 0),
        limit=1e-5,
    )

for k in (-2, 0, 1, 5):
    rows_of(ops, "tril triu", images(3, 4, 5), ALL, how=f"k={k}", k=k)
    rows_of(ops, "tril triu", images(4, 5), ALL, how=f"2 axes, k={k}", k=k)
for k in (-1, 0, 2):
    rows_of(ops, "diag diagflat", images(4), ALL, how=f"{k=}, of a vector", k=k)
    rows_of(ops, "diag", images(4, 5), ALL, how=f"{k=}, of a matrix", k=k)
    rows_of(ops, "diagonal trace", images(3, 4, 5), NUMBERS, how=f"{k=}", offset=k)
    rows_of(ops, "diagonal trace", images(3, 4, 5), NUMBERS, how=f"{k=}, last axes", offset=k, axis1=1, axis2=2)
    add("keras.ops.eye", partial(lambda k, x: ops.eye(ops.shape(x)[0], 4, k=k), k), images(3), NUMBERS, f"{k=}")
    add(
        "keras.ops.tri",
        partial(lambda k, x: ops.tri(ops.shape(x)[0], 5, k=k), k),
        images(4),
        NUMBERS,
        f"{k=}",
        known=True,
    )
add("keras.ops.identity", lambda x: ops.identity(ops.shape(x)[0]), images(3), NUMBERS)

BOTH = ordinary((3, 4), (4, 5))
rows_of(ops, "matmul dot", BOTH, NUMBERS)
rows_of(ops, "matmul", ordinary((2, 1, 3, 4), (5, 4, 2)), REALS, how="broadcast")
rows_of(ops, "matmul dot inner vdot", ordinary((4,), (4,)), NUMBERS, how="vectors", known=True)
rows_of(ops, "kron", ordinary((3, 4), (2, 3)), known=True, refused="cannot be traced")
rows_of(ops, "outer", ordinary((3, 4), (5,)), NUMBERS)
rows_of(ops, "inner vdot", ordinary((3, 4), (3, 4)), NUMBERS)
rows_of(ops, "cross", ordinary((5, 3), (5, 3)), NUMBERS, known=True)
for axes in (0, 1, [[1], [0]]):
    rows_of(ops, "tensordot", BOTH, NUMBERS, how=f"{axes=}", axes=axes)
EINSUMS = "ij,jk->ik i,j->ij i,i-> ij-> ij->ji ij->i ii->i ii-> bii->bi ...ij,...jk->...ik abc,abd->acd abc,bcd,d->a"
SIZED = dict(zip("abcdijk", (2, 3, 4, 5, 4, 4, 4), strict=True))
for equation in EINSUMS.split():
    shapes = [
        (2, *(SIZED[letter] for letter in each[3:]))
        if each.startswith("...")
        else tuple(SIZED[letter] for letter in each)
        for each in equation.partition("->")[0].split(",")
    ]
    add("keras.ops.einsum", partial(ops.einsum, equation), ordinary(*shapes), NUMBERS, equation)
