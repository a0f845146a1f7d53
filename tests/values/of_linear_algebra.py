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


def positive(*shape: int) -> np.ndarray:
    drawn = DRAW.normal(size=shape)
    return drawn @ np.swapaxes(drawn, -1, -2) / shape[-1] + np.eye(shape[-1])


for shape in SIZES:
    right = DRAW.normal(size=(*shape[:-1], 3))
    for known in (True, False):
        how = f"{shape}, {'known' if known else 'unknown'}"
        same = {"how": how, "known": known, "limit": 2e-4}
        of_matrices("inv", fixed(square(*shape)), **same)
        of_matrices("det", fixed(square(*shape)), **same)
        add("keras.ops.slogdet", ops.slogdet, fixed(square(*shape)), ("float32",), **same)
        of_matrices("cholesky", fixed(positive(*shape)), **same)
        if known:  # Keras compares sizes
            of_matrices("solve", fixed(square(*shape), right), **same)
            of_matrices("solve", fixed(square(*shape), right[..., 0]), **same | {"how": f"{how}, a vector"})
            for lower in (True, False):
                triangle = np.tril(positive(*shape)) if lower else np.triu(positive(*shape))
                of_matrices(
                    "solve_triangular", fixed(triangle, right), **same | {"how": f"{how}, {lower=}"}, lower=lower
                )
        of_matrices("qr", fixed(square(*shape)), **same | {"limit": 5e-3})
    if len(shape) == 2:
        of_matrices("lu_factor", fixed(square(*shape)), how=f"{shape}", limit=2e-4)
        of_matrices("cholesky_inverse", fixed(np.tril(positive(*shape))), how=f"{shape}", limit=2e-4)
add("keras.ops.logdet", ops.logdet, fixed(positive(2, 4, 4)), ("float32",), limit=2e-4)
of_matrices("cholesky", fixed(positive(2, 4, 4)), how="upper", upper=True, limit=2e-5)
for shape in ((5, 3), (3, 5), (2, 5, 3)):
    for mode in ("reduced", "complete"):
        of_matrices("qr", fixed(DRAW.normal(size=shape)), how=f"{shape}, {mode}", mode=mode, limit=2e-4)
for shape in ((3, 3), (5, 3), (3, 5), (2, 4, 6), (64, 64), (9, 40)):
    drawn = fixed(DRAW.normal(size=shape))
    of_matrices("svd", drawn, how=f"values, {shape}", compute_uv=False, limit=2e-4)
    of_matrices("matrix_rank", drawn, how=f"{shape}")
    of_matrices("pinv", drawn, how=f"{shape}", limit=1e-2)
    if len(shape) == 2:
        right = DRAW.normal(size=(shape[0], 2))
        of_matrices("lstsq", fixed(DRAW.normal(size=shape), right), how=f"{shape}", known=True, limit=2e-3)
for shape in ((3, 3), (2, 4, 4), (17, 17)):
    add(
        "keras.ops.linalg.eigh",
        lambda x: ops.linalg.eigh(x)[0],
        fixed(DRAW.normal(size=shape)),
        ("float32",),
        f"values, {shape}",
        limit=1e-3,
    )
of_matrices("svd", fixed(square(4, 4)), refused="Svd")  # vectors have the signs that an algorithm gives them
of_matrices("eigh", fixed(positive(4, 4)), refused="SelfAdjointEigV2")
of_matrices("eig", fixed(square(4, 4)), refused="Eig")

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
for order in ("nuc", 2, -2):
    of_matrices(
        "norm", fixed(DRAW.normal(size=(3, 4, 5))), how=f"matrices, order {order}", ord=order, axis=(1, 2), limit=1e-4
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
