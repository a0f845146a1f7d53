"""Which Keras layer a node of an ONNX file comes from, as far as its name tells."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

Path = tuple[str, ...]  # scopes below the model's, numbered as in the file: ("encoder_1", "dense_1")
MODEL: Path = ()

ENOUGH = 8  # groups of nodes; with fewer, those of several layers are taken apart
MOST = 60
RECURRENT = ("LSTM", "GRU", "RNN")
_OF_CALLS = re.compile(r"PartitionedCall|^Func$|^(in|out)put$")
# scopes of TensorFlow's own functions, which it numbers as well where one is called again
_FUNCTIONS = re.compile(
    "Any|All|Einsum|Gelu|GatherV2|MatMul|Max|Mean|Min|Repeat|Reshape|Softmax|SelectV2|Sum|Tensordot|batchnorm|cond|"
    "convolution|depthwise|einsum|moments|ones|range|separable_conv2d|strided_slice|while|zeros"
)


def node_paths(nodes: Sequence[onnx.NodeProto], weights: Collection[str]) -> list[Path | None]:
    """Return the path of the layer that each node is in; that of the model for its own ops, None where no name tells.

    Names are `StatefulPartitionedCall/model_1/encoder_1/dense_1/Tensordot/MatMul`: Keras opens the scope of a layer
    once to build it and once to call it, so that the one nodes are in has a number. What tf2onnx makes may have a
    name of its own, and the scope in that of its output or of a weight.

    Args:
        nodes: The nodes of a graph.
        weights: Names of matrices and kernels; large ones are called as Keras does: `encoder/dense/kernel`.
    """
    made = {name.partition(":")[0] for node in nodes for name in (node.name, *node.output)}
    found = [_longest(_scopes(name, made) for name in (*_kernels(node), node.name, *node.output)) for node in nodes]
    roots = Counter(path[0] for path in found if path)
    root = next((name for name, _ in roots.most_common(1)), None)
    paths = [path[1:] if path[:1] == (root,) else None for path in found]
    first: dict[str, Path] = {}
    for path in filter(None, paths):
        for depth in range(1, len(path) + 1):
            first.setdefault(shown(*path[:depth]), path[:depth])
    return [
        path if path is not None else _by_weights(node, weights, made, first)
        for path, node in zip(paths, nodes, strict=True)
    ]


def _kernels(node: onnx.NodeProto) -> list[str]:
    """Return the weights of a convolution that a batch normalization after it went into, and gave its name."""
    return [name for name in node.input if name.partition(":")[0].endswith("/merged_input")]


def _by_weights(
    node: onnx.NodeProto, weights: Collection[str], made: Collection[str], first: dict[str, Path]
) -> Path | None:
    for name in node.input:
        if name in weights:
            scopes = name.split("/")[:-1]
            begun = ("/".join(scopes[start:end]) for end in range(len(scopes), 0, -1) for start in (0, 1))
            if path := next((first[each] for each in begun if each in first), None) or _scopes(name, made)[1:]:
                return path
    return None


def _longest(paths: Iterable[Path]) -> Path:
    return max(paths, key=len, default=MODEL)  # the first of the longest


def _scopes(name: str, made: Collection[str]) -> Path:
    """Return the scopes of layers that a name begins with; `made` are names of ops, which nodes take for scopes."""
    scopes: list[str] = []
    begun = ""
    for part in name.split("/")[:-1]:
        begun = f"{begun}/{part}" if begun else part
        if _OF_CALLS.search(part):
            continue
        if ":" in part or begun in made or not _is_numbered(part) or _FUNCTIONS.fullmatch(shown(part)):
            break
        scopes.append(part)
    return tuple(scopes)


def _is_numbered(scope: str) -> bool:
    return bool(re.search(r"._\d+$", scope))


def shown(*scopes: str) -> str:
    """Return scopes as the path of a layer, without the numbers of its calls."""
    return "/".join(re.sub(r"_\d+$", "", scope) for scope in scopes)


def taken_apart(paths: Iterable[Path], whole: Collection[Path]) -> set[Path]:
    """Return the paths of models and layers that are shown by their parts: the model, and more if that is few groups.

    Args:
        paths: Those of all nodes.
        whole: What is not taken apart.
    """
    prefixes = {path[:depth] for path in paths for depth in range(1, len(path) + 1)}
    parts = {MODEL}
    while True:
        groups = {prefix for prefix in prefixes if prefix[:-1] in parts and prefix not in parts}
        if len(groups) >= ENOUGH:
            return parts
        inner = {group: sum(prefix[:-1] == group for prefix in prefixes) for group in groups}
        more = {group for group, count in inner.items() if count > 1 and group not in whole}
        if not more or len(groups) + sum(inner[group] for group in more) > MOST:
            return parts
        parts |= more


def group_of(path: Path, parts: Collection[Path]) -> Path:
    """Return the group that a path belongs to: the first of its prefixes that is not taken apart, or itself."""
    return next((path[:depth] for depth in range(len(path)) if path[:depth] not in parts), path)


def attention_paths(paths: Iterable[Path], names: Iterable[str]) -> set[Path]:
    """Return the paths of attention layers by their names, which may begin with the model's.

    What scores within `MultiHeadAttention` has a name and no scope of its own: then it is the layer around it.
    """
    prefixes = {path[:depth] for path in paths for depth in range(1, len(path) + 1)}
    by_name: dict[str, set[Path]] = {}
    for prefix in prefixes:
        by_name.setdefault(shown(*prefix), set()).add(prefix)
    found: set[Path] = set()
    for name in names:
        inner = name.partition("/")[2]
        around = (each.rpartition("/")[0] for each in (name, inner))
        found |= next((by_name[each] for each in (name, inner, *around) if each in by_name), set())
    return found
