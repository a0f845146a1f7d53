"""Handlers for image resizing with TensorFlow's rounding, one axis after the other.

Indices and weights of neighbours are computed in float32 in the order of TensorFlow's kernels, so that rounding selects
the same neighbours; for known sizes they are constants. ONNX's `Resize` selects others at some sizes, has no cubic
weights in steps of 1/1024, and adds zero times infinity for neighbours without weight. Images are (B, H, W, C).
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from onnx import TensorProto

from ..graph_builder import ConstantFolder, NodeReplacement, Operand, constant_value

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
ZERO, HALF, ONE = map(np.float32, (0, 0.5, 1))
# TensorFlow tabulates its cubic weights for this number of offsets between two pixels (`kTableSize`)
WEIGHT_STEPS = np.float32(1024)
# TensorFlow normalizes weights only if the magnitude of their sum is at least this (`ComputeSpansCore`)
MIN_WEIGHT_SUM = np.float32(1000 * np.finfo(np.float32).tiny)


class ResizedAxis(NamedTuple):
    """An axis of images (B, H, W, C), its old and new size, scalars, and the options of the operator."""

    op: NodeReplacement
    axis: int
    size: Operand
    new_size: Operand
    half_pixel_centers: bool
    align_corners: bool

    @property
    def fold(self) -> ConstantFolder:
        """The operators of `op` with constant folding."""
        return self.op.fold

    def arange(self, count: Operand, to: int = FLOAT) -> Operand:
        """Return 0 to count - 1, (count,); `count` is a scalar."""
        return self.fold.Cast(self.fold.Range(0, count, 1), to=to)

    def clip_index(self, index: Operand) -> Operand:
        """Cast indices, of any shape, to int64 and clip them into the image."""
        last = self.fold.Sub(self.size, 1)
        return self.fold.Max(self.fold.Min(self.fold.Cast(index, to=INT64), last), 0)

    def scale(self) -> Operand:
        """Return the distance of new pixels: size / new_size, or with aligned corners (size - 1) / (new_size - 1)."""
        fold = self.fold
        size = fold.Cast(self.size, to=FLOAT)
        new_size = fold.Cast(self.new_size, to=FLOAT)
        ratio = fold.Div(size, new_size)
        if not self.align_corners:
            return ratio
        intervals = fold.Max(fold.Sub(new_size, ONE), ONE)
        aligned_ratio = fold.Div(fold.Sub(size, ONE), intervals)
        return fold.Where(fold.Greater(new_size, ONE), aligned_ratio, ratio)

    def positions(self, shift: bool) -> Operand:
        """Return the position of each new pixel, (new_size,): for half pixels its centre, minus 1/2 with `shift`."""
        steps = self.arange(self.new_size)
        if not self.half_pixel_centers:
            return self.fold.Mul(steps, self.scale())
        centre = self.fold.Mul(self.fold.Add(steps, HALF), self.scale())
        return self.fold.Sub(centre, HALF) if shift else centre

    def gather(self, images: str, index: Operand) -> str:
        """Return images at indices of the axis, which may have several axes."""
        return self.op.Gather(images, index, axis=self.axis)

    def to_column(self, weights: Operand) -> Operand:
        """Return weights, (new_size, ...), with axes of 1 for the later axes of the images."""
        return self.fold.Unsqueeze(weights, [*range(-1, self.axis - 4, -1)])

    def weighted_sum(self, images: str, index: Operand, weights: Operand, mask: Operand | None = None) -> str:
        """Return the sums of masked neighbours times weights; arguments after `images` are (new_size, neighbours)."""
        terms = self.op.Mul(self.gather(images, index), self.to_column(weights))
        if mask is not None and not (isinstance(mask, np.ndarray) and mask.all()):
            terms = self.op.Where(self.to_column(mask), terms, ZERO)
        return self.op.ReduceSum(terms, [self.axis + 1], keepdims=0)

    def horner(self, x: Operand, *coefficients: float, dtype: Any = np.float32) -> Operand:
        """Evaluate a polynomial of `x`, of any shape, by Horner's rule, the coefficient of the highest power first."""
        result: Operand = dtype(coefficients[0])
        for coefficient in coefficients[1:]:
            result = self.fold.Add(self.fold.Mul(result, x), dtype(coefficient))
        return result

    def normalize(self, weights: Operand) -> Operand:
        """Divide weights, (new_size, neighbours), by their sum unless the sum is below `MIN_WEIGHT_SUM`."""
        fold = self.fold
        total = fold.ReduceSum(weights, [1], keepdims=1)
        is_enough = fold.Not(fold.Less(fold.Abs(total), MIN_WEIGHT_SUM))
        return fold.Mul(weights, fold.Div(ONE, fold.Where(is_enough, total, ONE)))


def _resize_nearest(axis: ResizedAxis, images: str) -> str:
    """Resize by the neighbour at the rounded-down position."""
    position = axis.positions(shift=False)
    if axis.align_corners:
        position = axis.fold.Add(position, HALF)
    return axis.gather(images, axis.clip_index(axis.fold.Floor(position)))


