"""Handlers for string operators: case, strip, join, split, compare.

tf2onnx maps these operators to onnxruntime-extensions, which onnxruntime does not contain. ONNX's `StringNormalizer`
changes all letters, TensorFlow's `StringLower` ASCII letters only; ONNX's `StringSplit` splits at blanks only,
`StringSplitV2` at all white space.
"""

import string
from typing import Any

import numpy as np

from ..._private_api.tf2onnx_internals import convert_with_tf2onnx
from ..graph_builder import RejectionReason, constant_value
from .string_builder import EMPTY, STRING, STRIPPED, WORD, StringReplacement

UPPER, LOWER = string.ascii_uppercase, string.ascii_lowercase


def string_lower(graph: Any, node: Any) -> RejectionReason:
    """Convert `StringLower` of texts of any shape to `Tokenizer` and `LabelEncoder`."""
    return _replace_letters(graph, node, UPPER, LOWER)


def string_upper(graph: Any, node: Any) -> RejectionReason:
    """Convert `StringUpper` of texts of any shape to `Tokenizer` and `LabelEncoder`."""
    return _replace_letters(graph, node, LOWER, UPPER)


def _replace_letters(graph: Any, node: Any, letters: str, replacements: str) -> RejectionReason:
    """Replace ASCII letters by others; tokens are these letters, and the text between them."""
    if node.get_attr_value("encoding", b"") not in (b"", ""):
        return "only ASCII letters can be changed, without `encoding`"
    op = StringReplacement(graph, node)
    range_of_letters = f"{letters[0]}-{letters[-1]}"
    tokens = op.tokenize(op.inputs[0], f"[{range_of_letters}]|[^{range_of_letters}]+")
    return op.finish_joined(op.replace(tokens, dict(zip(letters, replacements, strict=True))))


def string_strip(graph: Any, node: Any) -> None:
    """Convert `StringStrip` of texts of any shape to `Tokenizer`: one token without white space at its ends."""
    op = StringReplacement(graph, node)
    op.finish_joined(op.tokenize(op.inputs[0], STRIPPED))


def string_join(graph: Any, node: Any) -> RejectionReason:
    """Convert `StringJoin` of tensors of known ranks, whose shapes broadcast, to `StringConcat`."""
    if any(graph.get_rank(name) is None for name in node.input):
        return "the rank of one of its inputs is unknown"
    separator = node.get_attr_str("separator") if node.get_attr("separator") else ""
    op = StringReplacement(graph, node)
    text = op.inputs[0]
    rank = graph.get_rank(text)
    for next_text in op.inputs[1:]:
        text = op.concatenate(text, np.array(separator, object), rank) if separator else text
        rank = max(rank, graph.get_rank(next_text))
        text = op.concatenate(text, next_text, rank)
    return op.finish("Identity", text)


def equal_and_not_equal(graph: Any, node: Any) -> None:
    """Convert `Equal` and `NotEqual` of strings, whose shapes broadcast; other dtypes by tf2onnx."""
    if graph.get_dtype(node.input[0]) != STRING:
        convert_with_tf2onnx(graph, node)
        return
    constants = [constant_value(graph, name) for name in node.input]
    scalars = {
        index: str(value.item()) for index, value in enumerate(constants) if value is not None and not value.ndim
    }
    final_op = "Not" if node.type == "NotEqual" else "Identity"
    op = StringReplacement(graph, node)
    # `Equal` of strings needs opset 19. A comparison with a constant is a look-up, which any opset has
    if scalars:
        index, text = next(iter(scalars.items()))
        op.finish(final_op, op.is_in(op.inputs[1 - index], [text]))
    else:
        first, second = op.inputs
        op.finish(final_op, op.equal_strings(first, second, len(op.shape or ())))


def string_split_v2(graph: Any, node: Any) -> RejectionReason:
    """Convert `StringSplitV2` of texts (texts,) at white space by `Tokenizer`, or at a constant by `StringSplit`."""
    # The outputs are those of a sparse tensor: indices (parts, 2), parts (parts,), and its shape (2,)
    separator = constant_value(graph, node.input[1])
    if separator is None or node.get_attr_value("maxsplit", -1) >= 0:
        return "its separator is not constant, or `maxsplit` is used"
    op = StringReplacement(graph, node)
    text = op.inputs[0]
    if delimiter := str(separator.item()):
        parts, counts = op.split(text, delimiter)
        column = op.Expand(EMPTY, op.concat_shape(op.dims(parts, 0, 1), 1))
        parts = op.Concat(parts, column, axis=1)
        # An empty text has one part in TensorFlow, and none in ONNX
        counts = op.Max(counts, np.int64(1))
        mask = op.Less(op.column_indices(parts), op.Unsqueeze(counts, [1]))
    else:
        parts = op.tokenize(text, WORD)
        mask = op.is_nonempty(parts)
        counts = op.count_true(mask)
    indices = op.true_indices(mask)
    rows = op.dims(parts, 0, 1)
    op.finish("Identity", indices)
    op.finish("GatherND", parts, indices, output=1)
    return op.finish("Concat", rows, op.maximum(counts), output=2, axis=0)
