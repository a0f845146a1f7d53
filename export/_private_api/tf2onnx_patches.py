"""Patches of tf2onnx 1.17: permanent ones, applied at import, and those of the context `patched_tf2onnx`."""

import contextlib
import copy
import itertools
from collections.abc import Iterator
from typing import Any

from onnx import TensorProto
from tf2onnx import convert, handler, optimizer, tf_loader, tfonnx  # noqa: F401 - `convert` imports modules to patch
from tf2onnx.onnx_opset import controlflow
from tf2onnx.optimizer import back_to_back_optimizer, einsum_optimizer
from tf2onnx.optimizer.transpose_optimizer import TransposeOptimizer

from .ordered_sets import patch_set_in

# First number in names of nodes: all numbers have ten digits, so that names sort in the order of their creation.
FIRST_NODE_NUMBER = 10**9
CONVOLUTION_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16}  # dtypes of `Conv` in onnxruntime

# tf2onnx merges equal nodes in the order of sets and names. Without ordered sets, and with addresses in names, files of
# one model differ between processes. (All faults are in 1.17.0, the newest release, and in the main branch.)
patch_set_in("tf2onnx")
_einsum_numbers = itertools.count(FIRST_NODE_NUMBER)


def _make_einsum_name(operation: Any) -> str:
    """Return the name of a node of a decomposed `Einsum`; tf2onnx puts the address of the object into the name."""
    return f"einsum{operation.__dict__.setdefault('number', next(_einsum_numbers))}_{operation.name[:2]}"


_optimize = optimizer.optimize_graph


def _optimize_one_copy(graph: Any, catch_errors: bool = True, optimizers: Any = None) -> Any:
    """Run all optimizers on one copy of the graph, and on one copy each if any of them fails."""
    # tf2onnx copies the graph before each optimizer, to drop the changes of one that fails. Copies take longer.
    if catch_errors:
        try:
            return _optimize(copy.deepcopy(graph), catch_errors=False, optimizers=optimizers)
        except Exception:  # noqa: BLE001, S110 - the second run skips the optimizer that raised
            pass
    return _optimize(graph, catch_errors, optimizers)


optimizer.optimize_graph = _optimize_one_copy
einsum_optimizer.EinsumSubOp._onnx_name = _make_einsum_name
_decompose_einsum = einsum_optimizer.EinsumOptimizer._optimize_einsum


def _decompose_supported_einsum(self: Any, node: Any, graph: Any) -> Any:
    """Decompose an `Einsum`, except those for which tf2onnx fails: an ellipsis, a repeated index, a scalar output."""
    terms, _, output = node.get_attr_value("equation").decode().partition("->")
    repeats_index = any(len({*term}) < len(term) for term in terms.split(","))
    return "." not in terms and not repeats_index and bool(output) and _decompose_einsum(self, node, graph)


einsum_optimizer.EinsumOptimizer._optimize_einsum = _decompose_supported_einsum
_prefix_graph = controlflow.prefix_graph


def _prefix_graph_with_domains(graph: Any, scope: str) -> None:
    """Rename the nodes of a branch, and restore their domains."""
    # tf2onnx resets the domains to ONNX's own, so that an attention call or an operator of another domain in a branch
    # would become an unknown ONNX operator.
    domains = {node.name: node.domain for node in graph.get_nodes()}
    _prefix_graph(graph, scope)
    for node in graph.get_nodes():
        node.domain = domains.get(node.name.removeprefix(f"{scope}_"), node.domain)


controlflow.prefix_graph = _prefix_graph_with_domains
_list_nodes = tf_loader.tflist_to_onnx


def _list_nodes_and_branch_shapes(graph: Any, shape_override: Any, **options: Any) -> Any:
    """List the nodes of a graph, with the shapes of the inputs of branches of `If`."""
    # tf2onnx counts the condition of `If` as an input of its branches. All shapes then belong to the next input, and a
    # convolution in a branch fails because its kernel has no shape, as in SAM of keras_hub.
    *lists, functions = _list_nodes(graph, shape_override, **options)
    for node in graph.get_operations():
        for branch in ("then_branch", "else_branch") if node.type in ("If", "StatelessIf") else ():
            functions[node.get_attr(branch).name] = [tensor.get_shape() for tensor in node.inputs[1:]]
    return (*lists, functions)


tf_loader.tflist_to_onnx = _list_nodes_and_branch_shapes


def convert_with_tf2onnx(graph: Any, node: Any) -> None:
    """Convert a node in place with tf2onnx's own handler."""
    versions = handler.tf_op.get_opsets()[node.domain][: graph.opset + 1]
    function, options = next(version[node.type] for version in reversed(versions) if node.type in version)
    options = dict(options)
    if "onnx_op" in options:
        options["tf_op"], node.type = node.type, options["onnx_op"]
    function(graph, node, **options)


def find_subgraph(node: Any, attribute: str) -> Any:
    """Return the converted graph of a function that a node calls: `body`, `cond` or a branch."""
    return tf_loader.find_function(node.get_attr_str(attribute))


