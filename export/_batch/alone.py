"""What a row gives by itself, and whether it gave the same among others, with zeros behind it."""

from __future__ import annotations

import numpy as np

from .._standalone.verify import Arrays, Manifest, Spec
from .feeds import feeds_of, padded_size
from .windows import Window

# What rounding does, by precision, as a share of the largest number of a channel: among others, sums are added up in
# another order. What padding does to a model that does not expect it is more: a mean over twice as many is half.
ALIKE = {"float32": 1e-4, "float16": 2e-2, "int8": 5e-2}


def feeds_alone(manifest: Manifest, window: Window, row: int, more: str | None = None) -> Arrays:
    """Return the inputs of a row, no longer than they must be; along the axis `more`, more than twice as long."""
    longest = {axis: int(length[row]) for axis, length in window.lengths.items()}
    for axis in {*manifest.multiples} & {*longest}:
        longest[axis] = padded_size(manifest, axis, longest[axis])
    if more is not None:
        longest[more] = padded_size(manifest, more, 2 * longest[more] + 1)
    return feeds_of(manifest, window, np.array([row]), longest)


def sizes_of_channels(output: np.ndarray, spec: Spec) -> np.ndarray:
    """Return the largest number of each channel, which is an index of the last axis if that is of a fixed size."""
    shape = spec.shape
    channels = shape[-1] if len(shape) > 1 and isinstance(shape[-1], int) else 1
    flat = np.abs(output.reshape(-1, max(1, channels)))
    largest: np.ndarray = np.max(flat, axis=0, initial=0.0, where=np.isfinite(flat))
    return largest


def alike(one: np.ndarray, other: np.ndarray, sizes: np.ndarray, precision: str) -> bool:
    """Tell whether two outputs differ by no more than rounding.

    Args:
        one: The output of a row.
        other: The same, otherwise.
        sizes: What `sizes_of_channels` gives of them and of others like them.
        precision: That of the bundle.
    """
    if one.shape != other.shape:
        return False
    if one.dtype.kind != "f":
        return bool(np.array_equal(one, other))
    limit = ALIKE.get(precision, 0.0) * sizes.astype(np.float64)
    wide_one, wide_other = (each.astype(np.float64).reshape(-1, len(sizes)) for each in (one, other))
    return bool(np.isclose(wide_one, wide_other, rtol=0, atol=limit, equal_nan=True).all())
