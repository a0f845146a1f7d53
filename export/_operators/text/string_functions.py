"""ONNX functions on strings: tokenize, match, split, join, concatenate, compare.

`Tokenizer` is an operator of onnxruntime; `RegexFullMatch`, `StringConcat` and `StringSplit` are in ONNX from opset 20
on, and `Equal` of strings from 19 on. They are called in functions because tf2onnx writes graphs of opset 18.
"""

import onnx
from onnx import parser

from ..._onnx.traced_model import CONTRIB, FUNCTION_DOMAIN
from ..._onnx.traversal import iter_nodes, iter_subgraphs

_MIN_OPSET = {"Tokens": 18, "Matches": 20, "Join": 20, "Concatenated": 20, "Parts": 20, "Same": 19}

# Names of functions and of values in them are part of exported files.
_BODIES = {
    # Without texts, the output of `Tokenizer` has no axis of tokens: an empty text is appended, and its row removed.
    # onnx's shape inference does not infer a dtype for `Tokenizer`: `Cast` to strings states it.
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
    # No ONNX operator joins the strings of a row. Each iteration of the `Loop` concatenates pairs of neighbours, which
    # halves their number, until one is left: log2(n) iterations, at most 64, for n strings.
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


def build_string_functions(model: onnx.ModelProto, opset: int) -> list[onnx.FunctionProto]:
    """Return the functions of this file that the nodes of a model call, for an opset."""
    return [_parse_function(name, opset) for name in _BODIES if name in called_functions(model)]


def find_string_opset(model: onnx.ModelProto) -> int:
    """Return the lowest opset for the string functions that a model calls; 0 if there are no such calls."""
    return max((_MIN_OPSET[name] for name in called_functions(model) & {*_BODIES}), default=0)


def has_string_loops(model: onnx.ModelProto) -> bool:
    """Return True if a model computes strings in a `Loop`."""
    # onnxruntime 1.31 assigns such a loop to CUDA, and then cannot load the model
    bodies = [graph for node in iter_nodes(model.graph) if node.op_type == "Loop" for graph in iter_subgraphs(node)]
    called_in_loops = {node.op_type for graph in bodies for node in iter_nodes(graph) if node.domain == FUNCTION_DOMAIN}
    return "Join" in called_functions(model) or not called_in_loops.isdisjoint(_BODIES)


def called_functions(model: onnx.ModelProto) -> set[str]:
    """Return the names of the ONNX functions that the nodes of a model call."""
    return {node.op_type for node in iter_nodes(model.graph) if node.domain == FUNCTION_DOMAIN}


def _parse_function(name: str, opset: int) -> onnx.FunctionProto:
    imports = f'"" : {opset}, "{CONTRIB}" : 1'
    return parser.parse_function(f'<domain: "{FUNCTION_DOMAIN}", opset_import: [{imports}]> {name} {_BODIES[name]}')
