"""Handlers for conversions between RGB and HSV, written as elementwise operators; images are (..., 3)."""

from typing import Any

from ..graph_builder import NodeReplacement


def rgb_to_hsv(graph: Any, node: Any) -> None:
    """Convert `RGBToHSV`; tf2onnx has no mapping."""
    op = _Colours(graph, node)
    op.finish("Concat", *op.to_hsv(*op.inputs), axis=-1)


def hsv_to_rgb(graph: Any, node: Any) -> None:
    """Convert `HSVToRGB`; tf2onnx has no mapping."""
    op = _Colours(graph, node)
    (image,) = op.inputs
    op.finish("Identity", op.to_rgb(*op.split_channels(image)))


def adjust_saturation(graph: Any, node: Any) -> None:
    """Convert `AdjustSaturation` of (images, factor) by HSV; tf2onnx does not invert its sorting of the colours."""
    op = _Colours(graph, node)
    image, factor = op.inputs
    hue, saturation, value = op.to_hsv(image)
    scaled_saturation = op.Mul(saturation, op.Cast(factor, to=op.dtype))
    op.finish("Identity", op.to_rgb(hue, op.Clip(scaled_saturation, op.number(0), op.number(1)), value))


class _Colours(NodeReplacement):
    """Builder of colour conversions; channels are (..., 1)."""

    def split_channels(self, image: str) -> list[str]:
        """Return the three channels (..., 1) of images (..., 3)."""
        return [self.Gather(image, [channel], axis=-1) for channel in range(3)]

    def to_hsv(self, image: str) -> list[str]:
        """Return hue, saturation and value, (..., 1) each, of RGB images."""
        # value = max, saturation = (max - min) / max, hue = third / 3 + (next - previous colour) / 6 / (max - min);
        # `third` is the index of the largest colour, the first one of equal colours
        zero = self.number(0)
        one = self.number(1)
        red, green, blue = self.split_channels(image)
        value = self.Max(red, green, blue)
        chroma = self.Sub(value, self.Min(red, green, blue))
        saturation = self.Where(self.Greater(value, zero), self.Div(chroma, value), zero)
        sixth = self.Div(self.Div(one, self.number(6)), chroma)
        from_green = self._compute_hue(sixth, 1, blue, red)
        from_blue = self._compute_hue(sixth, 2, red, green)
        green_or_blue = self.Where(self.Equal(green, value), from_green, from_blue)
        largest = self.Where(self.Equal(red, value), self._compute_hue(sixth, 0, green, blue), green_or_blue)
        hue = self.Where(self.Greater(chroma, zero), largest, zero)
        return [self.Where(self.Less(hue, zero), self.Add(hue, one), hue), saturation, value]

    def _compute_hue(self, sixth: str, third: int, next_colour: str, previous_colour: str) -> str:
        return self.Add(self.Mul(sixth, self.Sub(next_colour, previous_colour)), self.number(third / 3))

    def to_rgb(self, hue: str, saturation: str, value: str) -> str:
        """Return RGB images from three channels."""
        # A colour depends on the distance of the hue from 3/6, 2/6 or 4/6: red = clip(|6 h - 3| - 1, 0, 1), green and
        # blue = clip(2 - |6 h - 2|, 0, 1) and clip(2 - |6 h - 4|, 0, 1); then colour = (1 - s + s * full) * value
        zero, one, six = map(self.number, (0, 1, 6))
        distance = self.Abs(self.Sub(self.Mul(hue, six), self.number([3, 2, 4])))
        ramp = self.Mul(distance, self.number([1, -1, -1]))
        full = self.Clip(self.Add(ramp, self.number([-1, 2, 2])), zero, one)
        brightness = self.Add(self.Sub(one, saturation), self.Mul(saturation, full))
        return self.Mul(brightness, value)
