"""Inputs of operators for tests of special values: arrays for each kind of values and each dtype.

An input maker is a function of a kind and a dtype. It returns the inputs of an operator as a tuple of arrays, or None
if the operator has no inputs of this kind.
"""

import numpy as np

FINITE_VALUES, INFINITIES, NAN, EMPTY_AXIS, UNIT_AXES = "finite", "infinities", "NaN", "an axis of 0", "axes of 1"
KINDS = (FINITE_VALUES, INFINITIES, NAN, EMPTY_AXIS, UNIT_AXES)

FLOAT32 = ("float32",)
INT32 = ("int32",)
FLOATS = ("float32", "float16")
SIGNED_INTEGERS = ("int32", "int64")
INTEGERS = (*SIGNED_INTEGERS, "uint8")
REALS = (*FLOATS, *SIGNED_INTEGERS)  # dtypes of signed numbers, including integers
NUMBERS = (*FLOATS, *INTEGERS)
DTYPES = (*NUMBERS, "bool")

_INTEGER_VALUES = [0, 1, -1, 2, -2, 3, -3, 7, -7, 25, -25, 60, -30, 127, 128, 255, 2**24 + 1, -(2**24) - 1]
_FRACTIONS = [-0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 3.7, -7.3, 88.0, 1e-3, 1e4, -1e4, 1e30, -1e30]


def make_values(kind: str, dtype: str) -> np.ndarray:
    """Return all values of a kind as an array of shape (n,)."""
    if dtype == "bool":
        values = [False, True]
    elif np.issubdtype(dtype, np.integer):
        limits = np.iinfo(dtype)
        values = [n for n in _INTEGER_VALUES if limits.min <= n <= limits.max] + [limits.min, limits.max]
    else:
        values = [n for n in [*_INTEGER_VALUES, *_FRACTIONS] if abs(n) < float(np.finfo(dtype).max)]
        values = {INFINITIES: [np.inf, -np.inf, 0, 2.5, -1], NAN: [np.nan, 0, 1, -2.5]}.get(kind, values)
    return np.array({EMPTY_AXIS: values[:0], UNIT_AXES: values[1:2]}.get(kind, values), dtype)


def _has_kind(dtype: str, kind: str) -> bool:
    """Return True if a dtype has values of a kind. Only floats have infinities and NaN."""
    return kind not in (INFINITIES, NAN) or np.issubdtype(dtype, np.floating)


def make_array(kind: str, dtype: str):
    """Return a tuple of one array (n,) with all values of a kind, or None if the dtype has no such values."""
    return (make_values(kind, dtype),) if _has_kind(dtype, kind) else None


def make_pairs(kind: str, dtype: str):
    """Return two arrays of shape (n,). They pair each value of a kind with all of these and some finite values."""
    if not _has_kind(dtype, kind):
        return None
    values = make_values(kind, dtype)
    if kind in (EMPTY_AXIS, UNIT_AXES):
        return (values, values)
    second_values = np.unique(np.concatenate([values, make_values(FINITE_VALUES, dtype)[:12]]))
    grid = np.stack([array.ravel() for array in np.meshgrid(values, second_values)])
    return tuple(np.concatenate([grid, grid[::-1]], axis=1))  # both orders, since not all operators are symmetric


def make_quotients(kind: str, dtype: str):
    """Return dividends and divisors, both of shape (n,), from `make_pairs`. Omit integer divisors of zero."""
    pairs = make_pairs(kind, dtype)
    if pairs is None or not np.issubdtype(dtype, np.integer):
        return pairs
    dividends, divisors = pairs
    return dividends[divisors != 0], divisors[divisors != 0]


def make_rows(kind: str, dtype: str):
    """Return an array (n, 4) for operators along an axis. Rows have mixed signs, zeros, ties or extreme values."""
    if not _has_kind(dtype, kind):
        return None
    if dtype == "bool":
        rows = [[True, False, True, False], [False] * 4, [True] * 4]
    elif np.issubdtype(dtype, np.integer):
        minimum, maximum = np.iinfo(dtype).min, np.iinfo(dtype).max
        rows = [[3, 1, 2, 7], [0, 0, 0, 0], [5, 2, 5, 2], [maximum, 0, 1, maximum - 1], [minimum, minimum + 1, 3, 2]]
        if minimum:
            rows += [[-1, -7, -2, -25], [2, -2, 2, -3], [2**24 + 1, 2**24, -(2**24) - 1, -(2**24)]]
    else:
        inf, nan = np.inf, np.nan
        rows = {
            INFINITIES: [[1, inf, 2, 3], [-inf, 1, -2, 3], [inf, -inf, 1, 2], [inf] * 4, [-inf] * 4, [inf, 1, inf, 0]],
            NAN: [[nan, 1, 2, 3], [1, 3, nan, -2], [1, 2, 3, nan], [nan] * 4, [nan, 1, nan, 2]],
        }.get(
            kind,
            [[3, 1.5, -2, 7.25], [-1, -2.5, -0.5, -3], [0.0, -0.0, 0.0, -0.0], [2, 2, -3, 2], [1e4, 1e4, 2e4, 1e4]],
        )
    array = np.array(rows, dtype)
    return ({EMPTY_AXIS: array[:, :0], UNIT_AXES: array[:1, :1]}.get(kind, array),)


def fill(*shapes: tuple[int, ...]):
    """Return an input maker of arrays of these shapes with small numbers. It supports finite values only."""

    def make_inputs(kind: str, dtype: str):
        if kind != FINITE_VALUES:
            return None
        lowest_number = 0 if dtype.startswith("u") else -5
        divisor = 2 if dtype in FLOATS else 1
        vectors = [np.arange(int(np.prod(shape))) % 13 + lowest_number for shape in shapes]
        return tuple((v / divisor).astype(dtype).reshape(shape) for v, shape in zip(vectors, shapes, strict=True))

    return make_inputs


def feed(*arrays, **special_inputs):
    """Return an input maker that returns these arrays for finite values.

    The keywords `nan`, `infinite` and `empty` give the arrays for these kinds. Arrays of float64 are cast to the dtype
    that the input maker receives.
    """
    keywords = {"nan": NAN, "infinite": INFINITIES, "empty": EMPTY_AXIS}
    special_arrays = {keywords[keyword]: special_input for keyword, special_input in special_inputs.items()}
    arrays_by_kind = {FINITE_VALUES: arrays, **special_arrays}

    def make_inputs(kind: str, dtype: str):
        if kind not in arrays_by_kind:
            return None
        inputs = [np.asarray(array) for array in arrays_by_kind[kind]]
        return tuple(array.astype(dtype) if array.dtype == np.float64 else array for array in inputs)

    return make_inputs


def mix(*shape: int, skip_kinds: tuple[str, ...] = ()):
    """Return an input maker of one array of this shape. It has small numbers, and by kind a NaN or two infinities."""
    # The values to insert for each kind, as pairs (offset from the middle of the array, value)
    insertions = {FINITE_VALUES: (), INFINITIES: ((-1, np.inf), (0, -np.inf)), NAN: ((-1, np.nan),)}

    def make_inputs(kind: str, dtype: str):
        if kind not in insertions or kind in skip_kinds or not _has_kind(dtype, kind):
            return None
        (array,) = fill(shape)(FINITE_VALUES, dtype)
        for offset, value in insertions[kind]:
            array.flat[array.size // 2 + offset] = value
        return (array,)

    return make_inputs
