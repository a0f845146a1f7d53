"""Find the Keras layer that each node of a graph belongs to.

While a model is traced, `layer_scopes` assigns nodes to the layers of the model, and `node_names.py` writes the result
into the names of the nodes: `encoder_1/dense_1/Tensordot/MatMul`. Of a finished graph, whose layers are not known any
more, `node_layers` reads the layer from these names: `encoder/dense`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import onnx

from .traversal import names_read

_FUNCTION_CALLS = re.compile(r"PartitionedCall|^Func$|^(in|out)put$")
# scopes of TensorFlow's own functions, which are numbered like layers if a function is called again
_FUNCTIONS = re.compile(
    "Any|All|Einsum|Gelu|GatherV2|MatMul|Max|Mean|Min|Repeat|Reshape|Softmax|SelectV2|Sum|Tensordot|batchnorm|cond|"
    "convolution|depthwise|einsum|moments|ones|range|separable_conv2d|strided_slice|while|zeros"
)


def layer_path(*scopes: str) -> str:
    """Return scopes as the path of a layer, without the numbers that TensorFlow gives to repeated scopes."""
    return "/".join(re.sub(r"_\d+$", "", scope) for scope in scopes)


def layer_scopes(graph: onnx.GraphProto, layers: Collection[str], weights: Collection[str]) -> list[str | None]:
    """Return the scope of the layer of each node, None for nodes between several layers.

    A node without a name in a layer is in the layer that computes all its inputs, or else in the layer of all readers
    of its outputs. A node with its own weights is not in the layer that computes its input. The nodes are sorted, and
    `weights` are names of weights outside the graph.
    """
    matrices = {*weights, *(tensor.name for tensor in graph.initializer if len(tensor.dims) > 1)}
    scopes = [_named_scope((*_merged_kernels(node), node.name, *node.output), layers) for node in graph.node]
    producers: dict[str, int] = {}
    feeders: list[list[int]] = []
    readers: list[list[int]] = [[] for _ in graph.node]
    for number, node in enumerate(graph.node):
        feeders.append(sorted({producers[name] for name in names_read(node) if name in producers}))
        for feeder in feeders[number]:
            readers[feeder].append(number)
        producers |= dict.fromkeys(node.output, number)
    for number, node in enumerate(graph.node):
        if scopes[number] is None and matrices.isdisjoint(node.input):
            scopes[number] = _common(scopes[feeder] for feeder in feeders[number])
    for number in reversed(range(len(scopes))):
        scopes[number] = scopes[number] or _common(scopes[reader] for reader in readers[number])
    for number in range(len(scopes)):
        scopes[number] = scopes[number] or _common(scopes[feeder] for feeder in feeders[number] if scopes[feeder])
    return scopes


def node_layers(nodes: Sequence[onnx.NodeProto], weights: Collection[str]) -> list[str]:
    """Return the path of the layer of each node, empty for operators of the model itself, or without a scope.

    Names are `model_1/encoder_1/dense_1/Tensordot/MatMul`: Keras opens the scope of a layer once to build the layer
    and once to call it, so that the scopes of nodes are numbered. If the name of a node has no scopes, its output or
    weight may have some; large weights are named as in Keras: `encoder/dense/kernel`.
    """
    operators = {name.partition(":")[0] for node in nodes for name in (node.name, *node.output)}
    paths = [
        max((_scopes(name, operators) for name in (*_merged_kernels(node), node.name, *node.output)), key=len)
        for node in nodes
    ]
    roots = Counter(path[0] for path in paths if path)
    root = tuple(name for name, _ in roots.most_common(1))
    rooted = [path for path in paths if path and path[:1] == root]
    layers = {layer_path(*path[1:depth]) for path in rooted for depth in range(2, len(path) + 1)}
    return [
        layer_path(*path[1:]) if path and path[:1] == root else _layer_of_weights(node, weights, operators, layers)
        for path, node in zip(paths, nodes, strict=True)
    ]


def _common(scopes: Iterable[str | None]) -> str | None:
    different = {*scopes}
    return different.pop() if len(different) == 1 else None


def _named_scope(names: Iterable[str], layers: Collection[str]) -> str | None:
    """Return the first name that contains the name of a layer, up to the innermost layer."""
    for name in names:
        scopes = name.split("/")[:-1]
        for depth in range(len(scopes), 0, -1):
            if scopes[depth - 1] in layers or layer_path(scopes[depth - 1]) in layers:
                return "/".join(scopes[:depth])
    return None


def _merged_kernels(node: onnx.NodeProto) -> list[str]:
    """Return the kernels of a convolution with a folded batch normalization, which gave its name to the node."""
    return [name for name in node.input if "/merged_input" in name]


def _layer_of_weights(
    node: onnx.NodeProto, weights: Collection[str], operators: Collection[str], layers: Collection[str]
) -> str:
    for name in node.input:
        if name in weights:
            scopes = name.split("/")[:-1]
            prefixes = ("/".join(scopes[start:end]) for end in range(len(scopes), 0, -1) for start in (0, 1))
            layer = next((prefix for prefix in prefixes if prefix in layers), "")
            if layer := layer or layer_path(*_scopes(name, operators)[1:]):
                return layer
    return ""


def _scopes(name: str, operators: Collection[str]) -> tuple[str, ...]:
    """Return the scopes of layers with which a name begins; names of operators are scopes of their inner nodes."""
    scopes: list[str] = []
    prefix = ""
    for part in name.split("/")[:-1]:
        prefix = f"{prefix}/{part}" if prefix else part
        if _FUNCTION_CALLS.search(part):
            continue
        is_numbered = re.search(r"._\d+$", part)
        if ":" in part or prefix in operators or not is_numbered or _FUNCTIONS.fullmatch(layer_path(part)):
            break
        scopes.append(part)
    return tuple(scopes)
