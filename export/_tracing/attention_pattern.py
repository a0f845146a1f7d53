"""Match attention written as plain ONNX operators, and replace each match by an attention call.

The call is like that of a layer, with the same outputs for fully masked rows. If the pattern sets weights to zero, its
mask becomes the mask of the call, whose output is zero there too. Else the mask becomes a bias so low that all scores
of such a row are equal, as with the large negative number of the pattern.
"""

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import DOT_PRODUCT
from keras_attn._types import Heads, Pairs

from .._onnx.function_builder import nodes_in_graph
from .._onnx.graph_edits import drop_unread, refill
from .._onnx.graph_index import Nodes, Sizes, attribute, inferred, views
from .._onnx.lazy_values import Node, Value, op
from .._onnx.symbolic_shapes import Axes, infer_facts
from .._onnx.traced_model import DOMAIN, Traced
from .._onnx.traversal import names_used
from .attention_calls import Call

_LOG = logging.getLogger(__name__)
CALL_SCOPE = "StatefulPartitionedCall/"  # TensorFlow's prefix of the names in a function that is called
MAX_MASKED_SCORE = -1e8  # a number at least as low as this replaces masked scores: no score is near
LOW_BIAS = float(np.finfo(np.float32).min / 2)  # a score is lost in a sum with this number, and the sum is finite


class _Pattern(NamedTuple):
    """Names of the tensors of an attention pattern.

    Attributes:
        end: The product of weights and values.
        queries: (B, H, Tq, D), or (B, Tq, D), or (B, G, H / G, Tq, D) for groups of heads that share keys.
        keys: Transposed, (B, H, D, Tk), or (B, D, Tk), or (B, G, 1, D, Tk).
        values: (B, H, Tk, Dv), or (B, Tk, Dv), or (B, G, 1, Tk, Dv).
        scale: The factor of the products.
        bias: The tensor that is added to the scaled products, or empty.
        bias_scale: The factor of the bias.
        mask: The tensor that is false for masked scores, or empty.
        zeroed: Whether weights are set to zero where the mask is false.
        swapped: Whether the product is that of keys and queries: then the queries are transposed, and not the keys.
    """

    end: onnx.NodeProto
    queries: str
    keys: str
    values: str
    scale: float = 1.0
    bias: str = ""
    bias_scale: float = 1.0
    mask: str = ""
    zeroed: bool = False
    swapped: bool = False


