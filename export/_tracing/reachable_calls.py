"""Find the attention calls that graph outputs depend on, through loops and branches.

Some calls are unreachable: Keras's recurrent layers call their cell once more, only to infer its shapes.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

_LOOPS, _BRANCHES = ("While", "StatelessWhile"), ("If", "StatelessIf")


def find_reachable_calls(graph: Any, outputs: Iterable[str], ops: Mapping[str, str]) -> set[str]:
    """Return the ONNX functions of the attention calls that tensors of a graph depend on.

    Args:
        graph: A graph definition of TensorFlow.
        outputs: Names of the tensors.
        ops: ONNX function by the name of the TensorFlow function of a call.
    """
    library = {function.signature.name: function for function in graph.library.function}
    return _ReachabilitySearch(library, ops).search(graph.node, outputs)[0]


class _ReachabilitySearch:
    """Search of graphs and functions, from outputs to producers."""

    # A call may feed only one output of a loop or branch. The state that an output of a loop depends on is a fixed
    # point: begin with the output and the state that the condition reads; add what the body reads to compute the set.

    def __init__(self, library: Mapping[str, Any], ops: Mapping[str, str]) -> None:
        self._library, self._ops = library, ops

    def search(self, nodes: Iterable[Any], tensors: Iterable[str]) -> tuple[set[str], set[str]]:
        """Return the attention calls and the names of function arguments that `tensors` depend on."""
        by_name = {node.name: node for node in nodes}
        reachable, arguments, stack = set(), set(), list(tensors)
        visited: set[tuple[str, str]] = set()
        while stack:
            name, _, port = stack.pop().partition(":")
            output = port.rpartition(":")[2] or "0"  # `name:output:3` in a function, `name:3` in a graph
            if name.startswith("^") or (name, output) in visited:
                continue
            visited.add((name, output))
            node = by_name.get(name)
            if node is None:
                arguments.add(name)
                continue
            calls, inputs = self._search_node(node, int(output))
            reachable |= calls
            stack += inputs
        return reachable, arguments

    def _search_node(self, node: Any, output: int) -> tuple[set[str], list[str]]:
        """Return the calls inside a node, and the inputs of the node, that one of its outputs depends on."""
        if node.op in _LOOPS:
            calls, argument_indices = self._search_loop(node, output)
            return calls, [node.input[index] for index in sorted(argument_indices)]
        if node.op in _BRANCHES:
            calls, argument_indices = set(), set()
            for branch in ("then_branch", "else_branch"):
                branch_calls, arguments = self._search_function(node.attr[branch].func.name, [output])
                calls, argument_indices = calls | branch_calls, argument_indices | arguments
            return calls, [node.input[0], *(node.input[1 + index] for index in sorted(argument_indices))]
        call = self._ops.get(node.attr["f"].func.name) if "f" in node.attr else None
        return ({call} if call else set()), list(node.input)

    def _search_loop(self, node: Any, output: int) -> tuple[set[str], set[int]]:
        """Return the calls inside a loop, and the indices of its state, that one of its outputs depends on."""
        calls, state = self._search_function(node.attr["cond"].func.name, [0])
        previous_state: set[int] = set()
        state |= {output}
        while state != previous_state:
            previous_state = set(state)
            body_calls, arguments = self._search_function(node.attr["body"].func.name, sorted(previous_state))
            calls, state = calls | body_calls, state | arguments
        return calls, state

    def _search_function(self, name: str, outputs: Collection[int]) -> tuple[set[str], set[int]]:
        """Return the calls inside a function, and the indices of its arguments, that some of its outputs depend on."""
        function = self._library[name]
        argument_indices = {argument.name: index for index, argument in enumerate(function.signature.input_arg)}
        returned = [function.ret[function.signature.output_arg[number].name] for number in outputs]
        calls, arguments = self.search(function.node_def, returned)
        return calls, {argument_indices[argument] for argument in arguments if argument in argument_indices}
