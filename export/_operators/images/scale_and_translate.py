"""Handler for `ScaleAndTranslate`: resizing with antialiasing kernels."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..graph_builder import Operand, Refusal, constant_value
from .resize_images import FLOAT, HALF, INT64, ONE, ZERO, ResizedAxis, start_resize

PI = np.float32(math.pi)

Kernel = Callable[[ResizedAxis, Operand], Operand]  # maps distances, which are not negative, to weights


def _triangle_kernel(axis: ResizedAxis, x: Operand) -> Operand:
    return axis.fold.Max(axis.fold.Sub(ONE, x), ZERO)


def _cubic_kernel(near: tuple[float, ...], far: tuple[float, ...], axis: ResizedAxis, x: Operand) -> Operand:
    """Return one cubic polynomial up to a distance of 1, another up to 2, and zero beyond."""
    fold = axis.fold
    inner = axis.evaluate_polynomial(x, *near)
    outer = fold.Where(fold.Less(x, np.float32(2)), axis.evaluate_polynomial(x, *far), ZERO)
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


KERNELS: dict[str, tuple[float, Kernel]] = {  # with their radius
    "triangle": (1, _triangle_kernel),
    "keyscubic": (2, partial(_cubic_kernel, (1.5, -2.5, 0, 1), (-0.5, 2.5, -4, 2))),
    "mitchellcubic": (2, partial(_cubic_kernel, (7 / 6, -2, 0, 8 / 9), (-7 / 18, 2, -10 / 3, 16 / 9))),
    "gaussian": (1.5, _gaussian_kernel),
    "lanczos1": (1, partial(_lanczos_kernel, 1)),
    "lanczos3": (3, partial(_lanczos_kernel, 3)),
    "lanczos5": (5, partial(_lanczos_kernel, 5)),
}


def scale_and_translate(graph: Any, node: Any) -> Refusal:
    """Convert `ScaleAndTranslate` of (images, size, scale, translation), float32."""
    name = node.get_attr_str("kernel_type")
    if name not in KERNELS:
        return f"it has an unknown `kernel_type`, {name!r}"
    radius, kernel = KERNELS[name]
    antialias = node.get_attr_value("antialias", True)
    constants = [constant_value(graph, tensor) for tensor in node.input[2:4]]
    op, images, sizes = start_resize(graph, node)
    scales, translations = (
        tensor if constant is None else constant for tensor, constant in zip(op.inputs[2:4], constants, strict=True)
    )
    for index, (size, new_size) in enumerate(sizes):
        axis = ResizedAxis(op, index + 1, size, new_size, half_pixel_centers=True, align_corners=False)
        scale, translation = (axis.fold.Gather(numbers, index) for numbers in (scales, translations))
        step = axis.fold.Div(ONE, scale)
        width = axis.fold.Max(step, ONE) if antialias else ONE
        images = _resample_axis(axis, images, step, translation, width, radius, kernel)
    return op.finish("Identity", images)


def _resample_axis(
    axis: ResizedAxis, images: str, step: Operand, translation: Operand, width: Operand, radius: float, kernel: Kernel
) -> str:
    """Return images with one axis resized, as TensorFlow's `ComputeSpansCore` defines.

    New pixel k has its middle at (k + 1/2) step - step * translation. Its neighbours are the pixels from
    ceil(middle - reach - 1/2) to floor(middle + reach - 1/2), with reach = radius * width; each weighs
    kernel(distance / width). All new pixels have the number of neighbours of the widest span, 2 ceil(reach) + 1.
    """
    fold = axis.fold
    reach = fold.Mul(width, np.float32(radius))
    middle = fold.Mul(fold.Add(axis.arange(axis.new_size), HALF), step)
    middle = fold.Add(middle, fold.Neg(fold.Mul(step, translation)))
    is_outside = fold.Or(fold.Less(middle, ZERO), fold.Greater(middle, fold.Cast(axis.size, to=FLOAT)))
    first = axis.clip_index(fold.Ceil(fold.Sub(fold.Sub(middle, reach), HALF)))
    last = axis.clip_index(fold.Floor(fold.Sub(fold.Add(middle, reach), HALF)))
    widest = fold.Add(fold.Mul(fold.Cast(fold.Ceil(reach), to=INT64), 2), 1)
    neighbours = axis.arange(fold.Min(widest, axis.size), INT64)
    index = fold.Add(fold.Unsqueeze(fold.Where(is_outside, 0, first), [1]), neighbours)
    inside = axis.clip_index(index)
    pixel_middle = fold.Add(fold.Cast(index, to=FLOAT), HALF)
    distance = fold.Div(fold.Abs(fold.Sub(pixel_middle, fold.Unsqueeze(middle, [1]))), width)
    is_beyond = fold.Or(fold.Greater(index, fold.Unsqueeze(last, [1])), fold.Unsqueeze(is_outside, [1]))
    weights = axis.normalize(fold.Where(is_beyond, ZERO, kernel(axis, distance)))
    return axis.weighted_sum(images, inside, weights, fold.Equal(index, inside))