def with_written_attention(traced: Traced, first: int, inputs: Mapping[str, Axes]) -> tuple[Traced, list[Call]]:
    """Return a model with a call in place of each attention pattern, and the calls.

    Args:
        traced: The traced model, which is not changed.
        first: The number of the first call.
        inputs: The axes of the inputs, by name; axes of one name have one size.
    """
    model = deepcopy(traced.model)
    calls: list[Call] = []
    axes: Mapping[str, Axes] = {}
    for nodes in reversed([*views(model.graph, inferred(model, traced.weights))]):  # bodies before outer graphs
        reads = Counter(names_used(nodes.graph))
        patterns = {node.output[0]: match for node in nodes.graph.node if (match := _match(node, nodes, reads))}
        if not patterns:
            continue
        axes = axes or infer_facts(traced.model, inputs).axes
        rewritten = []
        for node in nodes.graph.node:
            pattern = patterns.get(node.output[0] if node.output else "")
            if pattern is None:
                rewritten.append(node)
                continue
            call, call_nodes = _CallBuilder(pattern, nodes, axes).build(f"{DOT_PRODUCT}_{first + len(calls)}")
            calls.append(call)
            rewritten += call_nodes
            shape = nodes.sizes(node.output[0])  # onnx no longer infers it
            nodes.graph.value_info.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape))
        refill(nodes.graph.node, rewritten)
    if not calls:
        return traced, []
    drop_unread(model.graph)
    if DOMAIN not in {opset.domain for opset in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return replace(traced, model=model), calls


def _match(node: onnx.NodeProto, nodes: Nodes, reads: Mapping[str, int]) -> _Pattern | None:
    """Return the attention pattern that a node ends, or None."""
    if node.op_type != "MatMul" or node.domain:
        return None
    weights = node.input[0]
    mask = ""
    selected = nodes.maker(weights, "Where")
    if selected is not None:
        mask, weights, masked_weight = selected.input
    softmax = nodes.maker(weights, "Softmax")
    if softmax is None:
        return None
    sizes = nodes.sizes(weights) or ()
    if selected is not None and nodes.number(masked_weight) != 0:
        reason = "its masked weights are not zero"
    elif reads[weights] != 1 or reads[node.input[0]] != 1:
        reason = "its weights are read elsewhere too"
    elif len(sizes) not in (3, 4, 5) or attribute(softmax, "axis", -1) not in (-1, len(sizes) - 1):
        reason = "its softmax is not over the last of 3 to 5 axes"
    elif nodes.kind(weights) != TensorProto.FLOAT:
        reason = "it does not compute in float32"
    else:
        unscored = _Pattern(node, "", "", node.input[1], mask=mask, zeroed=bool(mask))
        pattern = _match_scores(unscored, softmax.input[0], nodes)
        if pattern is not None and _fits(pattern, sizes, nodes):
            return pattern
        reason = "its scores are not scaled products with a bias and a mask" if pattern is None else "its shapes differ"
    _LOG.debug("Attention at node %s stays as it is: %s", node.name, reason)
    return None


def _match_scores(pattern: _Pattern, scores: str, nodes: Nodes) -> _Pattern | None:
    """Return the pattern with the inputs of its scores, None if the scores are computed in another way."""
    selected = nodes.maker(scores, "Where")
    if selected is not None:
        mask, scores, masked_score = selected.input
        number = nodes.number(masked_score)
        if number is None or not -math.inf < number <= MAX_MASKED_SCORE or pattern.mask not in ("", mask):
            return None
        pattern = pattern._replace(mask=mask)
    elif pattern.mask:  # of weights alone
        return None
    name, outer = _unscaled(scores, nodes)
    for products, bias in nodes.both_orders(nodes.maker(name, "Add")):
        if (match := _match_products(pattern, products, outer, nodes)) is not None:
            return match._replace(bias=bias, bias_scale=outer)
    return _match_products(pattern, scores, 1.0, nodes)


def _match_products(pattern: _Pattern, name: str, scale: float, nodes: Nodes) -> _Pattern | None:
    """Return the pattern with queries, keys and the scale of their products, the factor `scale` included."""
    name, inner = _unscaled(name, nodes)
    scale *= inner
    transposed = nodes.maker(name, "Transpose")
    if transposed is not None:
        rank = len(nodes.sizes(name) or ())
        if _order(transposed, rank) != [*range(rank - 2), rank - 1, rank - 2]:
            return None
        name, inner = _unscaled(transposed.input[0], nodes)
        scale *= inner
    product = nodes.maker(name, "MatMul")
    if product is None or not 0 < np.float32(scale) < math.inf:
        return None
    swapped = transposed is not None
    queries, keys = reversed(product.input) if swapped else product.input
    return pattern._replace(queries=queries, keys=keys, scale=scale, swapped=swapped)


def _unscaled(name: str, nodes: Nodes) -> tuple[str, float]:
    """Return a tensor and a factor whose product a tensor is."""
    scale = 1.0
    while (node := nodes.maker(name, "Mul", "Div")) is not None:
        orders = [*nodes.both_orders(node)][: 1 if node.op_type == "Div" else 2]
        factors = [(one, number) for one, other in orders if (number := nodes.number(other)) is not None]
        if not factors or not factors[0][1]:
            break
        name, number = factors[0]
        scale = scale / number if node.op_type == "Div" else scale * number
    return name, scale


def _order(transpose: onnx.NodeProto, rank: int) -> list[int]:
    perm = next((list(attribute.ints) for attribute in transpose.attribute if attribute.name == "perm"), None)
    return [*range(rank)][::-1] if perm is None else perm


def _fits(pattern: _Pattern, scores: Sequence[int | None], nodes: Nodes) -> bool:
    """Return whether all tensors have the rank of the scores, the number of heads is known, and nothing broadcasts."""
    queries, keys, values = (nodes.sizes(name) for name in (pattern.queries, pattern.keys, pattern.values))
    rank = len(scores)
    if queries is None or keys is None or values is None or {len(queries), len(keys), len(values)} != {rank}:
        return False
    if pattern.swapped:
        queries = (*queries[:-2], queries[-1], queries[-2])
    heads, shared = queries[1:-2], values[1:-2]
    if None in (*heads, queries[-1], values[-1]) or keys[:-2] != values[:-2] or queries[0] != values[0]:
        return False
    if shared not in (heads, (*heads[:-1], 1)):
        return False
    return all(_broadcasts(name, scores, nodes) for name in (pattern.bias, pattern.mask) if name)


def _broadcasts(name: str, scores: Sequence[int | None], nodes: Nodes) -> bool:
    """Return whether a bias or a mask broadcasts to the scores, over a known number of heads."""
    sizes = nodes.sizes(name)
    if sizes is None or len(sizes) > len(scores) or nodes.kind(name) not in (TensorProto.FLOAT, TensorProto.BOOL):
        return False
    heads = (*[1] * (len(scores) - len(sizes)), *sizes)[1:-2]
    if len(heads) > 1 and heads != (1, 1):
        return False
    return all(size in (1, of_scores) for size, of_scores in zip(heads, scores[1:-2], strict=True))


class _CallBuilder:
    """Builds the call of a pattern, and its nodes.

    Attributes:
        heads: The sizes of the axes of heads: (), (H,), or (G, H / G).
        swapped: Whether the queries are transposed, and not the keys.
    """

    def __init__(self, pattern: _Pattern, nodes: Nodes, axes: Mapping[str, Axes]) -> None:
        self._pattern = pattern
        self._nodes = nodes
        self._axes = axes
        self._tensors: dict[Value, str] = {}
        queries = nodes.sizes(pattern.queries) or ()
        values = nodes.sizes(pattern.values) or ()
        self._batch = queries[0]
        self._num_queries, self._size = (queries[-1], queries[-2]) if pattern.swapped else (queries[-2], queries[-1])
        self._num_keys, self._value_size = values[-2:]
        self._heads = queries[1:-2]
        self._num_heads, self._num_kv_heads = (math.prod(k or 0 for k in dims) for dims in (self._heads, values[1:-2]))

    def build(self, name: str) -> tuple[Call, list[onnx.NodeProto]]:
        """Return the call with this name, and the nodes that replace the last one of the pattern."""
        pattern = self._pattern
        inputs = {"queries": self._queries(), "keys": self._keys(), "values": self._values(), **self._masks()}
        output = Node(name, [value for value, _ in inputs.values()], domain=DOMAIN).results[0]
        if self._heads:  # (B, Tq, H Dv) to (B, H, Tq, Dv)
            rank = len(self._heads)
            unpacked = op.Reshape(output, np.array([0, 0, *self._heads, self._value_size]))
            output = op.Transpose(unpacked, perm=[0, *range(2, 2 + rank), 1, 2 + rank])
        call = Call(
            op=name,
            layer=pattern.end.name.removeprefix(CALL_SCOPE).rpartition("/")[0],
            owner=0,
            name=DOT_PRODUCT,
            shapes={key: shape for key, (_, shape) in inputs.items()},
            dtypes={key: "bool" if key == "mask" else "float32" for key in inputs},
            constants={},
            options={"scale": pattern.scale},
            heads=Heads(self._num_heads, self._num_kv_heads) if self._heads else None,
            pairs=Pairs(),
            normalizer=SOFTMAX,
            returns_weights=False,
            leaks=True,
            whole=self._full_inputs(),
        )
        results = {output: pattern.end.output[0]}
        return call, nodes_in_graph(self._nodes.graph, self._tensors, results, name, pattern.end.name)

    def _queries(self) -> tuple[Value, Sizes]:
        packed_size = self._num_heads * (self._size or 0)
        value = self._packed(self._pattern.queries, packed_size, transposed=self._pattern.swapped)
        return value, (self._batch, self._num_queries, packed_size)

    def _keys(self) -> tuple[Value, Sizes]:
        packed_size = self._num_kv_heads * (self._size or 0)
        value = self._packed(self._pattern.keys, packed_size, transposed=not self._pattern.swapped)
        return value, (self._batch, self._num_keys, packed_size)

    def _values(self) -> tuple[Value, Sizes]:
        packed_size = self._num_kv_heads * (self._value_size or 0)
        return self._packed(self._pattern.values, packed_size), (self._batch, self._num_keys, packed_size)

    def _masks(self) -> dict[str, tuple[Value, Sizes]]:
        """Return mask and bias of the call: a mask of scores alone becomes a bias."""
        pattern = self._pattern
        mask = self._pairwise(pattern.mask) if pattern.mask else None
        bias = self._pairwise(pattern.bias) if pattern.bias else None
        if bias is not None and pattern.bias_scale != 1:
            bias = bias[0] * pattern.bias_scale, bias[1]
        if mask is not None and not pattern.zeroed:
            return {"bias": self._low_where_masked(mask, bias)}
        return {name: value for name, value in (("mask", mask), ("bias", bias)) if value is not None}

    def _low_where_masked(self, mask: tuple[Value, Sizes], bias: tuple[Value, Sizes] | None) -> tuple[Value, Sizes]:
        """Return a bias that is the same low number where a mask is false, with its shape."""
        value, sizes = bias or (0.0, mask[1])
        shape = tuple(of_bias if of_mask == 1 else of_mask for of_mask, of_bias in zip(mask[1], sizes, strict=True))
        return op.Where(mask[0], value, LOW_BIAS), shape

    def _full_inputs(self) -> frozenset[str]:
        """Return whether mask and bias of the call certainly have the axes of queries and keys, by their names."""
        full = {name for name in ("mask", "bias") if self._is_full(getattr(self._pattern, name))}
        return frozenset({"bias"} if full and self._pattern.mask and not self._pattern.zeroed else full)

    def _is_full(self, name: str) -> bool:
        queries, values, pairs = (self._axes.get(key) for key in (self._pattern.queries, self._pattern.values, name))
        if queries is None or values is None or pairs is None or len(pairs) < 2:
            return False
        sizes = queries[-1 if self._pattern.swapped else -2], values[-2]
        return None not in sizes and pairs[-2:] == sizes

    def _packed(self, name: str, packed_size: int, *, transposed: bool = False) -> Value:
        """Return (B, T, H D) of (B, H, T, D) or (B, T, D), or of the same with its last two axes transposed."""
        rank = len(self._nodes.sizes(name) or ())
        order = [0, rank - 2, *range(1, rank - 2), rank - 1]
        if transposed:
            swap = {rank - 1: rank - 2, rank - 2: rank - 1}
            order = [swap.get(axis, axis) for axis in order]
        before = self._nodes.maker(name, "Transpose")
        if before is not None:
            perm = _order(before, rank)
            name = before.input[0]
            order = [perm[axis] for axis in order]
        value = self._tensor(name)
        if order != sorted(order):
            value = op.Transpose(value, perm=order)
        return value if rank == 3 else op.Reshape(value, np.array([0, 0, packed_size]))

    def _pairwise(self, name: str) -> tuple[Value, Sizes]:
        """Return a mask or a bias with the axes of the scores, one for heads if any, and its shape."""
        value = self._tensor(name)
        sizes = self._nodes.sizes(name) or ()
        if len(sizes) > 4:  # groups, and heads of a group
            return op.Squeeze(value, np.array([1])), (sizes[0], *sizes[2:])
        missing = min(len(self._heads) + 3, 4) - len(sizes)
        expanded = op.Unsqueeze(value, np.arange(missing)) if missing else value
        return expanded, (*[1] * missing, *sizes)

    def _tensor(self, name: str) -> Value:
        """Return a tensor of the graph as a value."""
        value = Value()
        self._tensors[value] = name
        return value
