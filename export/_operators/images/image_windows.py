"""Window geometry of convolutions and pooling: sizes, strides, padding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph_builder import Value, Writer


class Windows:
    """Windows along the axes between the first and the last, or, channels first, along those from the third on.

    Attributes:
        sizes: Of a window, an axis each, as are strides and rates.
        images: The sizes of the images, -1 where they are not known.
    """

    def __init__(
        self, graph: Any, node: Any, sizes: Sequence[int], strides: Sequence[int], rates: Sequence[int]
    ) -> None:
        rank = len(sizes)
        self.first = 2 if node.get_attr_value("data_format", b"").startswith(b"NC") else 1
        here = slice(self.first, self.first + rank)
        self.sizes, self.strides, self.rates = [*sizes], [*strides][here], [*rates][here] or [1] * rank
        self.padding: str = node.get_attr_str("padding")
        explicit: list[int] = node.get_attr_value("explicit_paddings") or [0] * (2 * rank + 4)
        self.explicit = [explicit[2 * axis : 2 * axis + 2] for axis in range(rank + 2)][here]
        self.images: list[int] = graph.get_shape(node.input[0])

    @property
    def are_padded_wrongly(self) -> bool:
        """Whether it hangs on a size that is not known how much lies outside, and windows leave gaps.

        Between them onnxruntime pads less than nothing, within them it refuses to.
        """
        reaches = ((size - 1) * rate + 1 for size, rate in zip(self.sizes, self.rates, strict=True))
        axes = zip(reaches, self.strides, self.rates, self.images[self.first :], strict=False)
        return self.padding == "SAME" and any(
            known < 0 and (reach < stride or rate > 1) for reach, stride, rate, known in axes
        )

    def padded(self, write: Writer, images: str, outside: Value = "") -> str:
        """Return images with what windows read around them."""
        if self.padding == "VALID":
            return images
        compute, rank = write.computed, len(self.sizes)
        before: list[Value] = [[0]] * (rank + 2)
        after = [*before]
        for number, (size, stride, rate) in enumerate(zip(self.sizes, self.strides, self.rates, strict=True)):
            axis = self.first + number
            if self.padding == "EXPLICIT":
                before[axis], after[axis] = ([each] for each in self.explicit[number])
                continue
            length: Value = self.images[axis]
            if self.images[axis] < 0:
                length = write("Gather", write("Shape", images), axis)
            count = compute("Div", compute("Add", length, stride - 1), stride)
            reached = compute("Add", compute("Mul", compute("Sub", count, 1), stride), (size - 1) * rate + 1)
            missing = compute("Max", compute("Sub", reached, length), [0])
            before[axis] = compute("Div", missing, 2)
            after[axis] = compute("Sub", missing, before[axis])
        return write("Pad", images, compute("Concat", *before, *after, axis=0), outside)

    def cut(self, write: Writer, images: str, outside: Value = "") -> tuple[str, Value]:
        """Return (B, places ..., window ..., C), and the sizes B, places ...; channels last."""
        compute, rank, known = write.computed, len(self.sizes), self.padding == "VALID"
        images = self.padded(write, images, outside)
        sizes = write("Shape", images)
        counts: list[Value] = []
        for axis in range(rank, 0, -1):
            size, stride, rate = (each[axis - 1] for each in (self.sizes, self.strides, self.rates))
            length: Value = self.images[axis] if known and self.images[axis] >= 0 else write("Gather", sizes, axis)
            room = compute("Sub", length, (size - 1) * rate + 1 - stride)
            count = compute("Max", compute("Div", room, stride), 0)
            first = compute("Mul", compute("Range", 0, count, 1), stride)
            index = compute("Add", compute("Unsqueeze", first, [1]), np.arange(size) * rate)
            images = write("Gather", images, index, axis=axis)
            counts.insert(0, compute("Reshape", count, [1]))
        places, windows = range(1, 2 * rank, 2), range(2, 2 * rank + 1, 2)
        cut = write("Transpose", images, perm=[0, *places, *windows, 2 * rank + 1])
        return cut, compute("Concat", write("Gather", sizes, [0]), *counts, axis=0)
