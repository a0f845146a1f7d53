"""Handler for `ScaleAndTranslate`: resizing with antialiasing kernels, as `tf.image.resize(antialias=True)` does."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..graph_builder import Operand, RejectionReason, constant_value
from .resize_images import FLOAT, HALF, INT64, ONE, ZERO, ResizedAxis, start_resize

PI = np.float32(math.pi)

# A function from distances >= 0, of any shape, to weights
Kernel = Callable[[ResizedAxis, Operand], Operand]


def _triangle_kernel(axis: ResizedAxis, x: Operand) -> Operand:
    return axis.fold.Max(axis.fold.Sub(ONE, x), ZERO)


def _cubic_kernel(
    inner_coefficients: tuple[float, ...], outer_coefficients: tuple[float, ...], axis: ResizedAxis, x: Operand
) -> Operand:
    """Return one cubic polynomial for distances below 1, another below 2, and zero beyond."""
    fold = axis.fold
    inner = axis.horner(x, *inner_coefficients)
    outer = fold.Where(fold.Less(x, np.float32(2)), axis.horner(x, *outer_coefficients), ZERO)
    return fold.Where(fold.Less(x, ONE), inner, outer)


def _lanczos_kernel(radius: int, axis: ResizedAxis, x: Operand) -> Operand:
    """Return radius * sin(pi x) * sin(pi x / radius) / (pi x)^2: 1 at zero, and zero beyond the radius."""
    fold = axis.fold
    width = np.float32(radius)
    angle = fold.Mul(x, PI)
    waves = fold.Mul(fold.Mul(fold.Sin(angle), width), fold.Sin(fold.Div(angle, width)))
    is_zero = fold.Not(fold.Greater(x, np.float32(1e-3)))
    divisor = fold.Where(is_zero, ONE, fold.Mul(fold.Mul(x, PI * PI), x))
    weights = fold.Where(is_zero, ONE, fold.Div(waves, divisor))
    return fold.Where(fold.Greater(x, width), ZERO, weights)


def _gaussian_kernel(axis: ResizedAxis, x: Operand) -> Operand:
    fold = axis.fold
    return fold.Where(fold.Less(x, np.float32(1.5)), fold.Exp(fold.Mul(fold.Mul(x, x), np.float32(-2))), ZERO)


# Radius and kernel by name; the same coefficients as in TensorFlow's `sampling_kernels.h`
KERNELS: dict[str, tuple[float, Kernel]] = {
    "triangle": (1, _triangle_kernel),
    "keyscubic": (2, partial(_cubic_kernel, (1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2))),
    "mitchellcubic": (2, partial(_cubic_kernel, (7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9))),
    "gaussian": (1.5, _gaussian_kernel),
    "lanczos1": (1, partial(_lanczos_kernel, 1)),
    "lanczos3": (3, partial(_lanczos_kernel, 3)),
    "lanczos5": (5, partial(_lanczos_kernel, 5)),
}


def scale_and_translate(graph: Any, node: Any) -> RejectionReason:
    """Convert float32 `ScaleAndTranslate` of (images, size, scale, translation) to weighted sums of neighbours."""
    name = node.get_attr_str("kernel_type")
    if name not in KERNELS:
        return f"its `kernel_type` is {name!r}, not one of {', '.join(KERNELS)}"
    radius, kernel = KERNELS[name]
    antialias = node.get_attr_value("antialias", True)
    constants = [constant_value(graph, tensor) for tensor in node.input[2:4]]
    op, images, sizes = start_resize(graph, node)
    pairs = zip(op.inputs[2:4], constants, strict=True)
    scales, translations = (tensor if constant is None else constant for tensor, constant in pairs)
    for axis_index, (size, new_size) in enumerate(sizes):
        axis = ResizedAxis(op, axis_index + 1, size, new_size, half_pixel_centers=True, align_corners=False)
        scale, translation = (axis.fold.Gather(numbers, axis_index) for numbers in (scales, translations))
        step = axis.fold.Div(ONE, scale)
        width = axis.fold.Max(step, ONE) if antialias else ONE
        images = _resample_axis(axis, images, step, translation, width, radius, kernel)
    return op.finish("Identity", images)


def _resample_axis(
    axis: ResizedAxis, images: str, step: Operand, translation: Operand, width: Operand, radius: float, kernel: Kernel
) -> str:
    """Resample one axis of images (B, H, W, C), as TensorFlow's `ComputeSpansCore` does."""
    # The centre of new pixel k is at (k + 1/2) step - step * translation. Its neighbours are the pixels from
    # ceil(centre - support - 1/2) to floor(centre + support - 1/2), with support = radius * width, and their weights
    # kernel(distance / width). All new pixels have the number of neighbours of the widest span, 2 ceil(support) + 1.
    fold = axis.fold
    support = fold.Mul(width, np.float32(radius))
    centre = fold.Mul(fold.Add(axis.arange(axis.new_size), HALF), step)
    centre = fold.Add(centre, fold.Neg(fold.Mul(step, translation)))
    is_outside = fold.Or(fold.Less(centre, ZERO), fold.Greater(centre, fold.Cast(axis.size, to=FLOAT)))
    first = axis.clip_index(fold.Ceil(fold.Sub(fold.Sub(centre, support), HALF)))
    last = axis.clip_index(fold.Floor(fold.Sub(fold.Add(centre, support), HALF)))
    max_neighbours = fold.Add(fold.Mul(fold.Cast(fold.Ceil(support), to=INT64), 2), 1)
    neighbours = axis.arange(fold.Min(max_neighbours, axis.size), INT64)
    index = fold.Add(fold.Unsqueeze(fold.Where(is_outside, 0, first), [1]), neighbours)
    clipped = axis.clip_index(index)
    pixel_centre = fold.Add(fold.Cast(index, to=FLOAT), HALF)
    distance = fold.Div(fold.Abs(fold.Sub(pixel_centre, fold.Unsqueeze(centre, [1]))), width)
    has_no_weight = fold.Or(fold.Greater(index, fold.Unsqueeze(last, [1])), fold.Unsqueeze(is_outside, [1]))
    weights = axis.normalize(fold.Where(has_no_weight, ZERO, kernel(axis, distance)))
    return axis.weighted_sum(images, clipped, weights, fold.Equal(index, clipped))
