"""Images (B, H, W, C) read elsewhere: `keras.ops.image.affine_transform` and `perspective_transform`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import TensorProto

from .writing import Replacement, Writer

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
CHOSEN = {FLOAT, TensorProto.DOUBLE, TensorProto.INT32, INT64, TensorProto.UINT8}  # by onnxruntime's `Where`
ZERO, HALF, ONE, TWO = (np.float32(number) for number in (0, 0.5, 1, 2))


def project(graph: Any, node: Any) -> None:
    """`ImageProjectiveTransformV2` and `V3` of (images, transforms (B or 1, 8), size, fill value)."""
    nearest = node.get_attr_str("interpolation") == "NEAREST"
    moved = BEYOND.get(node.get_attr_str("fill_mode") if "fill_mode" in node.attr else "CONSTANT")
    if moved is None:
        return
    write = Replacement(graph, node)
    images, transforms, size, *fill = write.inputs
    filled = fill[0] if fill else ZERO
    transforms = write("Unsqueeze", transforms, [-1, -2])
    a0, a1, a2, b0, b1, b2, c0, c1 = (write("Gather", transforms, each, axis=1) for each in range(8))
    y, x = (write("Cast", write("Range", 0, _size(write, size, each), 1), to=FLOAT) for each in (0, 1))
    y = write("Unsqueeze", y, [1])

    def plane(across: str, down: str, shift: str | np.float32) -> str:
        return write("Add", write("Add", write("Mul", across, x), write("Mul", down, y)), shift)

    share = plane(c0, c1, ONE)
    nowhere = write("Equal", share, ZERO)
    lengths = [write("Gather", write("Shape", images), each) for each in (1, 2)]
    places = [
        moved(write, write("Div", plane(*each), share), write("Cast", length, to=FLOAT))
        for each, length in zip(((b0, b1, b2), (a0, a1, a2)), lengths, strict=True)
    ]
    batch = write("Shape", images, end=1)
    grid = write("Concat", batch, write("Cast", size, to=INT64), axis=0)
    nowhere, places = write("Expand", nowhere, grid), [write("Expand", each, grid) for each in places]
    kind = write.dtype if nearest and write.dtype in CHOSEN else FLOAT
    wide = write("Cast", images, to=kind)
    filled = write("Cast", write("Cast", filled, to=write.dtype), to=kind)

    def read(y: str, x: str) -> str:
        """Return the numbers at whole places, as floats too; what is outside is filled."""
        inside, index = [], []
        for place, length in zip((y, x), lengths, strict=True):
            last = write("Cast", write("Sub", length, 1), to=FLOAT)
            inside += [write("Not", write("Less", place, ZERO)), write("Not", write("Greater", place, last))]
            index.append(write("Cast", write("Clip", place, ZERO, last), to=INT64))
        chosen = inside[0]
        for each in inside[1:]:
            chosen = write("And", chosen, each)
        at = write("Concat", *(write("Unsqueeze", each, [-1]) for each in index), axis=-1)
        return write("Where", write("Unsqueeze", chosen, [-1]), write("GatherND", wide, at, batch_dims=1), filled)

    found = read(*(_rounded(write, each) for each in places)) if nearest else _between(write, places, read)
    found = write("Where", write("Unsqueeze", nowhere, [-1]), filled, found)
    write.last("Cast", found, to=write.dtype)


def _between(write: Writer, places: list[str], read: Callable[[str, str], str]) -> str:
    """Return the mean of four neighbours by their distances."""
    floors = [write("Floor", each) for each in places]
    ceils = [write("Add", each, ONE) for each in floors]
    shares = [
        [write("Sub", after, place), write("Sub", place, before)]
        for place, before, after in zip(places, floors, ceils, strict=True)
    ]
    rows: list[str] = []
    for down in (0, 1):
        corners = [read((floors, ceils)[down][0], (floors, ceils)[across][1]) for across in (0, 1)]
        rows.append(_weighted(write, corners, shares[1]))
    return _weighted(write, rows, shares[0])


def _weighted(write: Writer, numbers: list[str], shares: list[str]) -> str:
    return write("Add", *(write("Mul", write("Unsqueeze", s, [-1]), n) for s, n in zip(shares, numbers, strict=True)))


def _size(write: Writer, size: str, axis: int) -> str:
    return write("Cast", write("Gather", size, axis), to=INT64)


def _rounded(write: Writer, place: str) -> str:
    """Return the nearest whole number, the one away from zero of two: ONNX's `Round` takes the even one."""
    return write("Mul", write("Sign", place), write("Floor", write("Add", write("Abs", place), HALF)))


def _as_it_is(write: Writer, place: str, length: str) -> str:
    return place


def _nearest_inside(write: Writer, place: str, length: str) -> str:
    return write("Clip", place, ZERO, write("Sub", length, ONE))


def _reflected(write: Writer, place: str, length: str) -> str:
    """`dcba|abcd|dcba`."""
    twice = write("Mul", length, TWO)
    below = write("Add", place, write("Mul", twice, write("Floor", write("Div", write("Neg", place), twice))))
    far = write("Less", below, write("Neg", length))
    below = write("Where", far, write("Add", below, twice), write("Sub", write("Neg", below), ONE))
    above = write("Sub", place, write("Mul", twice, write("Floor", write("Div", place, twice))))
    back = write("Sub", write("Sub", twice, above), ONE)
    above = write("Where", write("Less", above, length), above, back)
    return _beyond(write, place, length, below, above)


def _wrapped(write: Writer, place: str, length: str) -> str:
    """`abcd|abcd|abcd`, with steps of one less than the length, as TensorFlow counts them."""
    gaps = write("Sub", length, ONE)

    def turns(number: str) -> str:
        return write("Floor", write("Div", number, gaps))

    below = write("Add", place, write("Mul", length, write("Add", turns(write("Neg", place)), ONE)))
    above = write("Sub", place, write("Mul", length, turns(place)))
    return _beyond(write, place, length, below, above)


def _beyond(write: Writer, place: str, length: str, below: str, above: str) -> str:
    last = write("Sub", length, ONE)
    found = write("Where", write("Greater", place, last), above, place)
    found = write("Where", write("Less", place, ZERO), below, found)
    return _nearest_inside(write, write("Where", write("Greater", length, ONE), found, ZERO), length)


BEYOND: dict[str, Callable[[Writer, str, str], str]] = {
    "CONSTANT": _as_it_is,
    "NEAREST": _nearest_inside,
    "REFLECT": _reflected,
    "WRAP": _wrapped,
}
