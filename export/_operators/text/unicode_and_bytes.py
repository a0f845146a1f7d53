"""Handlers that decode strings to code points or UTF-8 bytes, or split them into characters."""

from typing import Any

import numpy as np
from onnx import TensorProto

from ..graph_builder import NodeReplacement, RejectionReason, constant_value
from .string_builder import CHARACTER, STRING, StringBuilder, StringReplacement

# A UTF-8 byte has length markers in its high bits, and 6 bits or more of the code point in its low bits. The code point
# of a character of n bytes is sum_i byte_i weight_ni - sum_i marker_ni weight_ni; row n of the tables is for n bytes.
_WEIGHTS = np.array([[0, 0, 0, 0], [1, 0, 0, 0], [64, 1, 0, 0], [4096, 64, 1, 0], [2**18, 4096, 64, 1]])
_MARKED = np.array([[0, 0, 0, 0], [0, 0, 0, 0], [0xC0, 128, 0, 0], [0xE0, 128, 128, 0], [0xF0, 128, 128, 128]])
_MARKS = (_WEIGHTS * _MARKED).sum(axis=1)
_BYTE_VALUES = 256 ** np.arange(4)


def unicode_decode(graph: Any, node: Any) -> RejectionReason:
    """Convert `UnicodeDecode` of UTF-8 texts (texts,) to row splits and code points (characters,); no mapping."""
    # In `tf.strings.unicode_split`, `UnicodeEncode` makes a text of each code point. Then the output has these texts,
    # and the nodes in between and `unicode_encode` pass them through.
    if node.get_attr_str("input_encoding") != "UTF-8":
        return "only UTF-8 is supported"
    text_tensors = _find_text_tensors(graph, node.output[1])
    if not text_tensors and node.get_attr_value("replace_control_characters", False):
        return "`replace_control_characters` is not supported"
    op = StringReplacement(graph, node)
    tokens, indices, counts = _split_characters(op)
    op.finish("Cast", op.row_splits(counts), to=op.dtype)
    if text_tensors:
        op.dtypes[1] = STRING
        op.finish("GatherND", tokens, indices, output=1)
        for name in text_tensors:
            graph.set_dtype(name, STRING)
        return None
    numbers, size = _split_bytes(op, tokens, indices)
    weighted = op.ReduceSum(op.Mul(numbers, op.Gather(_WEIGHTS, size)), [1], keepdims=0)
    return op.finish("Cast", op.Sub(weighted, op.Gather(_MARKS, size)), output=1, to=op.dtypes[1])


def _find_text_tensors(graph: Any, code_points: str) -> list[str]:
    """Return the tensors between code points and `UnicodeEncode` of single ones; none if there are other consumers."""
    tensors = []
    for consumer in graph.find_output_consumers(code_points):
        if consumer.type in ("ExpandDims", "Reshape", "Identity"):
            next_tensors = _find_text_tensors(graph, consumer.output[0])
            if not next_tensors:
                return []
            tensors += [consumer.output[0], *next_tensors]
        elif consumer.type == "UnicodeEncode" and _encodes_single(graph, consumer):
            tensors.append(code_points)
        elif consumer.type not in ("Shape", "Size"):
            return []
    return tensors


def _encodes_single(graph: Any, encoder: Any) -> bool:
    """Return True if `UnicodeEncode` makes a text of each code point: its row splits are a `Range`, not scaled."""
    producer = graph.get_node_by_output(encoder.input[1])
    while producer is not None and producer.type in ("Mul", "Identity", "Cast", "Reshape", "ConcatV2", "Concat"):
        constants = [constant_value(graph, name) for name in producer.input]
        if producer.type == "Mul" and not any(value is not None and (value == 1).all() for value in constants):
            return False
        producer = next((source for source in producer.inputs if source is not None and not source.is_const()), None)
    return producer is not None and producer.type == "Range" and encoder.get_attr_str("output_encoding") == "UTF-8"


def unicode_encode(graph: Any, node: Any) -> RejectionReason:
    """Convert `UnicodeEncode` of single code points, which `unicode_decode` has converted to texts, to `Reshape`."""
    if graph.get_dtype(node.input[0]) != STRING:
        return "only single characters from `UnicodeDecode` are supported"
    op = NodeReplacement(graph, node)
    return op.finish("Reshape", op.inputs[0], [-1])


def string_split(graph: Any, node: Any) -> RejectionReason:
    """Convert `StringSplit` of texts (texts,) into bytes that `DecodeRaw` reads: `tf.strings.bytes_split`."""
    # The outputs are those of a sparse tensor: indices (bytes, 2), uint8 bytes (bytes,), and its shape (2,)
    delimiter = constant_value(graph, node.input[1])
    values = node.output[1]
    consumers = graph.find_output_consumers(values)
    splits_into_bytes = delimiter is not None and delimiter.item() == "" and not node.get_attr_value("skip_empty", True)
    is_decoded = consumers and all(node.type in ("Shape", "Size") or _is_decode_raw(node) for node in consumers)
    if not splits_into_bytes or not is_decoded or values in graph.outputs:
        return "only `tf.strings.bytes_split` is supported, followed by `tf.io.decode_raw` of the bytes"
    op = StringReplacement(graph, node)
    tokens, indices, counts = _split_characters(op)
    row = op.Squeeze(op.Slice(indices, [0], [1], [1]), [1])
    numbers, sizes = _split_bytes(op, tokens, indices)
    is_byte = op.Less(np.arange(4), op.Unsqueeze(sizes, [1]))
    texts = op.Shape(counts)
    lengths = op.ScatterElements(op.Expand(np.int64(0), texts), row, sizes, axis=0, reduction="add")
    longest = op.maximum(lengths)
    is_inside = op.Less(op.arange(longest), op.Unsqueeze(lengths, [1]))
    op.dtypes[1] = TensorProto.UINT8
    op.finish("Identity", op.true_indices(is_inside))
    op.finish("Cast", op.GatherND(numbers, op.true_indices(is_byte)), output=1, to=TensorProto.UINT8)
    return op.finish("Concat", texts, longest, output=2, axis=0)


def decode_raw(graph: Any, node: Any) -> RejectionReason:
    """Convert `DecodeRaw` of single bytes, which `string_split` has converted to uint8 (bytes,), to `Unsqueeze`."""
    if graph.get_dtype(node.input[0]) != TensorProto.UINT8:
        return "only bytes from `tf.strings.bytes_split` are supported"
    op = NodeReplacement(graph, node)
    return op.finish("Unsqueeze", op.inputs[0], [1])


def _is_decode_raw(node: Any) -> bool:
    return bool(node.type == "DecodeRaw" and node.output_dtypes[0] == TensorProto.UINT8)


def _split_characters(op: StringReplacement) -> tuple[str, str, str]:
    """Return the characters of the input, (texts, max characters), their indices, and their number per text."""
    tokens = op.tokenize(op.inputs[0], CHARACTER)
    mask = op.is_nonempty(tokens)
    return tokens, op.true_indices(mask), op.count_true(mask)


def _split_bytes(op: StringBuilder, tokens: str, indices: str) -> tuple[str, str]:
    """Return the bytes of characters at indices, (characters, 4), and their numbers of bytes, (characters,)."""
    packed, counts = op.encode_utf8(op.GatherND(tokens, indices, output_dtype=STRING))
    return op.Mod(op.Div(op.Unsqueeze(packed, [1]), _BYTE_VALUES), np.int64(256)), counts
