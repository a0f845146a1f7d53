"""Colours of images (..., 3) between red, green, blue and hue, saturation, value."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from .writing import Replacement


def to_hsv(graph: Any, node: Any) -> None:
    """`RGBToHSV`: the hue begins at the colour that is largest, the first of those that are."""
    write = Replacement(graph, node)
    number = tensor_dtype_to_np_dtype(write.dtype).type
    zero, one, (image,) = number(0), number(1), write.inputs
    red, green, blue = (write("Gather", image, [each], axis=-1) for each in range(3))
    value = write("Max", red, green, blue)
    spread = write("Sub", value, write("Min", red, green, blue))
    saturation = write("Where", write("Greater", value, zero), write("Div", spread, value), zero)
    sixth = write("Div", write("Div", one, number(6)), spread)

    def hue_from(third: int, more: str, less: str) -> str:
        return write("Add", write("Mul", sixth, write("Sub", more, less)), number(third / 3))

    other = write("Where", write("Equal", green, value), hue_from(1, blue, red), hue_from(2, red, green))
    hue = write("Where", write("Equal", red, value), hue_from(0, green, blue), other)
    hue = write("Where", write("Greater", spread, zero), hue, zero)
    hue = write("Where", write("Less", hue, zero), write("Add", hue, one), hue)
    write.last("Concat", hue, saturation, value, axis=-1)


def to_rgb(graph: Any, node: Any) -> None:
    """`HSVToRGB`: each colour rises and falls with the hue, by its distance from where it is full."""
    write = Replacement(graph, node)
    number = tensor_dtype_to_np_dtype(write.dtype).type
    zero, one, (image,) = number(0), number(1), write.inputs
    hue, saturation, value = (write("Gather", image, [each], axis=-1) for each in range(3))
    distance = write("Abs", write("Sub", write("Mul", hue, number(6)), np.array([3, 2, 4], number)))
    ramp = write("Add", write("Mul", distance, np.array([1, -1, -1], number)), np.array([-1, 2, 2], number))
    full = write("Clip", ramp, zero, one)
    share = write("Add", write("Sub", one, saturation), write("Mul", saturation, full))
    write.last("Mul", share, value)
