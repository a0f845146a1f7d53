"""Handlers for image resizing with TensorFlow's rounding, one axis after the other.

Indices of neighbours and their weights are computed in float32 and in the order of TensorFlow's kernels, so that
rounding gives the same neighbour at sizes where it decides. ONNX's `Resize` rounds otherwise there, has no cubic
weights in steps of 1/1024, and adds zero times infinity where TensorFlow reads nothing. For known sizes all this is
constant.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from ..graph_builder import ConstantFolder, NodeReplacement, Operand, constant_value

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ZERO, HALF, ONE = map(np.float32, (0, 0.5, 1))
WEIGHT_STEPS = np.float32(1024)  # TensorFlow's cubic weights are tabulated for offsets in such steps
MIN_WEIGHT_SUM = np.float32(1000 * np.finfo(np.float32).tiny)  # TensorFlow divides by no smaller sum


class ResizedAxis(NamedTuple):
    """An axis of (B, H, W, C) with its sizes before and after, scalars, and the options of the operator."""

    op: NodeReplacement
    axis: int
    size: Operand
    new_size: Operand
    half_pixel_centers: bool
    align_corners: bool

    @property
    def fold(self) -> ConstantFolder:
        """The operators of `op`, computed at conversion time for constants."""
        return self.op.fold

    def arange(self, count: Operand, to: int = FLOAT) -> Operand:
        """Return 0 to count - 1."""
        return self.fold.Cast(self.fold.Range(0, count, 1), to=to)

    def clip_index(self, index: Operand) -> Operand:
        """Return indices as integers, clipped into the image."""
        last = self.fold.Sub(self.size, 1)
        return self.fold.Max(self.fold.Min(self.fold.Cast(index, to=INT64), last), 0)

    def scale(self) -> Operand:
        """Return the distance of two new pixels: size / new_size, or between corners (size - 1) / (new_size - 1)."""
        fold = self.fold
        size = fold.Cast(self.size, to=FLOAT)
        new_size = fold.Cast(self.new_size, to=FLOAT)
        plain = fold.Div(size, new_size)
        if not self.align_corners:
            return plain
        gaps = fold.Max(fold.Sub(new_size, ONE), ONE)
        between_corners = fold.Div(fold.Sub(size, ONE), gaps)
        return fold.Where(fold.Greater(new_size, ONE), between_corners, plain)

    def positions(self, shift: bool) -> Operand:
        """Return the position of each new pixel, (new_size,); for half pixels its middle, less half with `shift`."""
        steps = self.arange(self.new_size)
        if not self.half_pixel_centers:
            return self.fold.Mul(steps, self.scale())
        middle = self.fold.Mul(self.fold.Add(steps, HALF), self.scale())
        return self.fold.Sub(middle, HALF) if shift else middle

    def gather(self, images: str, index: Operand) -> str:
        """Return images at indices of the axis."""
        return self.op.Gather(images, index, axis=self.axis)

    def to_column(self, weights: Operand) -> Operand:
        """Return weights, (new_size, ...), with axes for the later axes of the images."""
        return self.fold.Unsqueeze(weights, [*range(-1, self.axis - 4, -1)])

    def weighted_sum(self, images: str, index: Operand, weights: Operand, mask: Operand | None = None) -> str:
        """Return the sums of neighbours times weights, all arguments (new_size, neighbours), where the mask is true."""
        terms = self.op.Mul(self.gather(images, index), self.to_column(weights))
        if mask is not None and not (isinstance(mask, np.ndarray) and mask.all()):
            terms = self.op.Where(self.to_column(mask), terms, ZERO)
        return self.op.ReduceSum(terms, [self.axis + 1], keepdims=0)

    def evaluate_polynomial(self, x: Operand, *coefficients: float, dtype: Any = np.float32) -> Operand:
        """Return a polynomial by Horner's rule, with the coefficient of the highest power first."""
        result: Operand = dtype(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.fold.Add(self.fold.Mul(result, x), dtype(coefficient))
        return result

    def normalize(self, weights: Operand) -> Operand:
        """Return weights, (new_size, neighbours), divided by their sum unless that is too small."""
        fold = self.fold
        total = fold.ReduceSum(weights, [1], keepdims=1)
        is_enough = fold.Not(fold.Less(fold.Abs(total), MIN_WEIGHT_SUM))
        return fold.Mul(weights, fold.Div(ONE, fold.Where(is_enough, total, ONE)))


def _resize_nearest(axis: ResizedAxis, images: str) -> str:
    position = axis.positions(shift=False)
    if axis.align_corners:
        position = axis.fold.Add(position, HALF)
    return axis.gather(images, axis.clip_index(axis.fold.Floor(position)))


def _resize_bilinear(axis: ResizedAxis, images: str) -> str:
    op, fold = axis.op, axis.fold
    position = axis.positions(shift=True)
    floor = fold.Floor(position)
    left = axis.gather(images, axis.clip_index(fold.Floor(position)))
    right = axis.gather(images, axis.clip_index(fold.Ceil(position)))
    share = axis.to_column(fold.Sub(position, floor))
    return op.Add(left, op.Mul(op.Sub(right, left), share))


def _resize_bicubic(axis: ResizedAxis, images: str) -> str:
    """Resize with four neighbours: for half pixels those outside weigh nothing, else the border is repeated.

    Keys's kernel of a neighbour at distance x, with parameter a: (a + 2) x^3 - (a + 3) x^2 + 1 up to 1, and
    a x^3 - 5 a x^2 + 8 a x - 4 a up to 2 (Keys 1981). TensorFlow tabulates it in float64.
    """
    fold = axis.fold
    a = -0.5 if axis.half_pixel_centers else -0.75
    position = axis.positions(shift=True)
    floor = fold.Floor(position)
    steps = fold.Round(fold.Mul(fold.Sub(position, floor), WEIGHT_STEPS))
    distances = [fold.Div(numerator, WEIGHT_STEPS) for numerator in (steps, fold.Sub(WEIGHT_STEPS, steps))]
    distances = [fold.Cast(distance, to=TensorProto.DOUBLE) for distance in distances]
    near = [axis.evaluate_polynomial(x, a + 2, -(a + 3), 0, 1, dtype=np.float64) for x in distances]
    far = [
        axis.evaluate_polynomial(fold.Add(x, np.float64(1)), a, -5 * a, 8 * a, -4 * a, dtype=np.float64)
        for x in distances
    ]
    columns = [fold.Unsqueeze(weights, [1]) for weights in (far[0], near[0], near[1], far[1])]
    weights = fold.Cast(fold.Concat(*columns, axis=1), to=FLOAT)
    index = fold.Add(fold.Unsqueeze(fold.Cast(floor, to=INT64), [1]), [-1, 0, 1, 2])
    inside = axis.clip_index(index)
    if axis.half_pixel_centers:
        weights = axis.normalize(fold.Where(fold.Equal(index, inside), weights, ZERO))
    return axis.weighted_sum(images, inside, weights)


def _resize_area(axis: ResizedAxis, images: str) -> str:
    """Resize with the overlap of each pixel with the new pixel [start, end) as its weight."""
    fold = axis.fold
    scale = axis.scale()
    steps = axis.arange(axis.new_size)
    start = fold.Mul(steps, scale)
    end = fold.Unsqueeze(fold.Mul(fold.Add(steps, ONE), scale), [1])
    neighbours = fold.Cast(fold.Add(fold.Ceil(scale), ONE), to=INT64)
    index = fold.Add(fold.Unsqueeze(fold.Floor(start), [1]), axis.arange(neighbours))
    start = fold.Unsqueeze(start, [1])
    next_index = fold.Add(index, ONE)
    overlap = fold.Sub(fold.Min(next_index, end), fold.Max(index, start))
    contains_all = fold.And(fold.Less(index, start), fold.Greater(next_index, end))
    weights = fold.Where(contains_all, scale, overlap)
    return axis.weighted_sum(images, axis.clip_index(index), weights, fold.Less(index, end))


RESIZE_METHODS: dict[str, tuple[Callable[[ResizedAxis, str], str], tuple[int, int]]] = {  # and the order of the axes
    "ResizeNearestNeighbor": (_resize_nearest, (1, 2)),
    "ResizeBilinear": (_resize_bilinear, (2, 1)),
    "ResizeBicubic": (_resize_bicubic, (1, 2)),
    "ResizeArea": (_resize_area, (2, 1)),
}


def resize(graph: Any, node: Any) -> None:
    """Convert `ResizeNearestNeighbor`, `ResizeBilinear`, `ResizeBicubic` and `ResizeArea` of (images, size)."""
    method, order = RESIZE_METHODS[node.type]
    half_pixels, corners = (bool(node.get_attr_value(name, False)) for name in ("half_pixel_centers", "align_corners"))
    op, images, sizes = start_resize(graph, node)
    axes = [ResizedAxis(op, axis, *sizes[axis - 1], half_pixels, corners) for axis in order]
    for axis in axes:
        if method is not _resize_bilinear or any(
            size != new_size for size, new_size in sizes
        ):  # else TensorFlow copies
            images = method(axis, images)
    if method is _resize_area:
        area = op.fold.Mul(*(axis.scale() for axis in axes))
        images = op.Mul(images, op.fold.Div(ONE, area))
    op.finish("Identity", images)


def start_resize(graph: Any, node: Any) -> tuple[NodeReplacement, str, list[tuple[Operand, Operand]]]:
    """Return a builder for a node of (images, size, ...), images of the output's dtype, and old and new sizes."""
    shape = graph.get_shape(node.input[0]) or [-1] * 4
    new_shape = constant_value(graph, node.input[1])
    is_cast = graph.get_dtype(node.input[0]) != graph.get_dtype(node.output[0])
    op = NodeReplacement(graph, node)
    images, size = op.inputs[:2]
    if is_cast:
        images = op.Cast(images, to=op.dtype)
    sizes: list[tuple[Operand, Operand]] = []
    for axis in (1, 2):
        before: Operand = shape[axis] if shape[axis] >= 0 else op.Gather(op.Shape(images), axis)
        after: Operand = op.Gather(size, axis - 1) if new_shape is None else int(new_shape[axis - 1])
        sizes.append((before, op.fold.Cast(after, to=INT64)))
    return op, images, sizes
