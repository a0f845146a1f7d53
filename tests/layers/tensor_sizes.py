"""The sizes of the tensors that a computation makes, on each backend: for tests of what is never held in memory."""

import re
from math import prod

from backends import BACKEND


def tensor_sizes(function, *arguments):
    """The numbers of entries of all tensors that `function` makes, before a compiler fuses any of them away."""
    find = {"tensorflow": _sizes_in_graph, "jax": _sizes_in_program, "torch": _sizes_of_results}[BACKEND]
    return find(function, *arguments)


def _sizes_in_graph(function, *arguments):
    """Those of known shape in a graph and in the functions it calls."""
    import tensorflow as tf

    graph = tf.function(function).get_concrete_function(*arguments).graph
    graphs = [graph, *(function.graph for function in graph._functions.values() if hasattr(function, "graph"))]
    definition = graph.as_graph_def(add_shapes=True)
    nodes = [*definition.node, *(node for function in definition.library.function for node in function.node_def)]
    shapes = [shape for node in nodes for shape in node.attr["_output_shapes"].list.shape]
    shapes += [tensor.shape.as_proto() for g in graphs for op in g.get_operations() for tensor in op.outputs]
    known = [shape for shape in shapes if not shape.unknown_rank and all(dim.size >= 0 for dim in shape.dim)]
    return {prod(dim.size for dim in shape.dim) for shape in known}


def _sizes_in_program(function, *arguments):
    """Those in the program that JAX gives to XLA, whose text writes a shape as `tensor<2x7x5xf32>`."""
    import jax

    shapes = re.findall(r"tensor<((?:\d+x)*)\w+>", jax.jit(function).lower(*arguments).as_text())
    assert shapes, "the text of a program is not what it was"
    return {prod(int(size) for size in shape.split("x") if size) for shape in shapes}


def _sizes_of_results(function, *arguments):
    """Those that any operation of torch returns, in the backward pass as well."""
    from torch import Tensor
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    sizes = set()

    class Recorder(TorchDispatchMode):
        def __torch_dispatch__(self, operation, types, arguments=(), options=None):
            results = operation(*arguments, **(options or {}))
            sizes.update(leaf.numel() for leaf in tree_leaves(results) if isinstance(leaf, Tensor))
            return results

    with Recorder():
        function(*arguments)
    return sizes
