"""Assign each node of a graph to a Keras layer.

In a traced model, `assign_layers` assigns nodes to layers by names, producers and consumers, and `node_names.py`
writes the result into the names of the nodes: `encoder_1/dense_1/Tensordot/MatMul`. A finished graph stores no layers,
so `read_node_layers` reads the layer from these names: `encoder/dense`.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from onnx import GraphProto, NodeProto

from .traversal import iter_input_names

_PARTS_WITHOUT_SCOPE = re.compile(r"PartitionedCall|^Func$|^(in|out)put$")
# Scopes of TensorFlow's own functions, not of layers. TensorFlow numbers repeated ones like those of layers.
_TENSORFLOW_FUNCTIONS = re.compile(
    "Any|All|Einsum|Gelu|GatherV2|MatMul|Max|Mean|Min|Repeat|Reshape|Softmax|SelectV2|Sum|Tensordot|batchnorm|cond|"
    "convolution|depthwise|einsum|moments|ones|range|separable_conv2d|strided_slice|while|zeros"
)


def build_layer_path(*scopes: str) -> str:
    """Return the path of a layer: its scopes without the numbers that TensorFlow appends to repeated scopes."""
    return "/".join(re.sub(r"_\d+$", "", scope) for scope in scopes)


def assign_layers(graph: GraphProto, layer_names: Collection[str], weight_names: Collection[str]) -> list[str | None]:
    """Return for each node the scope of its layer; None if the node is outside of layers or between several layers.

    Each node must follow its producers. `weight_names` are the names of weights outside the graph.
    """
    # A node whose names contain no layer gets the layer of its neighbours, if these are in one layer. Three steps look
    # at all producers, then at all consumers, then at the producers that have a layer by then. The first step skips
    # nodes with weights, since the weights may belong to another layer than the producers.
    layer_weight_names = {*weight_names, *(tensor.name for tensor in graph.initializer if len(tensor.dims) > 1)}
    scopes = [_find_layer_scope(_list_scoped_names(node), layer_names) for node in graph.node]
    index_by_output: dict[str, int] = {}
    producers: list[list[int]] = []
    consumers: list[list[int]] = [[] for _ in graph.node]
    for index, node in enumerate(graph.node):
        producers.append(sorted({index_by_output[name] for name in iter_input_names(node) if name in index_by_output}))
        for producer in producers[index]:
            consumers[producer].append(index)
        index_by_output |= dict.fromkeys(node.output, index)
    for index, node in enumerate(graph.node):
        if scopes[index] is None and layer_weight_names.isdisjoint(node.input):
            scopes[index] = _get_common_scope(scopes[producer] for producer in producers[index])
    for index in reversed(range(len(scopes))):
        scopes[index] = scopes[index] or _get_common_scope(scopes[consumer] for consumer in consumers[index])
    for index in range(len(scopes)):
        producer_scopes = [scopes[producer] for producer in producers[index] if scopes[producer]]
        scopes[index] = scopes[index] or _get_common_scope(producer_scopes)
    return scopes


def read_node_layers(nodes: Sequence[NodeProto], weight_names: Collection[str]) -> list[str]:
    """Return the path of the layer of each node, or an empty string for a node outside of layers."""
    # A node has a name like `model_1/encoder_1/dense_1/Tensordot/MatMul`. Its scopes are numbered, as Keras opens the
    # scope of a layer twice: to build the layer and to call it. A node without scopes in its name may have an output
    # with scopes, or a large weight. The name of a weight is its path in Keras: `encoder/dense/kernel`.
    operator_names = {name.partition(":")[0] for node in nodes for name in (node.name, *node.output)}
    paths = [max((_split_scopes(name, operator_names) for name in _list_scoped_names(node)), key=len) for node in nodes]
    root_counts = Counter(path[0] for path in paths if path)
    root_scope = tuple(name for name, _ in root_counts.most_common(1))
    model_paths = [path for path in paths if path and path[:1] == root_scope]
    layer_paths = {build_layer_path(*path[1:depth]) for path in model_paths for depth in range(2, len(path) + 1)}
    return [
        build_layer_path(*path[1:])
        if path and path[:1] == root_scope
        else _find_layer_of_weights(node, weight_names, operator_names, layer_paths)
        for path, node in zip(paths, nodes, strict=True)
    ]


def _get_common_scope(scopes: Iterable[str | None]) -> str | None:
    """Return the one scope if all `scopes` are equal, else None."""
    distinct_scopes = {*scopes}
    return distinct_scopes.pop() if len(distinct_scopes) == 1 else None


def _find_layer_scope(names: Iterable[str], layer_names: Collection[str]) -> str | None:
    """Find the first name that contains a layer. Return its scopes up to the innermost layer; None if no name does."""
    for name in names:
        scopes = name.split("/")[:-1]
        for depth in range(len(scopes), 0, -1):
            if scopes[depth - 1] in layer_names or build_layer_path(scopes[depth - 1]) in layer_names:
                return "/".join(scopes[:depth])
    return None


def _list_scoped_names(node: NodeProto) -> list[str]:
    """Return the names that may contain the scopes of a node's layer. The most reliable name comes first."""
    # If tf2onnx folds a batch normalization into a convolution, only the kernel keeps the name of the convolution
    return [*(name for name in node.input if "/merged_input" in name), node.name, *node.output]


def _find_layer_of_weights(
    node: NodeProto, weight_names: Collection[str], operator_names: Collection[str], layer_paths: Collection[str]
) -> str:
    """Return the path of the layer that the names of a node's weights contain, or an empty string without one."""
    for name in node.input:
        if name in weight_names:
            scopes = name.split("/")[:-1]
            prefixes = ("/".join(scopes[start:end]) for end in range(len(scopes), 0, -1) for start in (0, 1))
            layer = next((prefix for prefix in prefixes if prefix in layer_paths), "")
            if layer := layer or build_layer_path(*_split_scopes(name, operator_names)[1:]):
                return layer
    return ""


def _split_scopes(name: str, operator_names: Collection[str]) -> tuple[str, ...]:
    """Return the scopes of layers at the start of a name. The first function, node or output in the name ends them."""
    scopes: list[str] = []
    prefix = ""
    for part in name.split("/")[:-1]:
        prefix = f"{prefix}/{part}" if prefix else part
        if _PARTS_WITHOUT_SCOPE.search(part):
            continue
        is_numbered = re.search(r"._\d+$", part)
        is_function = _TENSORFLOW_FUNCTIONS.fullmatch(build_layer_path(part))
        if ":" in part or prefix in operator_names or not is_numbered or is_function:
            break
        scopes.append(part)
    return tuple(scopes)
