"""Match patterns of ONNX operators, and record why a match fails.

A pattern is the name of a variable, an `Op`, or a tuple of alternative patterns. A variable matches any tensor, but the
same tensor at each of its occurrences; an `Op` that occurs twice stands for one node. With `mean = Op("ReduceMean",
"x", ANY)` the pattern `Op("Sub", "x", mean)` is `x - mean(x)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    """A rewrite rule.

    Attributes:
        name: The name in log messages.
        pattern: A pattern for the output of the last node.
        check: Returns the reason why a match must stay, or an empty string.
        rewrite: Returns the nodes that replace the last node, the first output of which they compute.
    """

    name: str
    pattern: Pattern
    check: Callable[[Match, Nodes], str]
    rewrite: Callable[[onnx.NodeProto, Match, Nodes], list[onnx.NodeProto]]


class Matcher:
    """Search for matches in a graph.

    Attributes:
        size: Numbers of operators and of names in the largest match that failed.
        reason: The reason why this match failed.
    """

    def __init__(self, nodes: Nodes) -> None:
        self._nodes = nodes
        self.size = (0, 0)
        self.reason = ""

    def matches(self, pattern: Pattern, name: str, match: Match) -> Iterator[Match]:
        """Yield the matches of a pattern at a tensor that extend another match."""
        if isinstance(pattern, tuple):
            for alternative in pattern:
                yield from self.matches(alternative, name, match)
        elif isinstance(pattern, Op):
            yield from self._matches_of_op(pattern, name, match)
        elif pattern == ANY:
            yield match
        elif match.get(pattern, name) == name:
            yield match | {pattern: name}
        else:
            self.fail(match, f"`{name}` stands where `{match[pattern]}` is expected")

    def _matches_of_op(self, pattern: Op, name: str, match: Match) -> Iterator[Match]:
        name = self._nodes.source_of(name, pattern.behind)
        node = self._nodes.maker(name, pattern.op_type)
        if match.get(pattern, name) != name:
            self.fail(match, f"`{name}` stands where `{match[pattern]}` is expected")
        elif pattern in match:
            yield match
        elif node is None or len(node.input) != len(pattern.inputs):
            self.fail(match, f"`{name}` is not the output of `{pattern.op_type}` with {len(pattern.inputs)} inputs")
        else:
            yield from self._matches_of_inputs(pattern.inputs, node.input, match | {pattern: name})
            if pattern.op_type in COMMUTATIVE:
                yield from self._matches_of_inputs(pattern.inputs, node.input[::-1], match | {pattern: name})

    def _matches_of_inputs(self, patterns: Sequence[Pattern], names: Sequence[str], match: Match) -> Iterator[Match]:
        if not patterns:
            yield match
            return
        for extended in self.matches(patterns[0], names[0], match):
            yield from self._matches_of_inputs(patterns[1:], names[1:], extended)

    def fail(self, match: Match, reason: str) -> None:
        """Record why a match failed, if no larger match failed before."""
        size = (sum(isinstance(key, Op) for key in match), len(match))
        if size > self.size:
            self.size = size
            self.reason = reason
