"""Keras layer paths of ONNX nodes, parsed from the names that TensorFlow and tf2onnx give to nodes and weights."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

ScopePath = tuple[str, ...]  # scopes below that of the model, numbered as in the file: ("encoder_1", "dense_1")
MODEL: ScopePath = ()

_FUNCTION_CALLS = re.compile(r"PartitionedCall|^Func$|^(in|out)put$")
# scopes of TensorFlow's own functions, which are numbered like layers if a function is called again
_FUNCTIONS = re.compile(
    "Any|All|Einsum|Gelu|GatherV2|MatMul|Max|Mean|Min|Repeat|Reshape|Softmax|SelectV2|Sum|Tensordot|batchnorm|cond|"
    "convolution|depthwise|einsum|moments|ones|range|separable_conv2d|strided_slice|while|zeros"
)


def node_paths(nodes: Sequence[onnx.NodeProto], weights: Collection[str]) -> list[ScopePath | None]:
    """Return the path of the layer of each node: `MODEL` for operators of the model, `None` without a name.

    Names are `StatefulPartitionedCall/model_1/encoder_1/dense_1/Tensordot/MatMul`: Keras opens the scope of a layer
    once to build it and once to call it, so that the scope of nodes has a number. A node that tf2onnx adds may have a
    name without scopes; its output or weight then has them.

    Args:
        nodes: The nodes of a graph.
        weights: Names of matrices and kernels; large ones are named as in Keras: `encoder/dense/kernel`.
    """
    operators = {name.partition(":")[0] for node in nodes for name in (node.name, *node.output)}
    full = [_longest(_scopes(name, operators) for name in (*_kernels(node), node.name, *node.output)) for node in nodes]
    roots = Counter(path[0] for path in full if path)
    root = next((name for name, _ in roots.most_common(1)), None)
    paths = [path[1:] if path[:1] == (root,) else None for path in full]
    first: dict[str, ScopePath] = {}
    for path in filter(None, paths):
        for depth in range(1, len(path) + 1):
            first.setdefault(layer_path(*path[:depth]), path[:depth])
    return [
        path if path is not None else _by_weights(node, weights, operators, first)
        for path, node in zip(paths, nodes, strict=True)
    ]


def layer_path(*scopes: str) -> str:
    """Return scopes as the path of a layer, without the numbers of its calls."""
    return "/".join(re.sub(r"_\d+$", "", scope) for scope in scopes)


def _kernels(node: onnx.NodeProto) -> list[str]:
    """Return the weights of a convolution into which a batch normalization was folded, and gave them its name."""
    return [name for name in node.input if name.partition(":")[0].endswith("/merged_input")]


def _by_weights(
    node: onnx.NodeProto, weights: Collection[str], operators: Collection[str], first: dict[str, ScopePath]
) -> ScopePath | None:
    for name in node.input:
        if name in weights:
            scopes = name.split("/")[:-1]
            prefixes = ("/".join(scopes[start:end]) for end in range(len(scopes), 0, -1) for start in (0, 1))
            path = next((first[prefix] for prefix in prefixes if prefix in first), None)
            if path := path or _scopes(name, operators)[1:]:
                return path
    return None


def _longest(paths: Iterable[ScopePath]) -> ScopePath:
    return max(paths, key=len, default=MODEL)  # the first of the longest


def _scopes(name: str, operators: Collection[str]) -> ScopePath:
    """Return the scopes of layers that a name begins with.

    Args:
        name: The name of a node, output or weight.
        operators: Names of operators, which their inner nodes have as scopes.
    """
    scopes: list[str] = []
    prefix = ""
    for part in name.split("/")[:-1]:
        prefix = f"{prefix}/{part}" if prefix else part
        if _FUNCTION_CALLS.search(part):
            continue
        if ":" in part or prefix in operators or not _is_numbered(part) or _FUNCTIONS.fullmatch(layer_path(part)):
            break
        scopes.append(part)
    return tuple(scopes)


def _is_numbered(scope: str) -> bool:
    return bool(re.search(r"._\d+$", scope))
