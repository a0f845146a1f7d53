"""What of tf2onnx takes a frozen graph, or is mended: private all of it, and pinned in pyproject.toml."""

from __future__ import annotations

import contextlib
import copy
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import onnx
import tensorflow as tf
from tf2onnx import convert, handler, optimizer, tf_loader, tfonnx, utils
from tf2onnx.onnx_opset import controlflow
from tf2onnx.optimizer import back_to_back_optimizer, einsum_optimizer
from tf2onnx.optimizer.transpose_optimizer import TransposeOptimizer
from tf2onnx.utils import make_name

from .ordered_sets import use_in

__all__ = [
    "back_to_back_merges",
    "converted",
    "converted_while",
    "function_of",
    "make_name",
    "map_as_it_does",
    "mended",
    "optimized",
    "tf_op",
    "tfonnx",
    "transposes_moved_where_right",
]


tf_op = handler.tf_op

# What it merges, and which of two it keeps, hangs on the order of nodes and on their names: it must not hang on chance.
use_in("tf2onnx")  # all of which `convert` imports
_FIRST, _MOST = 10**9, 10**6
_numbers = itertools.count(_FIRST)


def _numbered(operation: Any) -> str:
    return f"einsum{operation.__dict__.setdefault('number', next(_numbers))}_{operation.name[:2]}"


_optimize = optimizer.optimize_graph


def _optimized_at_once(graph: Any, catch_errors: bool = True, optimizers: Any = None) -> Any:
    """Run the optimizers on one copy of the graph, and only where one of them fails on a copy each, as tf2onnx does.

    Which takes longer than the optimizers do.
    """
    if catch_errors:
        try:
            return _optimize(copy.deepcopy(graph), catch_errors=False, optimizers=optimizers)
        except Exception:  # noqa: BLE001, S110 - whatever it is, the one that raises it is left out below
            pass
    return _optimize(graph, catch_errors, optimizers)


optimizer.optimize_graph = _optimized_at_once
einsum_optimizer.EinsumSubOp._onnx_name = _numbered  # by its address
_take_apart = einsum_optimizer.EinsumOptimizer._optimize_einsum


def _einsum_taken_apart(self: Any, node: Any, graph: Any) -> Any:
    """Write an `Einsum` in other operators, but for those that fail: any axes, one axis twice, none left."""
    terms, _, output = node.get_attr_value("equation").decode().partition("->")
    twice = any(len({*term}) < len(term) for term in terms.split(","))
    return "." not in terms and not twice and bool(output) and _take_apart(self, node, graph)


einsum_optimizer.EinsumOptimizer._optimize_einsum = _einsum_taken_apart
_with_prefix = controlflow.prefix_graph


def _with_prefix_and_domains(graph: Any, scope: str) -> None:
    """Rename the nodes of a branch; tf2onnx 1.17 forgets that some are of other domains than ONNX's own."""
    domains = {node.name: node.domain for node in graph.get_nodes()}
    _with_prefix(graph, scope)
    for node in graph.get_nodes():
        node.domain = domains.get(node.name.removeprefix(f"{scope}_"), node.domain)


controlflow.prefix_graph = _with_prefix_and_domains
_list_nodes = tf_loader.tflist_to_onnx


def _list_nodes_with_shapes_of_branches(graph: Any, shape_override: Any, **options: Any) -> Any:
    """List the nodes of a graph; tf2onnx 1.17 counts the condition of `If` as an input of its branches.

    Shapes then belong to the wrong inputs, and a convolution within a branch fails, whose kernel has no shape.
    """
    *lists, functions = _list_nodes(graph, shape_override, **options)
    for node in graph.get_operations():
        for branch in ("then_branch", "else_branch") if node.type in ("If", "StatelessIf") else ():
            functions[node.get_attr(branch).name] = [tensor.get_shape() for tensor in node.inputs[1:]]
    return (*lists, functions)


tf_loader.tflist_to_onnx = _list_nodes_with_shapes_of_branches


def mended(graph: tf.compat.v1.GraphDef) -> tf.compat.v1.GraphDef:
    """Return a frozen graph with what freezing forgets within functions, see tensorflow/tensorflow issue 51488."""
    return tf_loader.fix_freezing_errors_part2(graph)


def optimized(graph: tf.compat.v1.GraphDef, inputs: list[str], outputs: list[str]) -> tf.compat.v1.GraphDef:
    """Return a frozen graph after the optimizers that tf2onnx runs on it."""
    with tf.Graph().as_default() as imported, tf.compat.v1.Session(graph=imported):
        tf.import_graph_def(graph, name="")
        return tf_loader.tf_optimize(inputs, outputs, graph)


def converted(graph: tf.compat.v1.GraphDef, **options: Any) -> onnx.ModelProto:
    """Return the ONNX model of a frozen graph, the same each time but for numbers in names.

    tf2onnx numbers what it makes with one counter a process and sorts nodes by their names, so that `9` stands behind
    `10`, and merges the second of two that are alike into the first: numbers of one length keep their order.
    """
    utils.INTERNAL_NAME = max(_FIRST, -(-utils.INTERNAL_NAME // _MOST) * _MOST)
    model, _ = convert._convert_common(graph, **options)
    return model


def back_to_back_merges() -> dict[tuple[str, ...], Callable[..., list[Any]]]:
    """Return tf2onnx's own table of what merges two operators of a kind in a row: it may be edited."""
    merges: dict[tuple[str, ...], Callable[..., list[Any]]] = back_to_back_optimizer._func_map
    return merges


def converted_while(graph: Any, node: Any) -> None:
    """Convert a loop in place, as tf2onnx does: a node `Loop`, whose name is that of the loop and `_loop`."""
    controlflow.While.version_7(graph, node)


def map_as_it_does(graph: Any, node: Any) -> None:
    """Convert a node in place as tf2onnx itself does."""
    versions = handler.tf_op.get_opsets()[node.domain][: graph.opset + 1]
    function, options = next(each[node.type] for each in reversed(versions) if node.type in each)
    options = dict(options)
    if "onnx_op" in options:
        options["tf_op"], node.type = node.type, options["onnx_op"]
    function(graph, node, **options)


def function_of(node: Any, attribute: str) -> Any:
    """Return the graph of a function that a node calls, converted by then: `body`, `cond`, a branch."""
    return tf_loader.find_function(node.get_attr_str(attribute))


@contextlib.contextmanager
def transposes_moved_where_right() -> Iterator[None]:
    """Let tf2onnx move a transpose past a square, x times x, only with the shape of what is then squared.

    It keeps the shape of before (`_mul_handler` in `transpose_optimizer`), and writes a transpose as a reshape to that
    where all sizes but one are 1: a convolution whose output is 1 by 1, normalized, came out with another shape. Past a
    `Shape` of some axes (`_shape_handler`), of which it makes one of all, none is moved. For as long as the context
    lasts, in this process, no thread but one may convert.
    """
    past_product, past_shape = TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler

    def with_shape(self: Any, transpose: Any, node: Any) -> Any:
        is_square, shape = len({*node.input}) == 1, self._g.get_shape(node.output[0])
        done = past_product(self, transpose, node)
        if done and is_square and shape:
            order = transpose.get_attr_value("perm")
            self._g.set_shape(node.output[0], [shape[order.index(axis)] for axis in range(len(order))])
            self._g.set_shape(transpose.output[0], shape)
        return done

    def if_whole(self: Any, transpose: Any, node: Any) -> Any:
        return not {"start", "end"} & {*node.attr} and past_shape(self, transpose, node)

    TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler = with_shape, if_whole
    try:
        yield
    finally:
        TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler = past_product, past_shape