def _resize_bilinear(axis: ResizedAxis, images: str) -> str:
    """Resize by linear interpolation between two neighbours."""
    op, fold = axis.op, axis.fold
    position = axis.positions(shift=True)
    floor = fold.Floor(position)
    lower = axis.gather(images, axis.clip_index(fold.Floor(position)))
    upper = axis.gather(images, axis.clip_index(fold.Ceil(position)))
    fraction = axis.to_column(fold.Sub(position, floor))
    return op.Add(lower, op.Mul(op.Sub(upper, lower), fraction))


def _resize_bicubic(axis: ResizedAxis, images: str) -> str:
    # Keys's kernel for a neighbour at distance x, with parameter a: (a + 2) x^3 - (a + 3) x^2 + 1 for x <= 1, and
    # a x^3 - 5 a x^2 + 8 a x - 4 a for x <= 2 (Keys 1981), which TensorFlow tabulates in float64. Outside of the image,
    # neighbours have weight 0 for half pixels, and the border is repeated else.
    fold = axis.fold
    a = -0.5 if axis.half_pixel_centers else -0.75
    position = axis.positions(shift=True)
    floor = fold.Floor(position)
    steps = fold.Round(fold.Mul(fold.Sub(position, floor), WEIGHT_STEPS))
    distances = [fold.Div(numerator, WEIGHT_STEPS) for numerator in (steps, fold.Sub(WEIGHT_STEPS, steps))]
    distances = [fold.Cast(distance, to=TensorProto.DOUBLE) for distance in distances]
    inner = [axis.horner(x, a + 2, -(a + 3), 0, 1, dtype=np.float64) for x in distances]
    outer = [axis.horner(fold.Add(x, np.float64(1)), a, -5 * a, 8 * a, -4 * a, dtype=np.float64) for x in distances]
    columns = [fold.Unsqueeze(weights, [1]) for weights in (outer[0], inner[0], inner[1], outer[1])]
    weights = fold.Cast(fold.Concat(*columns, axis=1), to=FLOAT)
    index = fold.Add(fold.Unsqueeze(fold.Cast(floor, to=INT64), [1]), [-1, 0, 1, 2])
    clipped = axis.clip_index(index)
    if axis.half_pixel_centers:
        weights = axis.normalize(fold.Where(fold.Equal(index, clipped), weights, ZERO))
    return axis.weighted_sum(images, clipped, weights)


def _resize_area(axis: ResizedAxis, images: str) -> str:
    """Resize by the mean of old pixels, weighted by their overlap with the new pixel [start, end)."""
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
    contains_new_pixel = fold.And(fold.Less(index, start), fold.Greater(next_index, end))
    weights = fold.Where(contains_new_pixel, scale, overlap)
    return axis.weighted_sum(images, axis.clip_index(index), weights, fold.Less(index, end))


# The method of an operator, and the order in which TensorFlow resizes the axes. tf2onnx takes the nearest neighbour for
# `ResizeArea` (onnx/tensorflow-onnx#2241)
RESIZE_METHODS: dict[str, tuple[Callable[[ResizedAxis, str], str], tuple[int, int]]] = {
    "ResizeNearestNeighbor": (_resize_nearest, (1, 2)),
    "ResizeBilinear": (_resize_bilinear, (2, 1)),
    "ResizeBicubic": (_resize_bicubic, (1, 2)),
    "ResizeArea": (_resize_area, (2, 1)),
}


def resize(graph: Any, node: Any) -> None:
    """Convert `Resize...` of (images, size) with all methods to `Gather`, `Mul` and `ReduceSum` along each axis."""
    method, order = RESIZE_METHODS[node.type]
    options = [bool(node.get_attr_value(name, False)) for name in ("half_pixel_centers", "align_corners")]
    op, images, sizes = start_resize(graph, node)
    axes = [ResizedAxis(op, axis, *sizes[axis - 1], *options) for axis in order]
    for axis in axes:
        # TensorFlow copies images of equal size in bilinear resizing
        if method is not _resize_bilinear or any(size != new_size for size, new_size in sizes):
            images = method(axis, images)
    if method is _resize_area:
        area = op.fold.Mul(*(axis.scale() for axis in axes))
        images = op.Mul(images, op.fold.Div(ONE, area))
    op.finish("Identity", images)


def start_resize(graph: Any, node: Any) -> tuple[NodeReplacement, str, list[tuple[Operand, Operand]]]:
    """Return a builder that replaces a node of (images, size, ...), its images, and (old, new) size per axis."""
    shape = graph.get_shape(node.input[0]) or [-1] * 4
    new_shape = constant_value(graph, node.input[1])
    is_cast = graph.get_dtype(node.input[0]) != graph.get_dtype(node.output[0])
    op = NodeReplacement(graph, node)
    images, size = op.inputs[:2]
    if is_cast:
        images = op.Cast(images, to=op.dtype)
    sizes: list[tuple[Operand, Operand]] = []
    for axis in (1, 2):
        old_size: Operand = shape[axis] if shape[axis] >= 0 else op.Gather(op.Shape(images), axis)
        target_size: Operand = op.Gather(size, axis - 1) if new_shape is None else int(new_shape[axis - 1])
        sizes.append((old_size, op.fold.Cast(target_size, to=INT64)))
    return op, images, sizes
