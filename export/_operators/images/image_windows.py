"""Window geometry of convolutions and pooling: sizes, strides, padding."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph_builder import GraphBuilder, Operand


class Windows:
    """Windows along the spatial axes of images.

    Attributes:
        first: The first spatial axis: 1, or 2 with channels first.
        sizes, strides, rates: One number for each spatial axis.
        images: The shape of the images, with -1 for unknown sizes.
    """

    def __init__(
        self, graph: Any, node: Any, sizes: Sequence[int], strides: Sequence[int], rates: Sequence[int]
    ) -> None:
        rank = len(sizes)
        self.first_axis = 2 if node.get_attr_value("data_format", b"").startswith(b"NC") else 1
        spatial = slice(self.first_axis, self.first_axis + rank)
        self.sizes = [*sizes]
        self.strides = [*strides][spatial]
        self.rates = [*rates][spatial] or [1] * rank
        self.padding: str = node.get_attr_str("padding")
        explicit_pads: list[int] = node.get_attr_value("explicit_paddings") or [0] * (2 * rank + 4)
        self.explicit = [explicit_pads[2 * axis : 2 * axis + 2] for axis in range(rank + 2)][spatial]
        self.image_shape: list[int] = graph.get_shape(node.input[0])

    @property
    def needs_explicit_padding(self) -> bool:
        """True if the padding depends on an unknown size, and windows leave gaps.

        For gaps between windows onnxruntime pads a negative number, for gaps within windows it raises an error.
        """
        reaches = ((size - 1) * rate + 1 for size, rate in zip(self.sizes, self.rates, strict=True))
        axes = zip(reaches, self.strides, self.rates, self.image_shape[self.first_axis :], strict=False)
        return self.padding == "SAME" and any(
            size < 0 and (reach < stride or rate > 1) for reach, stride, rate, size in axes
        )

    def pad(self, op: GraphBuilder, images: str, number: Operand = "") -> str:
        """Return images padded with a number, by default 0, as far as windows reach.

        For SAME, `count = ceil(length / stride)` windows reach `(count - 1) * stride + (size - 1) * rate + 1`.
        """
        if self.padding == "VALID":
            return images
        fold = op.fold
        before: list[Operand] = [[0]] * (len(self.sizes) + 2)
        after = [*before]
        for index, (size, stride, rate) in enumerate(zip(self.sizes, self.strides, self.rates, strict=True)):
            axis = self.first_axis + index
            if self.padding == "EXPLICIT":
                before[axis], after[axis] = ([pad] for pad in self.explicit[index])
                continue
            length: Operand = self.image_shape[axis]
            if self.image_shape[axis] < 0:
                length = op.Gather(op.Shape(images), axis)
            count = fold.Div(fold.Add(length, stride - 1), stride)
            reached = fold.Add(fold.Mul(fold.Sub(count, 1), stride), (size - 1) * rate + 1)
            missing = fold.Max(fold.Sub(reached, length), [0])
            before[axis] = fold.Div(missing, 2)
            after[axis] = fold.Sub(missing, before[axis])
        return op.Pad(images, fold.Concat(*before, *after, axis=0), number)

    def extract(self, op: GraphBuilder, images: str, number: Operand = "") -> tuple[str, Operand]:
        """Return windows (B, counts ..., sizes ..., C) of images with channels last, and the vector B, counts ...

        The images are padded with a number, by default 0.
        """
        fold = op.fold
        rank = len(self.sizes)
        padded = self.pad(op, images, number)
        shape = op.Shape(padded)
        counts: list[Operand] = []
        for axis in range(rank, 0, -1):
            size, stride, rate = (numbers[axis - 1] for numbers in (self.sizes, self.strides, self.rates))
            is_known = self.padding == "VALID" and self.image_shape[axis] >= 0
            length: Operand = self.image_shape[axis] if is_known else op.Gather(shape, axis)
            room = fold.Sub(length, (size - 1) * rate + 1 - stride)
            count = fold.Max(fold.Div(room, stride), 0)
            first = fold.Mul(fold.Range(0, count, 1), stride)
            index = fold.Add(fold.Unsqueeze(first, [1]), np.arange(size) * rate)
            padded = op.Gather(padded, index, axis=axis)
            counts.insert(0, fold.Reshape(count, [1]))
        places = range(1, 2 * rank, 2)
        within = range(2, 2 * rank + 1, 2)
        windows = op.Transpose(padded, perm=[0, *places, *within, 2 * rank + 1])
        return windows, fold.Concat(op.Gather(shape, [0]), *counts, axis=0)
