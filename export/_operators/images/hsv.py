"""Handlers for `RGBToHSV`, `HSVToRGB` and `AdjustSaturation`."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx.helper import tensor_dtype_to_np_dtype

from ..graph_builder import Replacement


class _Colours(Replacement):
    """Writes in the place of a node of images."""

    def __init__(self, graph: Any, node: Any) -> None:
        super().__init__(graph, node)
        self.number: Any = tensor_dtype_to_np_dtype(self.dtype).type

    def parts(self, image: str) -> list[str]:
        return [self("Gather", image, [each], axis=-1) for each in range(3)]

    def to_hsv(self, image: str) -> list[str]:
        """Return hue, saturation and value; the hue begins at the largest colour, the first of those that are."""
        zero, one = self.number(0), self.number(1)
        red, green, blue = self.parts(image)
        value = self("Max", red, green, blue)
        spread = self("Sub", value, self("Min", red, green, blue))
        saturation = self("Where", self("Greater", value, zero), self("Div", spread, value), zero)
        sixth = self("Div", self("Div", one, self.number(6)), spread)

        def hue_from(third: int, more: str, less: str) -> str:
            return self("Add", self("Mul", sixth, self("Sub", more, less)), self.number(third / 3))

        other = self("Where", self("Equal", green, value), hue_from(1, blue, red), hue_from(2, red, green))
        hue = self("Where", self("Equal", red, value), hue_from(0, green, blue), other)
        hue = self("Where", self("Greater", spread, zero), hue, zero)
        return [self("Where", self("Less", hue, zero), self("Add", hue, one), hue), saturation, value]

    def to_rgb(self, hue: str, saturation: str, value: str) -> str:
        """Return an image: each colour rises and falls with the hue, by its distance from where it is full."""
        zero, one, six = (self.number(each) for each in (0, 1, 6))
        distance = self("Abs", self("Sub", self("Mul", hue, six), np.array([3, 2, 4], self.number)))
        ramp = self("Mul", distance, np.array([1, -1, -1], self.number))
        full = self("Clip", self("Add", ramp, np.array([-1, 2, 2], self.number)), zero, one)
        share = self("Add", self("Sub", one, saturation), self("Mul", saturation, full))
        return self("Mul", share, value)


def to_hsv(graph: Any, node: Any) -> None:
    """`RGBToHSV`."""
    write = _Colours(graph, node)
    write.last("Concat", *write.to_hsv(*write.inputs), axis=-1)


def to_rgb(graph: Any, node: Any) -> None:
    """`HSVToRGB`."""
    write = _Colours(graph, node)
    (image,) = write.inputs
    write.last("Identity", write.to_rgb(*write.parts(image)))


def saturate(graph: Any, node: Any) -> None:
    """`AdjustSaturation` of (images, factor)."""
    write = _Colours(graph, node)
    image, factor = write.inputs
    hue, saturation, value = write.to_hsv(image)
    saturation = write("Mul", saturation, write("Cast", factor, to=write.dtype))
    saturation = write("Clip", saturation, write.number(0), write.number(1))
    write.last("Identity", write.to_rgb(hue, saturation, value))