@contextlib.contextmanager
def patched_tf2onnx() -> Iterator[None]:
    """Patch rewriters and optimizers of tf2onnx during a conversion; not thread-safe."""
    with _guard_reshape_merges(), _guard_padding_fusion(), _fix_transpose_moves(), _guard_lstm_rewriter():
        yield


@contextlib.contextmanager
def _guard_reshape_merges() -> Iterator[None]:
    """Merge two reshapes in a row only if the target of the second one has no 0."""
    # A 0 in the target of `Reshape` copies the size of the input on that axis. `reshape_optimizer` writes such zeros.
    # `_optimize_reshape_reshape` in `back_to_back_optimizer` then drops the first reshape, and the zeros copy sizes of
    # another tensor. Without this patch a `Dense` layer on a sequence of unknown length, split into heads, gets an
    # invalid target: onnx/tensorflow-onnx issue 2085.
    merges = back_to_back_optimizer._func_map
    key = ("Reshape",)
    merge = merges[key]

    def merge_if_no_zeros(graph: Any, node: Any, consumers: Any) -> Any:
        targets = [consumer.inputs[1] for consumer in consumers if consumer.type == "Reshape"]
        mergeable = all(target.is_const() and 0 not in target.get_tensor_value() for target in targets)
        return merge(graph, node, consumers) if mergeable else []

    merges[key] = merge_if_no_zeros
    try:
        yield
    finally:
        merges[key] = merge


@contextlib.contextmanager
def _guard_padding_fusion() -> Iterator[None]:
    """Fuse padding into float convolutions only, and convert these with tf2onnx's own handler."""
    # `conv2d_with_pad_rewriter` calls the handler of `Conv2D` without arguments that our handler needs. Without this
    # patch it fails for `ZeroPadding2D` before `Conv2D`, as in every residual network. Convolutions of other dtypes do
    # not become `Conv`, so that their padding must stay.
    rewrite, find_effective_op = tfonnx.rewrite_conv2d_with_pad, handler.tf_op.find_effective_op

    def rewrite_floats(graph: Any, nodes: list[Any]) -> Any:
        float_nodes = [
            node for node in nodes if node.type != "Conv2D" or graph.get_dtype(node.input[0]) in CONVOLUTION_FLOATS
        ]
        handler.tf_op.find_effective_op = lambda *_: (convert_with_tf2onnx, {})
        try:
            rewrite(graph, float_nodes)
        finally:
            handler.tf_op.find_effective_op = find_effective_op
        return graph.get_nodes()

    tfonnx.rewrite_conv2d_with_pad = rewrite_floats
    try:
        yield
    finally:
        tfonnx.rewrite_conv2d_with_pad = rewrite


@contextlib.contextmanager
def _fix_transpose_moves() -> Iterator[None]:
    """Fix two moves of transposes: past `Mul(x, x)`, and past a `Shape` with `start` or `end`."""
    # `_mul_handler` in `transpose_optimizer` keeps the shapes from before the move. The optimizer then replaces a
    # transpose, all sizes of which except one are 1, by a reshape to the old shape: layer normalization of a
    # convolution with an output of 1 by 1 returned (2, 1, 8, 8) instead of (2, 1, 1, 8). No issue was found;
    # docs/upstream/square-of-transpose.patch fixes it. `_shape_handler` turns a `Shape` of some axes into one of all.
    mul_handler, shape_handler = TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler

    def move_past_mul(self: Any, transpose: Any, node: Any) -> Any:
        is_square, shape = len({*node.input}) == 1, self._g.get_shape(node.output[0])
        is_moved = mul_handler(self, transpose, node)
        if is_moved and is_square and shape:
            order = transpose.get_attr_value("perm")
            self._g.set_shape(node.output[0], [shape[order.index(axis)] for axis in range(len(order))])
            self._g.set_shape(transpose.output[0], shape)
        return is_moved

    def move_past_shape(self: Any, transpose: Any, node: Any) -> Any:
        return not {"start", "end"} & {*node.attr} and shape_handler(self, transpose, node)

    TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler = move_past_mul, move_past_shape
    try:
        yield
    finally:
        TransposeOptimizer._mul_handler, TransposeOptimizer._shape_handler = mul_handler, shape_handler


@contextlib.contextmanager
def _guard_lstm_rewriter() -> Iterator[None]:
    """Rewrite a loop as `LSTM` only if its weights are constants outside the loop."""
    # In the body of another loop or in a branch the weights are inputs of that graph, and `lstm_tf2_rewriter` fails.
    rewrite = tfonnx.rewriter_lstm_tf2

    def rewrite_supported(graph: Any, nodes: list[Any]) -> Any:
        return rewrite(graph, [node for node in nodes if not node.is_while() or _has_constant_weights(graph, node)])

    tfonnx.rewriter_lstm_tf2 = rewrite_supported
    try:
        yield
    finally:
        tfonnx.rewriter_lstm_tf2 = rewrite


def _has_constant_weights(graph: Any, loop: Any) -> bool:
    context = find_subgraph(loop, "body").lstm_rewriter_context or {}
    keys = ("w_idx", "r_idx") if context.get("from_keras") else ("weight_idx",)
    indices = [context.get(key) for key in (*keys, "bias_idx")]
    return all(graph.is_const(loop.input[index]) for index in indices if index is not None)
