"""Find the attention calls that graph outputs depend on, through loops and branches.

A layer may be called for nothing: Keras's recurrent layers call their cell once more, for its shapes alone.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

_LOOPS, _BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf")


def needed_calls(graph: Any, outputs: Iterable[str], ops: Mapping[str, str]) -> set[str]:
    """Return the ops of the calls that tensors of a graph depend on.

    Args:
        graph: A graph definition of TensorFlow.
        outputs: The names of the tensors.
        ops: The op by the name of each function that is such a call.
    """
    library = {each.signature.name: each for each in graph.library.function}
    return _Reader(library, ops).read(graph.node, outputs)[0]


class _Reader:
    """Reads graphs and functions from their outputs up."""

    def __init__(self, library: Mapping[str, Any], ops: Mapping[str, str]) -> None:
        self._library, self._ops = library, ops

    def read(self, nodes: Iterable[Any], tensors: Iterable[str]) -> tuple[set[str], set[str]]:
        """Return the ops of the calls that tensors depend on, and the names of what else they do: arguments."""
        by_name = {node.name: node for node in nodes}
        found, arguments, waiting = set(), set(), list(tensors)
        seen: set[tuple[str, str]] = set()
        while waiting:
            name, _, rest = waiting.pop().partition(":")
            output = rest.rpartition(":")[2] or "0"  # `name:output:3` in a function, `name:3` in a graph
            if name.startswith("^") or (name, output) in seen:
                continue
            seen.add((name, output))
            node = by_name.get(name)
            if node is None:
                arguments.add(name)
                continue
            calls, inputs = self._of_node(node, int(output))
            found |= calls
            waiting += inputs
        return found, arguments

    def _of_node(self, node: Any, output: int) -> tuple[set[str], list[str]]:
        """Return the calls in a node that one of its outputs depends on, and the inputs that it does."""
        if node.op in _LOOPS:
            calls, wanted = self._of_loop(node, output)
            return calls, [node.input[number] for number in sorted(wanted)]
        if node.op in _BRANCHES:
            calls, wanted = set(), set()
            for branch in ("then_branch", "else_branch"):
                more, arguments = self._of_function(node.attr[branch].func.name, [output])
                calls, wanted = calls | more, wanted | arguments
            return calls, [node.input[0], *(node.input[1 + number] for number in sorted(wanted))]
        called = self._ops.get(node.attr["f"].func.name) if "f" in node.attr else None
        return ({called} if called else set()), list(node.input)

    def _of_loop(self, node: Any, output: int) -> tuple[set[str], set[int]]:
        """Return the calls in a loop that one of its outputs depends on, and the state that it does."""
        calls, state = self._of_function(node.attr["cond"].func.name, [0])
        known: set[int] = set()
        state |= {output}
        while state != known:
            known = set(state)
            more, arguments = self._of_function(node.attr["body"].func.name, sorted(known))
            calls, state = calls | more, state | arguments
        return calls, state

    def _of_function(self, name: str, outputs: Collection[int]) -> tuple[set[str], set[int]]:
        """Return the calls in a function that some of its outputs depend on, and the numbers of its arguments."""
        function = self._library[name]
        numbers = {each.name: number for number, each in enumerate(function.signature.input_arg)}
        returned = [function.ret[function.signature.output_arg[number].name] for number in outputs]
        calls, arguments = self.read(function.node_def, returned)
        return calls, {numbers[each] for each in arguments if each in numbers}
