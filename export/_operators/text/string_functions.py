"""ONNX functions on strings: tokenize, match, split, join, concatenate, compare.

onnxruntime has no operator that puts an array of strings together: `Join` joins neighbours, of which there are half as
many after each step. `Tokenizer` is onnxruntime's own; `RegexFullMatch`, `StringConcat` and `StringSplit` are ONNX's,
of opset 20, and `Equal` is of strings from 19 on.
"""

import onnx
from onnx import parser

from ..._onnx.traced_model import CONTRIB, DOMAIN
from ..._onnx.traversal import all_nodes, graphs_in

_MIN_OPSET = {"Tokens": 18, "Matches": 20, "Join": 20, "Concatenated": 20, "Parts": 20, "Same": 19}

_BODIES = {
    # Of no text at all `Tokenizer` gives no axis of tokens, so that one more is given to it. onnx does not know its
    # output for strings, which the last operator tells.
    "Tokens": """<expression>(text) => (tokens) {
      flat_shape = Constant <value_ints = [-1]> ()
      none = Constant <value_strings = [""]> ()
      zero = Constant <value_ints = [0]> ()
      end = Constant <value_ints = [-1]> ()
      flat = Reshape (text, flat_shape)
      more = Concat <axis = 0> (flat, none)
      found = com.microsoft.Tokenizer <mark = 0, mincharnum = 1, pad_value = "", tokenexp: string = @expression> (more)
      sliced = Slice (found, zero, end, zero)
      tokens = Cast <to = 8> (sliced)
    }""",
    "Matches": """<pattern>(text) => (matches) { matches = RegexFullMatch <pattern: string = @pattern> (text) }""",
    "Concatenated": "(one, other) => (both) { both = StringConcat (one, other) }",
    "Same": "(one, other) => (same) { same = Equal (one, other) }",
    "Parts": """<delimiter>(text) => (parts, counts) {
      flat_shape = Constant <value_ints = [-1]> ()
      flat = Reshape (text, flat_shape)
      parts, counts = StringSplit <delimiter: string = @delimiter> (flat)
    }""",
    "Join": """(pieces) => (text) {
      none = Constant <value_strings = [""]> ()
      one = Constant <value_ints = [1]> ()
      go_on = Constant <value_int = 1> ()
      many = Constant <value_int = 64> ()
      is_true = Cast <to = 9> (go_on)
      rows = Shape <start = 0, end = 1> (pieces)
      column_shape = Concat <axis = 0> (rows, one)
      column = Expand (none, column_shape)
      begun = Concat <axis = 1> (column, pieces)
      whole = Loop (many, is_true, begun) <body = step (int64 number, bool before, string[n, l] parts) =>
        (bool after, string[n, m] halves) {
        from_first = Constant <value_ints = [0]> ()
        from_second = Constant <value_ints = [1]> ()
        all = Constant <value_ints = [2147483647]> ()
        by_two = Constant <value_ints = [2]> ()
        first = Slice (parts, from_first, all, from_second, by_two)
        second = Slice (parts, from_second, all, from_second, by_two)
        filled = Concat <axis = 1> (second, column)
        count = Shape <start = 1, end = 2> (first)
        beside = Slice (filled, from_first, count, from_second)
        halves = StringConcat (first, beside)
        is_more = Greater (count, from_second)
        after = Squeeze (is_more)
      }>
      text = Squeeze (whole, one)
    }""",
}


def text_functions(model: onnx.ModelProto, opset: int) -> list[onnx.FunctionProto]:
    """Return the functions that the nodes of a model call, at an opset."""
    return [_parse_function(name, opset) for name in _BODIES if name in _called_functions(model)]


def opset_of_texts(model: onnx.ModelProto) -> int:
    """Return the lowest opset at which a model that calls them can be written."""
    return max((_MIN_OPSET[name] for name in _called_functions(model)), default=0)


def has_loops_of_strings(model: onnx.ModelProto) -> bool:
    """Tell whether a model has some, which onnxruntime 1.31 gives to CUDA and cannot load there."""
    loops = [graph for node in all_nodes(model.graph) if node.op_type == "Loop" for graph in graphs_in(node)]
    in_loops = {node.op_type for graph in loops for node in all_nodes(graph) if node.domain == DOMAIN}
    return "Join" in _called_functions(model) or not in_loops.isdisjoint(_BODIES)


def _called_functions(model: onnx.ModelProto) -> set[str]:
    return {node.op_type for node in all_nodes(model.graph) if node.domain == DOMAIN} & {*_BODIES}


def _parse_function(name: str, opset: int) -> onnx.FunctionProto:
    imports = f'"" : {opset}, "{CONTRIB}" : 1'
    return parser.parse_function(f'<domain: "{DOMAIN}", opset_import: [{imports}]> {name} {_BODIES[name]}')
