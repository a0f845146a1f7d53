"""Handler for `ScaleAndTranslate`: resizing with antialiasing kernels."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..graph_builder import Value
from .resize_images import HALF, INT64, ONE, ZERO, Line, begun, normalized, polynomial

PI = np.float32(math.pi)

Kernel = Callable[[Line, Value], Value]  # takes distances, which are not negative


def _triangle(line: Line, x: Value) -> Value:
    return line.compute("Max", line.compute("Sub", ONE, x), ZERO)


def _keys(line: Line, x: Value) -> Value:
    near = polynomial(line, x, 1.5, -2.5, 0, 1, kind=np.float32)
    far = polynomial(line, x, -0.5, 2.5, -4, 2, kind=np.float32)
    far = line.compute("Where", line.compute("Less", x, np.float32(2)), far, ZERO)
    return line.compute("Where", line.compute("Less", x, ONE), near, far)


def _lanczos(radius: int) -> Kernel:
    width = np.float32(radius)

    def kernel(line: Line, x: Value) -> Value:
        compute = line.compute
        turns = compute("Mul", x, PI)
        waves = compute(
            "Mul", compute("Mul", compute("Sin", turns), width), compute("Sin", compute("Div", turns, width))
        )
        middle = compute("Not", compute("Greater", x, np.float32(1e-3)))
        below = compute("Where", middle, ONE, compute("Mul", compute("Mul", x, PI * PI), x))
        found = compute("Where", middle, ONE, compute("Div", waves, below))
        return compute("Where", compute("Greater", x, width), ZERO, found)

    return kernel


def _mitchell(line: Line, x: Value) -> Value:
    near = polynomial(line, x, 7 / 6, -2, 0, 8 / 9, kind=np.float32)
    far = polynomial(line, x, -7 / 18, 2, -10 / 3, 16 / 9, kind=np.float32)
    far = line.compute("Where", line.compute("Less", x, np.float32(2)), far, ZERO)
    return line.compute("Where", line.compute("Less", x, ONE), near, far)


def _gaussian(line: Line, x: Value) -> Value:
    bell = line.compute("Exp", line.compute("Mul", line.compute("Mul", x, x), np.float32(-2)))
    return line.compute("Where", line.compute("Less", x, np.float32(1.5)), bell, ZERO)


KERNELS: dict[str, tuple[float, Kernel]] = {  # with their radius
    "triangle": (1, _triangle),
    "keyscubic": (2, _keys),
    "mitchellcubic": (2, _mitchell),
    "gaussian": (1.5, _gaussian),
    "lanczos1": (1, _lanczos(1)),
    "lanczos3": (3, _lanczos(3)),
    "lanczos5": (5, _lanczos(5)),
}


def scale_and_translate(graph: Any, node: Any) -> None:
    """`ScaleAndTranslate` of (images, size, scale, translation), float32."""
    if node.get_attr_str("kernel_type") not in KERNELS:
        return
    radius, kernel = KERNELS[node.get_attr_str("kernel_type")]
    antialias = node.get_attr_value("antialias", True)
    moves = [each.get_tensor_value(as_list=False) if each.is_const() else each.output[0] for each in node.inputs[2:4]]
    write, images, sizes = begun(graph, node)
    for axis, size in zip((1, 2), sizes, strict=True):
        line = Line(write, axis, *size, half_pixels=True, corners=False)
        scale, move = (line.compute("Gather", each, axis - 1) for each in moves)
        step = line.compute("Div", ONE, scale)
        width = line.compute("Max", step, ONE) if antialias else ONE
        images = _moved(line, images, step, move, width, radius, kernel)
    write.last("Identity", images)


def _moved(line: Line, images: str, step: Value, move: Value, width: Value, radius: float, kernel: Kernel) -> str:
    """Return one axis resized: TensorFlow's `ComputeSpansCore`, and as many neighbours as its widest span."""
    compute = line.compute
    reach = compute("Mul", width, np.float32(radius))
    middle = compute("Mul", compute("Add", line.steps(line.wanted), HALF), step)
    middle = compute("Add", middle, compute("Neg", compute("Mul", step, move)))
    outside = compute("Or", compute("Less", middle, ZERO), compute("Greater", middle, line.as_float(line.size)))
    first = line.within(compute("Ceil", compute("Sub", compute("Sub", middle, reach), HALF)))
    last = line.within(compute("Floor", compute("Sub", compute("Add", middle, reach), HALF)))
    most = compute("Add", compute("Mul", compute("Cast", compute("Ceil", reach), to=INT64), 2), 1)
    most = compute("Min", most, line.size)
    column = compute("Unsqueeze", compute("Where", outside, 0, first), [1])
    number = compute("Add", column, line.steps(most, INT64))
    inside = line.within(number)
    distance = compute("Sub", compute("Add", line.as_float(number), HALF), compute("Unsqueeze", middle, [1]))
    distance = compute("Div", compute("Abs", distance), width)
    beyond = compute("Greater", number, compute("Unsqueeze", last, [1]))
    beyond = compute("Or", beyond, compute("Unsqueeze", outside, [1]))
    weights = normalized(line, compute("Where", beyond, ZERO, kernel(line, distance)))
    return line.summed(images, inside, weights, compute("Equal", number, inside))
