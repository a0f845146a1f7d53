"""Handlers for `FakeQuantWithMinMax...` (quantization-aware training)."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..graph_builder import Replacement

HALF = np.float32(0.5)


def rounded(graph: Any, node: Any) -> None:
    """`FakeQuantWithMinMaxArgs`, `...Vars` and `...VarsPerChannel`: numbers, the smallest and the largest.

    These two are moved so that zero is a step. Where both are zero, so is all.
    """
    lowest = np.float32(bool(node.get_attr_value("narrow_range", 0)))
    highest = np.float32(2 ** node.get_attr_value("num_bits", 8) - 1)
    limits = [np.float32(node.get_attr_value(name, default)) for name, default in (("min", -6.0), ("max", 6.0))]
    write = Replacement(graph, node)
    x, smallest, largest = write.inputs if len(write.inputs) == 3 else [write.inputs[0], *map(write.constant, limits)]
    step = write("Div", write("Sub", largest, smallest), highest - lowest)
    from_smallest = write("Sub", lowest, write("Div", smallest, step))
    zero = write("Clip", write("Floor", write("Add", from_smallest, HALF)), lowest, highest)
    low, high = (write("Mul", write("Sub", each, zero), step) for each in (lowest, highest))
    inverse = write("Div", highest - lowest, write("Sub", largest, smallest))
    place = write("Mul", write("Sub", write("Max", write("Min", x, high), low), low), inverse)
    quantized = write("Sub", place, write("Floor", write("Add", write("Mul", write("Neg", low), inverse), HALF)))
    found = write("Mul", write("Floor", write("Add", quantized, HALF)), step)
    none = write("And", write("Equal", smallest, np.float32(0)), write("Equal", largest, np.float32(0)))
    write.last("Where", none, np.float32(0), found)
