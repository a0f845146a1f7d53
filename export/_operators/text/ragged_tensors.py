"""Handlers for ragged tensors: to dense, bincount, n-grams."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from ..graph_builder import RejectionReason, constant_value
from .string_builder import EMPTY, INT64, StringReplacement

FLOAT = np.float32
Rows = tuple[str, str]  # the start and the length of each row of an axis, both int64 (rows,)


def ragged_tensor_to_tensor(graph: Any, node: Any) -> RejectionReason:
    """Convert `RaggedTensorToTensor` of (shape, values, default, row partition ...) to `GatherND` of padded rows."""
    # tf2onnx supports one type of row partition for all axes only, VALUE_ROWIDS (items,) or ROW_SPLITS (rows + 1,)
    types = [name.decode() if isinstance(name, bytes) else name for name in node.get_attr_value("row_partition_types")]
    shape = constant_value(graph, node.input[0])
    if shape is None or not {*types} <= {"FIRST_DIM_SIZE", "VALUE_ROWIDS", "ROW_SPLITS"}:
        return f"its shape is not constant, or its partition ({', '.join(types)}) is not supported"
    op = _Ragged(graph, node)
    _, values, default, *partition = op.inputs
    axes = op.read_partition([*zip(types, partition, strict=True)])
    num_rows, *columns = shape.tolist() if shape.ndim else [-1] * (len(axes) + 1)
    # `columns` also has the axes of an item, which come last
    widths = [
        op.constant([size]) if size >= 0 else op.maximum(lengths)
        for size, (_, lengths) in zip(columns, axes, strict=False)
    ]
    if num_rows >= 0:
        starts, lengths = axes[0]
        axes[0] = op.resize(starts, num_rows), op.resize(lengths, num_rows)
    # From the last ragged axis to the first: an item of an axis is a padded row of the next axis
    for rows, width in reversed([*zip(axes, widths, strict=True)]):
        values = op.to_dense(values, rows, width, default)
    return op.finish("Identity", values)


def ragged_bincount(graph: Any, node: Any) -> RejectionReason:
    """Convert `RaggedBincount` of (splits, values, size, no weights) to `ScatterElements`: (rows, size); no mapping."""
    # Values of at least `size`, and the padding, are counted in an additional column
    shape = graph.get_shape(node.input[3])
    if shape is None or 0 not in shape:
        return "weights are not supported"
    is_binary = bool(node.get_attr_value("binary_output", False))
    op = _Ragged(graph, node)
    splits, values, size, _ = op.inputs
    rows = op.read_rows(splits)
    size = op.Reshape(op.Cast(size, to=INT64), [1])
    numbers = op.to_dense(op.Cast(values, to=INT64), rows, op.maximum(rows[1]), size)
    ones = op.Expand(FLOAT(1), op.Shape(numbers))
    bins = op.Concat(op.dims(numbers, 0, 1), op.Add(size, [1]), axis=0)
    zeros = op.Expand(FLOAT(0), bins)
    reduction = "none" if is_binary else "add"
    counts = op.ScatterElements(zeros, op.Min(numbers, size), ones, axis=-1, reduction=reduction)
    return op.finish("Cast", op.Slice(counts, [0], [-1], [-1]), to=op.dtype)


def string_n_grams(graph: Any, node: Any) -> RejectionReason:
    """Convert `StringNGrams` of (words (N,), splits (rows + 1,)) to `StringConcat` of shifted columns; no mapping."""
    # The n-grams, (n-grams,), are in the order of rows, then of widths, then of words
    if any(node.get_attr_value(name, 0) for name in ("pad_width", "preserve_short_sequences")):
        return "`pad_width` and `preserve_short_sequences` are not supported"
    widths = node.get_attr_value("ngram_widths", [])
    separator = np.array(node.get_attr_str("separator"), object)
    op = _Ragged(graph, node)
    values, splits = op.inputs
    starts, lengths = op.read_rows(splits)
    longest = op.maximum(lengths)
    words = gram = op.to_dense(values, (starts, lengths), longest, np.array([""], object))
    grams = {}
    masks = {}
    for width in range(1, max(widths) + 1):
        if width > 1:
            fill = op.Expand(EMPTY, op.concat_shape(op.dims(words, 0, 1), width - 1))
            next_words = op.Concat(op.Slice(words, [width - 1], [2**31], [1]), fill, axis=1)
            next_words = op.Slice(next_words, [0], longest, [1])
            gram = op.concatenate(op.concatenate(gram, separator, 2), next_words, 2)
        last_word = op.Add(op.column_indices(words), np.int64(width - 1))
        grams[width] = gram
        masks[width] = op.Less(last_word, op.Unsqueeze(lengths, [1]))
    mask = op.Concat(*(op.Cast(masks[width], to=INT64) for width in widths), axis=1)
    all_grams = op.Concat(*(grams[width] for width in widths), axis=1)
    op.finish("GatherND", all_grams, op.true_indices(mask))
    return op.finish("Cast", op.row_splits(op.count_true(mask)), output=1, to=op.dtypes[1])


class _Ragged(StringReplacement):
    """Builds dense arrays of ragged rows."""

    def read_rows(self, splits: str) -> Rows:
        """Return the rows of row splits (rows + 1,)."""
        as_int64 = self.Cast(splits, to=INT64)
        starts = self.Slice(as_int64, [0], [-1], [0])
        return starts, self.Sub(self.Slice(as_int64, [1], [2**31], [0]), starts)

    def read_partition(self, partition: Sequence[tuple[str, str]]) -> list[Rows]:
        """Return the rows of each axis of a row partition, from its (type, tensor) pairs."""
        count = ""  # the number of rows of the next axis, (1,)
        axes: list[Rows] = []
        for partition_type, tensor in partition:
            if partition_type == "FIRST_DIM_SIZE":
                count = self.Reshape(self.Cast(tensor, to=INT64), [1])
                continue
            axes.append(self.read_rows(tensor) if partition_type == "ROW_SPLITS" else self.rows_from_ids(tensor, count))
            count = self.ReduceSum(axes[-1][1], [0], keepdims=1)
        return axes

    def rows_from_ids(self, ids: str, count: str) -> Rows:
        """Return `count`, (1,), rows from the row index of each item, (items,)."""
        zeros = self.Expand(np.int64(0), count)
        ones = self.Expand(np.int64(1), self.Shape(ids))
        lengths = self.ScatterElements(zeros, self.Cast(ids, to=INT64), ones, axis=0, reduction="add")
        return self.CumSum(lengths, np.int64(0), exclusive=1), lengths

    def resize(self, numbers: str, size: int) -> str:
        """Truncate int64 numbers (n,), or extend them by zeros, to (size,)."""
        return self.Slice(self.Concat(numbers, np.zeros(size, np.int64), axis=0), [0], [size], [0])

    def to_dense(self, values: str, rows: Rows, columns: str, default: Any) -> str:
        """Return the rows (rows, columns, ...) of items (items, ...); `columns` is (1,), `default` the padding."""
        starts, lengths = rows
        column_indices = self.arange(columns)
        is_inside = self.Less(column_indices, self.Unsqueeze(lengths, [1]))
        index = self.Where(is_inside, self.Add(self.Unsqueeze(starts, [1]), column_indices), self.dims(values, 0, 1))
        padding = self.Expand(default, self.Concat([1], self.Shape(values, start=1), axis=0))
        # `Gather` in onnxruntime 1.32 copies only the first string of each contiguous row
        return self.GatherND(self.Concat(values, padding, axis=0), self.Unsqueeze(index, [-1]))
