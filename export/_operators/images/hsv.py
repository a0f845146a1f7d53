"""Handlers for `RGBToHSV`, `HSVToRGB` and `AdjustSaturation`."""

from typing import Any

from ..graph_builder import NodeReplacement


def rgb_to_hsv(graph: Any, node: Any) -> None:
    """Convert `RGBToHSV`."""
    op = _Colours(graph, node)
    op.finish("Concat", *op.to_hsv(*op.inputs), axis=-1)


def hsv_to_rgb(graph: Any, node: Any) -> None:
    """Convert `HSVToRGB`."""
    op = _Colours(graph, node)
    (image,) = op.inputs
    op.finish("Identity", op.to_rgb(*op.split_channels(image)))


def adjust_saturation(graph: Any, node: Any) -> None:
    """Convert `AdjustSaturation` of (images, factor)."""
    op = _Colours(graph, node)
    image, factor = op.inputs
    hue, saturation, value = op.to_hsv(image)
    scaled = op.Mul(saturation, op.Cast(factor, to=op.dtype))
    op.finish("Identity", op.to_rgb(hue, op.Clip(scaled, op.number(0), op.number(1)), value))


class _Colours(NodeReplacement):
    """Builds colour conversions in place of a node."""

    def split_channels(self, image: str) -> list[str]:
        """Return three channels (..., 1) of images (..., 3)."""
        return [self.Gather(image, [channel], axis=-1) for channel in range(3)]

    def to_hsv(self, image: str) -> list[str]:
        """Return hue, saturation and value; the hue begins at the largest colour, the first of several."""
        zero = self.number(0)
        one = self.number(1)
        red, green, blue = self.split_channels(image)
        value = self.Max(red, green, blue)
        spread = self.Sub(value, self.Min(red, green, blue))
        saturation = self.Where(self.Greater(value, zero), self.Div(spread, value), zero)
        sixth = self.Div(self.Div(one, self.number(6)), spread)
        from_green = self._compute_hue(sixth, 1, blue, red)
        from_blue = self._compute_hue(sixth, 2, red, green)
        other = self.Where(self.Equal(green, value), from_green, from_blue)
        largest = self.Where(self.Equal(red, value), self._compute_hue(sixth, 0, green, blue), other)
        hue = self.Where(self.Greater(spread, zero), largest, zero)
        return [self.Where(self.Less(hue, zero), self.Add(hue, one), hue), saturation, value]

    def _compute_hue(self, sixth: str, third: int, more: str, less: str) -> str:
        return self.Add(self.Mul(sixth, self.Sub(more, less)), self.number(third / 3))

    def to_rgb(self, hue: str, saturation: str, value: str) -> str:
        """Return an image: each colour rises and falls with the distance of the hue from where the colour is full."""
        zero, one, six = map(self.number, (0, 1, 6))
        distance = self.Abs(self.Sub(self.Mul(hue, six), self.number([3, 2, 4])))
        ramp = self.Mul(distance, self.number([1, -1, -1]))
        full = self.Clip(self.Add(ramp, self.number([-1, 2, 2])), zero, one)
        share = self.Add(self.Sub(one, saturation), self.Mul(saturation, full))
        return self.Mul(share, value)
