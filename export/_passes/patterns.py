"""Match patterns of ONNX operators, and record the reason of a failed match.

A pattern is the name of a variable, an `Op`, or a tuple of alternative patterns. A variable matches any tensor, but the
same tensor at each of its occurrences; an `Op` that occurs twice matches one node. With `mean = Op("ReduceMean",
"x", ANY)` the pattern `Op("Sub", "x", mean)` is `x - mean(x)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import onnx

from .._onnx.graph_index import GraphIndex

# The search backtracks from the output to the inputs: a partial match maps patterns to tensors, and each step extends
# or drops it. Alternatives, and both input orders of commutative operators, multiply the partial matches.

ANY = "_"  # a variable that may be a different tensor at each occurrence
COMMUTATIVE = ("Add", "Mul")


class Op:
    """Pattern of an operator and its inputs; `skip` is a type of operators to skip after the operator."""

    def __init__(self, op_type: str, *inputs: Pattern, skip: str = "") -> None:
        self.op_type = op_type
        self.inputs = inputs
        self.skip = skip


Pattern: TypeAlias = "str | Op | tuple[Pattern, ...]"
Match = dict[str | Op, str]  # names of tensors: by variable, and the outputs of operators by `Op`


class Rule(NamedTuple):
    """A rewrite rule for the last node of `pattern`; `name` is for log messages."""

    name: str
    pattern: Pattern
    check: Callable[[Match, GraphIndex], str]  # returns the reason against a rewrite
    rewrite: Callable[[onnx.NodeProto, Match, GraphIndex], list[onnx.NodeProto]]


class Matcher:
    """Search for matches in a graph; `reason` is about the failed match with the most operators, `num_matched`."""

    def __init__(self, nodes: GraphIndex) -> None:
        self._nodes = nodes
        self.num_matched = 0
        self.reason = ""

    def find_matches(self, pattern: Pattern, name: str, match: Match) -> list[Match]:
        """Return the matches of a pattern at a tensor that extend another match."""
        if isinstance(pattern, tuple):
            return [complete for option in pattern for complete in self.find_matches(option, name, match)]
        if pattern == ANY:
            return [match]
        tensor = self._nodes.skip_ops(name, pattern.skip) if isinstance(pattern, Op) else name
        if match.get(pattern, tensor) != tensor:
            return self._fail(match, f"an input is `{tensor}`, but the pattern needs `{match[pattern]}`")
        extended = match | {pattern: tensor}
        if pattern in match or isinstance(pattern, str):
            return [extended]
        node = self._nodes.get_producer(tensor, pattern.op_type)
        if node is None or len(node.input) != len(pattern.inputs):
            reason = f"`{tensor}` is not the output of `{pattern.op_type}` with {len(pattern.inputs)} inputs"
            return self._fail(match, reason)
        orders = [node.input, node.input[::-1]] if pattern.op_type in COMMUTATIVE else [node.input]
        return [complete for names in orders for complete in self._match_inputs(pattern.inputs, names, extended)]

    def _match_inputs(self, patterns: Sequence[Pattern], names: Sequence[str], match: Match) -> list[Match]:
        matches = [match]
        for pattern, name in zip(patterns, names, strict=True):
            matches = [extended for partial in matches for extended in self.find_matches(pattern, name, partial)]
        return matches

    def _fail(self, match: Match, reason: str) -> list[Match]:
        """Record the reason of a failed match, if no larger match failed before, and return an empty list."""
        num_matched = sum(isinstance(key, Op) for key in match)
        if num_matched > self.num_matched:
            self.num_matched = num_matched
            self.reason = reason
        return []
