"""Assign each node of a graph to a Keras layer.

In a traced model, `layer_scopes` assigns nodes to layers by names, producers and consumers, and `node_names.py` writes
the result into the names of the nodes: `encoder_1/dense_1/Tensordot/MatMul`. In a finished graph, which has no layers,
`read_node_layers` reads the layer from these names: `encoder/dense`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import onnx

from .traversal import iter_input_names

_FUNCTION_CALLS = re.compile(r"PartitionedCall|^Func$|^(in|out)put$")
# Scopes of TensorFlow's own functions, which are numbered like layers if a function is called again
_TENSORFLOW_FUNCTIONS = re.compile(
    "Any|All|Einsum|Gelu|GatherV2|MatMul|Max|Mean|Min|Repeat|Reshape|Softmax|SelectV2|Sum|Tensordot|batchnorm|cond|"
    "convolution|depthwise|einsum|moments|ones|range|separable_conv2d|strided_slice|while|zeros"
)


def join_scopes(*scopes: str) -> str:
    """Join scopes to the path of a layer, without the numbers that TensorFlow appends to repeated scopes."""
    return "/".join(re.sub(r"_\d+$", "", scope) for scope in scopes)


def assign_layer_scopes(graph: onnx.GraphProto, layers: Collection[str], weights: Collection[str]) -> list[str | None]:
    """Return the scope of the layer of each node, None for nodes between several layers.

    The nodes must be sorted; `weights` are names of weights outside the graph.
    """
    # A node whose name has no layer joins the layer of its producers, if they are in one layer, else the layer of its
    # consumers. A node with weights does not join its producers: a layer's weights are its own.
    matrices = {*weights, *(tensor.name for tensor in graph.initializer if len(tensor.dims) > 1)}
    scopes = [_find_named_scope((*_list_merged_kernels(node), node.name, *node.output), layers) for node in graph.node]
    index_by_output: dict[str, int] = {}
    producers: list[list[int]] = []
    consumers: list[list[int]] = [[] for _ in graph.node]
    for index, node in enumerate(graph.node):
        producers.append(sorted({index_by_output[name] for name in iter_input_names(node) if name in index_by_output}))
        for producer in producers[index]:
            consumers[producer].append(index)
        index_by_output |= dict.fromkeys(node.output, index)
    for index, node in enumerate(graph.node):
        if scopes[index] is None and matrices.isdisjoint(node.input):
            scopes[index] = _get_common(scopes[producer] for producer in producers[index])
    for index in reversed(range(len(scopes))):
        scopes[index] = scopes[index] or _get_common(scopes[consumer] for consumer in consumers[index])
    for index in range(len(scopes)):
        named = [scopes[producer] for producer in producers[index] if scopes[producer]]
        scopes[index] = scopes[index] or _get_common(named)
    return scopes


def read_node_layers(nodes: Sequence[onnx.NodeProto], weights: Collection[str]) -> list[str]:
    """Return the path of the layer of each node, empty for operators of the model itself or without a scope."""
    # Names are `model_1/encoder_1/dense_1/Tensordot/MatMul`: Keras opens the scope of a layer once to build the layer
    # and once to call it, so that the scopes of nodes are numbered. If the name of a node has no scopes, its output or
    # weight may have some; large weights are named as in Keras: `encoder/dense/kernel`.
    operators = {name.partition(":")[0] for node in nodes for name in (node.name, *node.output)}
    paths = [
        max(
            (_split_scopes(name, operators) for name in (*_list_merged_kernels(node), node.name, *node.output)), key=len
        )
        for node in nodes
    ]
    roots = Counter(path[0] for path in paths if path)
    root = tuple(name for name, _ in roots.most_common(1))
    rooted = [path for path in paths if path and path[:1] == root]
    layers = {join_scopes(*path[1:depth]) for path in rooted for depth in range(2, len(path) + 1)}
    return [
        join_scopes(*path[1:])
        if path and path[:1] == root
        else _find_layer_of_weights(node, weights, operators, layers)
        for path, node in zip(paths, nodes, strict=True)
    ]


def _get_common(scopes: Iterable[str | None]) -> str | None:
    """Return the scope that all of `scopes` equal, or None."""
    distinct = {*scopes}
    return distinct.pop() if len(distinct) == 1 else None


def _find_named_scope(names: Iterable[str], layers: Collection[str]) -> str | None:
    """Return the first of `names` that contains the name of a layer, cut after the innermost layer."""
    for name in names:
        scopes = name.split("/")[:-1]
        for depth in range(len(scopes), 0, -1):
            if scopes[depth - 1] in layers or join_scopes(scopes[depth - 1]) in layers:
                return "/".join(scopes[:depth])
    return None


def _list_merged_kernels(node: onnx.NodeProto) -> list[str]:
    """Return the kernels of a convolution with a folded batch normalization, after which the node is named."""
    return [name for name in node.input if "/merged_input" in name]


def _find_layer_of_weights(
    node: onnx.NodeProto, weights: Collection[str], operators: Collection[str], layers: Collection[str]
) -> str:
    """Return the path of the layer whose name a weight of a node has, or an empty text."""
    for name in node.input:
        if name in weights:
            scopes = name.split("/")[:-1]
            prefixes = ("/".join(scopes[start:end]) for end in range(len(scopes), 0, -1) for start in (0, 1))
            layer = next((prefix for prefix in prefixes if prefix in layers), "")
            if layer := layer or join_scopes(*_split_scopes(name, operators)[1:]):
                return layer
    return ""


def _split_scopes(name: str, operators: Collection[str]) -> tuple[str, ...]:
    """Return the scopes of layers at the start of a name, up to the name of an operator."""
    scopes: list[str] = []
    prefix = ""
    for part in name.split("/")[:-1]:
        prefix = f"{prefix}/{part}" if prefix else part
        if _FUNCTION_CALLS.search(part):
            continue
        is_numbered = re.search(r"._\d+$", part)
        if ":" in part or prefix in operators or not is_numbered or _TENSORFLOW_FUNCTIONS.fullmatch(join_scopes(part)):
            break
        scopes.append(part)
    return tuple(scopes)
