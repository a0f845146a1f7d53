"""Match patterns of ONNX operators, and record why a match fails.

A pattern is the name of a variable, an `Op`, or a tuple of alternative patterns. A variable matches any tensor, but the
same tensor at each of its occurrences; an `Op` that occurs twice stands for one node. With `mean = Op("ReduceMean",
"x", ANY)` the pattern `Op("Sub", "x", mean)` is `x - mean(x)`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

import onnx

from .._onnx.graph_index import Nodes

ANY = "_"  # a variable that may be a different tensor at each occurrence
COMMUTATIVE = ("Add", "Mul")  # the two inputs match in either order


class Op:
    """An operator, with a pattern for each input; a match skips operators of the type `behind` after the operator."""

    def __init__(self, op_type: str, *inputs: Pattern, behind: str = "") -> None:
        self.op_type = op_type
        self.inputs = inputs
        self.behind = behind


Pattern: TypeAlias = "str | Op | tuple[Pattern, ...]"
Match = dict[str | Op, str]  # names of tensors: by variable, and the outputs of operators by `Op`


class Rule(NamedTuple):
    """A rewrite rule; `name` is for log messages."""

    name: str
    pattern: Pattern  # for the output of the last node
    check: Callable[[Match, Nodes], str]  # returns the reason why a match must stay, or an empty string
    rewrite: Callable[
        [onnx.NodeProto, Match, Nodes], list[onnx.NodeProto]
    ]  # returns the nodes instead of the last node


class Matcher:
    """Search for matches in a graph."""

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.num_matched = 0  # number of operators in the largest match that failed
        self.reason = ""  # why this match failed

    def find_matches(self, pattern: Pattern, name: str, match: Match) -> list[Match]:
        """Return the matches of a pattern at a tensor that extend another match."""
        if isinstance(pattern, tuple):
            return [complete for option in pattern for complete in self.find_matches(option, name, match)]
        if pattern == ANY:
            return [match]
        tensor = self._nodes.source_of(name, pattern.behind) if isinstance(pattern, Op) else name
        if match.get(pattern, tensor) != tensor:
            return self._fail(match, f"`{tensor}` stands where `{match[pattern]}` is expected")
        extended = match | {pattern: tensor}
        if pattern in match or isinstance(pattern, str):
            return [extended]
        node = self._nodes.maker(tensor, pattern.op_type)
        if node is None or len(node.input) != len(pattern.inputs):
            reason = f"`{tensor}` is not the output of `{pattern.op_type}` with {len(pattern.inputs)} inputs"
            return self._fail(match, reason)
        orders = [node.input, node.input[::-1]] if pattern.op_type in COMMUTATIVE else [node.input]
        return [complete for names in orders for complete in self._match_inputs(pattern.inputs, names, extended)]

    def _match_inputs(self, patterns: Sequence[Pattern], names: Sequence[str], match: Match) -> list[Match]:
        matches = [match]
        for pattern, name in zip(patterns, names, strict=True):
            matches = [
                extended for partial_match in matches for extended in self.find_matches(pattern, name, partial_match)
            ]
        return matches

    def _fail(self, match: Match, reason: str) -> list[Match]:
        """Record why a match failed, if no larger match failed before, and return no match."""
        num_matched = sum(isinstance(key, Op) for key in match)
        if num_matched > self.num_matched:
            self.num_matched = num_matched
            self.reason = reason
        return []
