"""Handlers for ragged tensors: to dense, bincount, n-grams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph_builder import constant_of
from .string_builder import EMPTY, INT64, STRING, Strings, Text

FLOAT = np.float32


def to_tensor(graph: Any, node: Any) -> None:
    """`RaggedTensorToTensor`: axis by axis, the last first."""
    kinds = [each.decode() if isinstance(each, bytes) else each for each in node.get_attr_value("row_partition_types")]
    known = constant_of(graph, node.input[0])
    if known is None or not {*kinds} <= {"FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS"}:
        return
    write = _Rows(graph, node)
    _, values, default, *partition = write.inputs
    axes = write.axes([*zip(kinds, partition, strict=True)])
    rows, *columns = known.tolist() if known.ndim else [-1] * (len(axes) + 1)
    sizes = [
        write.constant([size]) if size >= 0 else write.largest(lengths)
        for size, (_, lengths) in zip(columns, axes, strict=False)  # not of what is within an item
    ]
    if rows >= 0:  # more than there are, or fewer
        starts, lengths = axes[0]
        axes[0] = write.first(starts, rows), write.first(lengths, rows)
    for (starts, lengths), size in reversed([*zip(axes, sizes, strict=True)]):
        values = write.dense(values, starts, lengths, size, default)
    write.last("Identity", values)


def counts(graph: Any, node: Any) -> None:
    """`RaggedBincount` without weights: numbers beyond the size are not counted."""
    shape, is_binary = graph.get_shape(node.input[3]), bool(node.get_attr_value("binary_output", False))
    if shape is None or 0 not in shape:
        return
    write = _Rows(graph, node)
    splits, values, size, _ = write.inputs
    starts, lengths = write.rows(splits)
    size = write("Reshape", write("Cast", size, to=INT64), [1])
    numbers = write.dense(write("Cast", values, to=INT64), starts, lengths, write.largest(lengths), size)
    ones = write("Expand", FLOAT(1), write("Shape", numbers))
    shape_and_rest = write("Concat", write.sizes(numbers, 0, 1), write("Add", size, [1]), axis=0)
    zeros = write("Expand", FLOAT(0), shape_and_rest)
    reduction = "none" if is_binary else "add"
    found = write("ScatterElements", zeros, write("Min", numbers, size), ones, axis=-1, reduction=reduction)
    write.last("Cast", write("Slice", found, [0], [-1], [-1]), to=write.dtype)


def ngrams(graph: Any, node: Any) -> None:
    """`StringNGrams` without padding: row by row those of the first width, then those of the next."""
    if any(node.get_attr_value(each, 0) for each in ("pad_width", "preserve_short_sequences")):
        return
    widths, separator = node.get_attr_value("ngram_widths", []), np.array(node.get_attr_str("separator"), object)
    (values, splits), (found, ends), shapes, kind = node.input, node.output, node.output_shapes, node.output_dtypes[1]
    graph.remove_node(node.name)
    write = _Ragged(graph)
    starts, lengths = write.rows(splits)
    longest = write.largest(lengths)
    words = gram = write.dense(values, starts, lengths, longest, np.array([""], object))
    grams, there = {}, {}
    for width in range(1, max(widths) + 1):
        if width > 1:
            fill = write("Expand", EMPTY, write("Concat", write.sizes(words, 0, 1), [width - 1], axis=0))
            beside = write("Concat", write("Slice", words, [width - 1], [2**31], [1]), fill, axis=1)
            beside = write("Slice", beside, [0], longest, [1])
            gram = write.concatenated(write.concatenated(gram, separator, 2), beside, 2)
        last = write("Add", write.columns(words), np.int64(width - 1))
        grams[width], there[width] = gram, write("Less", last, write("Unsqueeze", lengths, [1]))
    valid = write("Concat", *(write("Cast", there[width], to=INT64) for width in widths), axis=1)
    every = write("Concat", *(grams[width] for width in widths), axis=1)
    write.named(found, "GatherND", every, write.places(valid), shape=shapes[0], gives=STRING)
    write.named(ends, "Cast", write.sums(write.count(valid)), to=kind, shape=shapes[1], gives=kind)


class _Ragged(Strings):
    """Writes rows of unequal lengths as arrays."""

    def rows(self, splits: str) -> tuple[str, str]:
        """Return where rows begin and how long they are, of where each begins and the last ends."""
        whole = self("Cast", splits, to=INT64)
        starts = self("Slice", whole, [0], [-1], [0])
        return starts, self("Sub", self("Slice", whole, [1], [2**31], [0]), starts)

    def axes(self, partition: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
        """Return where the rows of each axis begin and how long they are, of what TensorFlow tells of them."""
        many, found = "", []  # rows of the next axis: (1,)
        for kind, told in partition:
            if kind == "FIRST_DIM_SIZE":
                many = self("Reshape", self("Cast", told, to=INT64), [1])
                continue
            found.append(self.rows(told) if kind == "ROW_SPLITS" else self.owned(told, many))
            many = self("ReduceSum", found[-1][1], [0], keepdims=1)
        return found

    def owned(self, owners: str, many: str) -> tuple[str, str]:
        """Return where so many rows begin and how long they are, of the row of each item."""
        zeros, ones = self("Expand", np.int64(0), many), self("Expand", np.int64(1), self("Shape", owners))
        lengths = self("ScatterElements", zeros, self("Cast", owners, to=INT64), ones, axis=0, reduction="add")
        return self("CumSum", lengths, np.int64(0), exclusive=1), lengths

    def first(self, numbers: str, size: int) -> str:
        """Return the first of some whole numbers, and zeros behind the last."""
        return self("Slice", self("Concat", numbers, np.zeros(size, np.int64), axis=0), [0], [size], [0])

    def dense(self, values: str, starts: str, lengths: str, columns: str, default: Any) -> str:
        """Return rows as an array, filled up with a default.

        Args:
            values: (numbers, ...), row after row.
            starts: (rows,), where each begins.
            lengths: (rows,).
            columns: (1,), how many the array has.
            default: What fills it up: one, or what becomes an item of `values` when it is broadcast.
        """
        numbers = self.up_to(columns)
        inside = self("Less", numbers, self("Unsqueeze", lengths, [1]))
        places = self("Where", inside, self("Add", self("Unsqueeze", starts, [1]), numbers), self.sizes(values, 0, 1))
        filling = self("Expand", default, self("Concat", [1], self("Shape", values, start=1), axis=0))
        # Of rows of strings, onnxruntime's Gather copies only the first of each: seen in 1.32.
        return self("GatherND", self("Concat", values, filling, axis=0), self("Unsqueeze", places, [-1]))


class _Rows(_Ragged, Text):
    """Writes what stands in the place of a node that reads rows of unequal lengths."""
