"""Handlers for image resizing with TensorFlow's rounding, one axis after the other.

Which those are and what they weigh is computed in float32 and in the order of TensorFlow's kernels, so that rounding
decides alike at sizes where it decides. ONNX's `Resize` rounds otherwise there, has no cubic weights in steps of
1/1024, and adds zero times infinity where TensorFlow reads nothing. Of sizes that are known all this is constant.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from ..graph_builder import Replacement, Value, Writer

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ZERO, HALF, ONE = (np.float32(number) for number in (0, 0.5, 1))
STEPS = np.float32(1024)  # cubic weights are those of positions rounded to such a part
SMALLEST = np.float32(1000 * np.finfo(np.float32).tiny)  # a sum of weights that is divided by


class Line(NamedTuple):
    """An axis: its sizes before and after, scalars, and the options of the operator."""

    write: Writer
    axis: int
    size: Value
    wanted: Value
    half_pixels: bool
    corners: bool

    def compute(self, op: str, *inputs: Value, **attributes: Any) -> Value:
        return self.write.computed(op, *inputs, **attributes)

    def steps(self, count: Value, to: int = FLOAT) -> Value:
        return self.compute("Cast", self.compute("Range", 0, count, 1), to=to)

    def as_float(self, size: Value) -> Value:
        return self.compute("Cast", size, to=FLOAT)

    def within(self, index: Value) -> Value:
        """Return an index moved to where there is one, as an integer."""
        last = self.compute("Sub", self.size, 1)
        return self.compute("Max", self.compute("Min", self.compute("Cast", index, to=INT64), last), 0)

    def scale(self) -> Value:
        """Return how many numbers there are for each that is wanted."""
        have, wanted = self.as_float(self.size), self.as_float(self.wanted)
        plain = self.compute("Div", have, wanted)
        if not self.corners:
            return plain
        gaps = self.compute("Max", self.compute("Sub", wanted, ONE), ONE)
        spread = self.compute("Div", self.compute("Sub", have, ONE), gaps)
        return self.compute("Where", self.compute("Greater", wanted, ONE), spread, plain)

    def positions(self, shift: bool) -> Value:
        """Return where each wanted number lies among those there are; with half pixels and `shift` from its middle."""
        steps = self.steps(self.wanted)
        if not self.half_pixels:
            return self.compute("Mul", steps, self.scale())
        found = self.compute("Mul", self.compute("Add", steps, HALF), self.scale())
        return self.compute("Sub", found, HALF) if shift else found

    def taken(self, images: str, index: Value) -> str:
        return self.write("Gather", images, index, axis=self.axis)

    def column(self, weights: Value) -> Value:
        """Return weights, a row for each number that is wanted, with axes for those of the images that follow."""
        return self.compute("Unsqueeze", weights, [*range(-1, self.axis - 4, -1)])

    def summed(self, images: str, index: Value, weights: Value, read: Value | None = None) -> str:
        """Return sums of neighbours, `index`, times weights: (wanted, neighbours) both, as is what of it is `read`."""
        terms = self.write("Mul", self.taken(images, index), self.column(weights))
        if read is not None and not (isinstance(read, np.ndarray) and read.all()):
            terms = self.write("Where", self.column(read), terms, ZERO)
        return self.write("ReduceSum", terms, [self.axis + 1], keepdims=0)


def _nearest(line: Line, images: str) -> str:
    position = line.positions(shift=False)
    if line.corners:
        position = line.compute("Add", position, HALF)
    return line.taken(images, line.within(line.compute("Floor", position)))


def _linear(line: Line, images: str) -> str:
    position = line.positions(shift=True)
    floor = line.compute("Floor", position)
    left, right = (line.taken(images, line.within(line.compute(op, position))) for op in ("Floor", "Ceil"))
    share = line.column(line.compute("Sub", position, floor))
    return line.write("Add", left, line.write("Mul", line.write("Sub", right, left), share))


def _cubic(line: Line, images: str) -> str:
    """Four neighbours; with half pixels what would lie outside weighs nothing, else it is the last number again."""
    a = -0.5 if line.half_pixels else -0.75
    position = line.positions(shift=True)
    floor = line.compute("Floor", position)
    part = line.compute("Round", line.compute("Mul", line.compute("Sub", position, floor), STEPS))
    parts = [line.compute("Div", each, STEPS) for each in (part, line.compute("Sub", STEPS, part))]
    parts = [line.compute("Cast", each, to=TensorProto.DOUBLE) for each in parts]  # TensorFlow's table is made so
    near = [polynomial(line, each, a + 2, -(a + 3), 0, 1) for each in parts]
    far = [polynomial(line, line.compute("Add", each, np.float64(1)), a, -5 * a, 8 * a, -4 * a) for each in parts]
    weights = line.compute("Cast", _rows(line, far[0], near[0], near[1], far[1]), to=FLOAT)
    index = line.compute("Add", line.compute("Unsqueeze", line.compute("Cast", floor, to=INT64), [1]), [-1, 0, 1, 2])
    inside = line.within(index)
    if line.half_pixels:
        weights = line.compute("Where", line.compute("Equal", index, inside), weights, ZERO)
        weights = normalized(line, weights)
    return line.summed(images, inside, weights)


def polynomial(line: Line, x: Value, *coefficients: float, kind: type[np.floating[Any]] = np.float64) -> Value:
    found: Value = kind(coefficients[0])
    for each in coefficients[1:]:
        found = line.compute("Add", line.compute("Mul", found, x), kind(each))
    return found


def _rows(line: Line, *columns: Value) -> Value:
    return line.compute("Concat", *(line.compute("Unsqueeze", each, [1]) for each in columns), axis=1)


def normalized(line: Line, weights: Value) -> Value:
    total = line.compute("ReduceSum", weights, [1], keepdims=1)
    enough = line.compute("Not", line.compute("Less", line.compute("Abs", total), SMALLEST))
    return line.compute("Mul", weights, line.compute("Div", ONE, line.compute("Where", enough, total, ONE)))


def _area(line: Line, images: str) -> str:
    """Each number weighs what of it lies between where the wanted one begins and ends."""
    scale = line.scale()
    steps = line.steps(line.wanted)
    start, end = (line.compute("Mul", each, scale) for each in (steps, line.compute("Add", steps, ONE)))
    first = line.compute("Floor", start)
    most = line.compute("Add", line.compute("Ceil", scale), ONE)
    most = line.compute("Cast", most, to=INT64)
    number = line.compute("Add", line.compute("Unsqueeze", first, [1]), line.steps(most))
    start, end = (line.compute("Unsqueeze", each, [1]) for each in (start, end))
    after = line.compute("Add", number, ONE)
    weights = line.compute("Sub", line.compute("Min", after, end), line.compute("Max", number, start))
    alone = line.compute("And", line.compute("Less", number, start), line.compute("Greater", after, end))
    weights = line.compute("Where", alone, scale, weights)
    return line.summed(images, line.within(number), weights, line.compute("Less", number, end))


RESIZED: dict[str, tuple[Callable[[Line, str], str], tuple[int, int]]] = {  # and which axis is the first
    "ResizeNearestNeighbor": (_nearest, (1, 2)),
    "ResizeBilinear": (_linear, (2, 1)),
    "ResizeBicubic": (_cubic, (1, 2)),
    "ResizeArea": (_area, (2, 1)),
}


def resize(graph: Any, node: Any) -> None:
    """`ResizeNearestNeighbor`, which keeps the dtype; `ResizeBilinear`, `ResizeBicubic` and `ResizeArea`, float32."""
    half_pixels, corners = (bool(node.get_attr_value(name, False)) for name in ("half_pixel_centers", "align_corners"))
    (method, axes), is_area = RESIZED[node.type], node.type == "ResizeArea"
    write, images, sizes = begun(graph, node)
    lines = [Line(write, axis, *sizes[axis - 1], half_pixels, corners) for axis in axes]
    for line in lines:
        if method is not _linear or any(size != wanted for size, wanted in sizes):  # else TensorFlow copies
            images = method(line, images)
    if is_area:
        whole = write.computed("Mul", *(line.scale() for line in lines))
        images = write("Mul", images, write.computed("Div", ONE, whole))
    write.last("Identity", images)


def begun(graph: Any, node: Any) -> tuple[Replacement, str, list[tuple[Value, Value]]]:
    """Remove a node of (images, size, ...); return images of the dtype that comes out, and sizes before and after."""
    shape = graph.get_shape(node.input[0]) or [-1] * 4
    known = node.inputs[1].get_tensor_value(as_list=False) if node.inputs[1].is_const() else None
    differs = graph.get_dtype(node.input[0]) != graph.get_dtype(node.output[0])
    write = Replacement(graph, node)
    images, size = write.inputs[:2]
    if differs:
        images = write("Cast", images, to=write.dtype)
    sizes: list[tuple[Value, Value]] = []
    for axis in (1, 2):
        before: Value = shape[axis] if shape[axis] >= 0 else write("Gather", write("Shape", images), axis)
        after: Value = int(known[axis - 1]) if known is not None else write("Gather", size, axis - 1)
        sizes.append((before, write.computed("Cast", after, to=INT64)))
    return write, images, sizes
