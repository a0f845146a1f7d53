"""Window geometry of convolutions and pooling: sizes, strides, padding.

A window of `size` elements at distances `rate` covers `(size - 1) * rate + 1` elements. With VALID padding an axis of
`length` elements has `(length - covered) // stride + 1` windows, with SAME padding `ceil(length / stride)`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph_builder import GraphBuilder, Operand


class Windows:
    """Windows along the spatial axes of images.

    Attributes:
        first_spatial_axis: The first spatial axis: 1, or 2 with channels first.
        sizes, strides, rates: One number for each spatial axis.
        image_shape: The shape of the images, with -1 for unknown sizes.
    """

    def __init__(
        self, graph: Any, node: Any, sizes: Sequence[int], strides: Sequence[int], rates: Sequence[int]
    ) -> None:
        rank = len(sizes)
        self.first_spatial_axis = 2 if node.get_attr_value("data_format", b"").startswith(b"NC") else 1
        spatial = slice(self.first_spatial_axis, self.first_spatial_axis + rank)
        self.sizes = [*sizes]
        self.strides = [*strides][spatial]
        self.rates = [*rates][spatial] or [1] * rank
        self.padding: str = node.get_attr_str("padding")
        pads: list[int] = node.get_attr_value("explicit_paddings") or [0] * (2 * rank + 4)
        self.explicit_pads = [pads[2 * axis : 2 * axis + 2] for axis in range(rank + 2)][spatial]
        self.image_shape: list[int] = graph.get_shape(node.input[0])

    @property
    def needs_explicit_padding(self) -> bool:
        """True if SAME padding depends on an unknown size, and windows leave gaps."""
        # onnxruntime pads by a negative number for gaps between windows (stride > covered), and raises an error for
        # gaps within windows (rate > 1)
        extents = ((size - 1) * rate + 1 for size, rate in zip(self.sizes, self.rates, strict=True))
        axes = zip(extents, self.strides, self.rates, self.image_shape[self.first_spatial_axis :], strict=False)
        return self.padding == "SAME" and any(
            length < 0 and (covered < stride or rate > 1) for covered, stride, rate, length in axes
        )

    def pad(self, op: GraphBuilder, images: str, fill_value: Operand = "") -> str:
        """Pad images explicitly, by default with 0, as `padding` states."""
        if self.padding == "VALID":
            return images
        fold = op.fold
        pads_before: list[Operand] = [[0]] * (len(self.sizes) + 2)
        pads_after = [*pads_before]
        for index, (size, stride, rate) in enumerate(zip(self.sizes, self.strides, self.rates, strict=True)):
            axis = self.first_spatial_axis + index
            if self.padding == "EXPLICIT":
                pads_before[axis], pads_after[axis] = ([pad] for pad in self.explicit_pads[index])
                continue
            length: Operand = self.image_shape[axis]
            if self.image_shape[axis] < 0:
                length = op.Gather(op.Shape(images), axis)
            # SAME: `count` windows need (count - 1) * stride + covered elements; the odd one is added at the end
            count = fold.Div(fold.Add(length, stride - 1), stride)
            needed_length = fold.Add(fold.Mul(fold.Sub(count, 1), stride), (size - 1) * rate + 1)
            total_pad = fold.Max(fold.Sub(needed_length, length), [0])
            pads_before[axis] = fold.Div(total_pad, 2)
            pads_after[axis] = fold.Sub(total_pad, pads_before[axis])
        return op.Pad(images, fold.Concat(*pads_before, *pads_after, axis=0), fill_value)

    def extract(self, op: GraphBuilder, images: str, fill_value: Operand = "") -> tuple[str, Operand]:
        """Pad images (B, ..., C), and return windows (B, counts ..., sizes ..., C) and the vector [B, counts ...]."""
        # Each spatial axis is gathered at indices (count, size); from the last axis on, so that others do not move
        fold = op.fold
        rank = len(self.sizes)
        padded = self.pad(op, images, fill_value)
        shape = op.Shape(padded)
        counts: list[Operand] = []
        for axis in range(rank, 0, -1):
            size, stride, rate = (settings[axis - 1] for settings in (self.sizes, self.strides, self.rates))
            is_constant = self.padding == "VALID" and self.image_shape[axis] >= 0
            length: Operand = self.image_shape[axis] if is_constant else op.Gather(shape, axis)
            span = fold.Sub(length, (size - 1) * rate + 1 - stride)
            count = fold.Max(fold.Div(span, stride), 0)
            starts = fold.Mul(fold.Range(0, count, 1), stride)
            index = fold.Add(fold.Unsqueeze(starts, [1]), np.arange(size) * rate)
            padded = op.Gather(padded, index, axis=axis)
            counts.insert(0, fold.Reshape(count, [1]))
        count_axes = range(1, 2 * rank, 2)
        size_axes = range(2, 2 * rank + 1, 2)
        windows = op.Transpose(padded, perm=[0, *count_axes, *size_axes, 2 * rank + 1])
        return windows, fold.Concat(op.Gather(shape, [0]), *counts, axis=0)
