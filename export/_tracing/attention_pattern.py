"""Match attention made of plain ONNX operators, and replace each match by an attention call."""

# The pattern ends in the product with the values. Both `where` and the bias are optional; each scale is a chain of
# products with, or quotients by, constants; transpose(k @ q^T) may replace q @ k^T:
#     products = outer_scale * (inner_scale * q k^T + bias)
#     scores   = where(mask, products, fill_value), with a finite fill_value of at most MAX_MASKED_SCORE
#     weights  = where(mask, softmax of scores, 0), with the mask of the scores
#     output   = product of weights and values
# `_match` starts at each `MatMul` and follows producers backwards: output, weights, scores, products. The call has
# the scale outer_scale * inner_scale and the bias outer_scale * bias. A match is refused, with a reason in the debug
# log, if another node reads the weights, if it is not float32, or if shapes are unknown or unsupported. If outputs
# with a replacement differ from Keras, the export writes the file without replacements.
# Fully masked rows keep their result. If the pattern zeroes the weights, the mask becomes the mask of the call, which
# returns zeros there. Otherwise fill_value makes all scores of the row equal, which gives the mean of all values: the
# mask becomes a bias of LOW_BIAS, which absorbs the scores.

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
from keras_attn._types import BandMask, Heads

from .._onnx.function_builder import nodes_in_graph
from .._onnx.graph_edits import remove_dead_nodes, replace_items
from .._onnx.graph_index import GraphIndex, StaticShape, get_int_attribute, infer_shapes, iter_graph_indexes
from .._onnx.lazy_values import Node, Value, op
from .._onnx.symbolic_shapes import SymbolicShape, infer_facts
from .._onnx.traced_model import FUNCTION_DOMAIN, TracedModel
from .._onnx.traversal import iter_used_names
from .attention_calls import TracedCall

_LOG = logging.getLogger(__name__)
CALL_SCOPE = "StatefulPartitionedCall/"  # prefix of names in a called function
# Largest fill value of masked scores. In float32 exp(fill_value - score) is 0 below -104, so that all values far below
# the scores give the same weights; -1e9 is usual. A value near the scores, such as -100, leaves small weights.
MAX_MASKED_SCORE = -1e8
# Half the lowest float32: its ulp is 1e31, so that the sum with any score is LOW_BIAS itself, and finite.
LOW_BIAS = float(np.finfo(np.float32).min / 2)


class _Pattern(NamedTuple):
    """Names of the tensors of an attention pattern.

    Attributes:
        output_node: The product of weights and values.
        queries: (B, H, Tq, D), or (B, Tq, D), or (B, G, H / G, Tq, D) for groups of heads that share keys.
        keys: Transposed, (B, H, D, Tk), or (B, D, Tk), or (B, G, 1, D, Tk).
        values: (B, H, Tk, Dv), or (B, Tk, Dv), or (B, G, 1, Tk, Dv).
        scale: Factor of the products.
        bias: Tensor that is added to the scaled products, or empty.
        bias_scale: Factor of the bias.
        mask: Boolean tensor that is false for masked scores, or empty.
        zeroes_weights: Whether the pattern sets masked weights to zero.
        is_swapped: Whether the product is k @ q^T: the queries are transposed, (B, H, D, Tq), and the keys are not.
    """

    output_node: onnx.NodeProto
    queries: str
    keys: str
    values: str
    scale: float = 1.0
    bias: str = ""
    bias_scale: float = 1.0
    mask: str = ""
    zeroes_weights: bool = False
    is_swapped: bool = False


def replace_attention_patterns(
    traced: TracedModel, first: int, inputs: Mapping[str, SymbolicShape]
) -> tuple[TracedModel, list[TracedCall]]:
    """Return a model with a call in place of each attention pattern, and the calls.

    Args:
        traced: The traced model, which is not changed.
        first: Number in the name of the first new call.
        inputs: Symbolic shapes of the inputs, by name; dims with the same name have the same size.
    """
    model = deepcopy(traced.model)
    calls: list[TracedCall] = []
    axes: Mapping[str, SymbolicShape] = {}
    for nodes in reversed(
        [*iter_graph_indexes(model.graph, infer_shapes(model, traced.weights))]
    ):  # bodies before outer graphs
        num_reads = Counter(iter_used_names(nodes.graph))
        patterns = {node.output[0]: match for node in nodes.graph.node if (match := _match(node, nodes, num_reads))}
        if not patterns:
            continue
        axes = axes or infer_facts(traced.model, inputs).shapes
        new_nodes = []
        for node in nodes.graph.node:
            pattern = patterns.get(node.output[0] if node.output else "")
            if pattern is None:
                new_nodes.append(node)
                continue
            call, call_nodes = _CallBuilder(pattern, nodes, axes).build(f"{DOT_PRODUCT}_{first + len(calls)}")
            calls.append(call)
            new_nodes += call_nodes
            shape = nodes.get_shape(node.output[0])  # onnx infers no shape for the output of a call
            nodes.graph.value_info.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape))
        replace_items(nodes.graph.node, new_nodes)
    if not calls:
        return traced, []
    remove_dead_nodes(model.graph)
    if FUNCTION_DOMAIN not in {opset.domain for opset in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(FUNCTION_DOMAIN, 1))
    return replace(traced, model=model), calls


def _match(node: onnx.NodeProto, nodes: GraphIndex, num_reads: Mapping[str, int]) -> _Pattern | None:
    """Return the attention pattern with a node as its output node, or None."""
    if node.op_type != "MatMul" or node.domain:
        return None
    weights = node.input[0]
    mask = ""
    where = nodes.get_producer(weights, "Where")
    if where is not None:
        mask, weights, masked_weight = where.input
    softmax = nodes.get_producer(weights, "Softmax")
    if softmax is None:
        return None
    sizes = nodes.get_shape(weights) or ()
    if where is not None and nodes.get_scalar(masked_weight) != 0:
        reason = "its masked weights are not zero"
    elif num_reads[weights] != 1 or num_reads[node.input[0]] != 1:
        reason = "another node reads its weights"
    elif len(sizes) not in (3, 4, 5) or get_int_attribute(softmax, "axis", -1) not in (-1, len(sizes) - 1):
        reason = "its softmax is not over the last axis of a tensor of rank 3 to 5"
    elif nodes.get_elem_type(weights) != TensorProto.FLOAT:
        reason = "it does not compute in float32"
    else:
        unscored = _Pattern(node, "", "", node.input[1], mask=mask, zeroes_weights=bool(mask))
        pattern = _match_scores(unscored, softmax.input[0], nodes)
        if pattern is not None and _has_supported_shapes(pattern, sizes, nodes):
            return pattern
        reason = "its scores do not match the pattern" if pattern is None else "its shapes are unknown or unsupported"
    _LOG.debug("Attention at node %s is not replaced: %s", node.name, reason)
    return None


def _match_scores(pattern: _Pattern, scores: str, nodes: GraphIndex) -> _Pattern | None:
    """Return the pattern with the inputs of its scores, or None if the scores do not match."""
    where = nodes.get_producer(scores, "Where")
    if where is not None:
        mask, scores, masked_score = where.input
        fill_value = nodes.get_scalar(masked_score)
        if fill_value is None or not -math.inf < fill_value <= MAX_MASKED_SCORE or pattern.mask not in ("", mask):
            return None
        pattern = pattern._replace(mask=mask)
    elif pattern.mask:  # the softmax would include masked scores
        return None
    name, outer_scale = _strip_scale(scores, nodes)
    for products, bias in nodes.iter_input_orders(nodes.get_producer(name, "Add")):
        if (match := _match_products(pattern, products, outer_scale, nodes)) is not None:
            return match._replace(bias=bias, bias_scale=outer_scale)
    return _match_products(pattern, scores, 1.0, nodes)


def _match_products(pattern: _Pattern, name: str, scale: float, nodes: GraphIndex) -> _Pattern | None:
    """Return the pattern with queries, keys and scale, if `name` is a scaled product; multiply its scale by `scale`."""
    name, inner_scale = _strip_scale(name, nodes)
    scale *= inner_scale
    transpose = nodes.get_producer(name, "Transpose")
    if transpose is not None:
        rank = len(nodes.get_shape(name) or ())
        if _read_permutation(transpose, rank) != [*range(rank - 2), rank - 1, rank - 2]:
            return None
        name, inner_scale = _strip_scale(transpose.input[0], nodes)
        scale *= inner_scale
    product = nodes.get_producer(name, "MatMul")
    if product is None or not 0 < np.float32(scale) < math.inf:
        return None
    is_swapped = transpose is not None
    queries, keys = reversed(product.input) if is_swapped else product.input
    return pattern._replace(queries=queries, keys=keys, scale=scale, is_swapped=is_swapped)


def _strip_scale(name: str, nodes: GraphIndex) -> tuple[str, float]:
    """Return (tensor, scale) with `name` = tensor * scale, without `Mul` and `Div` by constants."""
    scale = 1.0
    while (node := nodes.get_producer(name, "Mul", "Div")) is not None:
        orders = [*nodes.iter_input_orders(node)][: 1 if node.op_type == "Div" else 2]
        factors = [
            (tensor, constant) for tensor, factor in orders if (constant := nodes.get_scalar(factor)) is not None
        ]
        if not factors or not factors[0][1]:
            break
        name, constant = factors[0]
        scale = scale / constant if node.op_type == "Div" else scale * constant
    return name, scale


def _read_permutation(transpose: onnx.NodeProto, rank: int) -> list[int]:
    perm = next((list(attribute.ints) for attribute in transpose.attribute if attribute.name == "perm"), None)
    return [*range(rank)][::-1] if perm is None else perm


def _has_supported_shapes(pattern: _Pattern, scores: Sequence[int | None], nodes: GraphIndex) -> bool:
    """Return True if all tensors have the rank of the scores, static numbers of heads, and the same batch size."""
    queries, keys, values = (nodes.get_shape(name) for name in (pattern.queries, pattern.keys, pattern.values))
    rank = len(scores)
    if queries is None or keys is None or values is None or {len(queries), len(keys), len(values)} != {rank}:
        return False
    if pattern.is_swapped:
        queries = (*queries[:-2], queries[-1], queries[-2])
    heads, kv_heads = queries[1:-2], values[1:-2]
    if None in (*heads, queries[-1], values[-1]) or keys[:-2] != values[:-2] or queries[0] != values[0]:
        return False
    if kv_heads not in (heads, (*heads[:-1], 1)):
        return False
    return all(_is_broadcastable(name, scores, nodes) for name in (pattern.bias, pattern.mask) if name)


def _is_broadcastable(name: str, scores: Sequence[int | None], nodes: GraphIndex) -> bool:
    """Return True if a bias or a mask has static head dims that broadcast to the scores."""
    sizes = nodes.get_shape(name)
    if (
        sizes is None
        or len(sizes) > len(scores)
        or nodes.get_elem_type(name) not in (TensorProto.FLOAT, TensorProto.BOOL)
    ):
        return False
    heads = (*[1] * (len(scores) - len(sizes)), *sizes)[1:-2]
    if len(heads) > 1 and heads != (1, 1):
        return False
    return all(size in (1, score_size) for size, score_size in zip(heads, scores[1:-2], strict=True))


class _CallBuilder:
    """Builder of the call of a pattern, and of its nodes."""

    def __init__(self, pattern: _Pattern, nodes: GraphIndex, axes: Mapping[str, SymbolicShape]) -> None:
        self._pattern = pattern
        self._nodes = nodes
        self._axes = axes
        self._tensors: dict[Value, str] = {}
        queries = nodes.get_shape(pattern.queries) or ()
        values = nodes.get_shape(pattern.values) or ()
        self._batch = queries[0]
        self._num_queries, self._size = (queries[-1], queries[-2]) if pattern.is_swapped else (queries[-2], queries[-1])
        self._num_keys, self._value_size = values[-2:]
        self._heads = queries[1:-2]  # head dims: (), (H,), or (G, H / G)
        head_dims = self._heads, values[1:-2]
        self._num_heads, self._num_kv_heads = (math.prod(dim or 0 for dim in dims) for dims in head_dims)

    def build(self, name: str) -> tuple[TracedCall, list[onnx.NodeProto]]:
        """Return the call `name`, and the nodes that replace the output node of the pattern."""
        pattern = self._pattern
        inputs = {"queries": self._pack_queries(), "keys": self._pack_keys(), "values": self._pack_values()}
        inputs |= self._build_masks()
        output = Node(name, [value for value, _ in inputs.values()], domain=FUNCTION_DOMAIN).results[0]
        if self._heads:  # (B, Tq, H Dv) to (B, H, Tq, Dv)
            rank = len(self._heads)
            unpacked = op.Reshape(output, np.array([0, 0, *self._heads, self._value_size]))
            output = op.Transpose(unpacked, perm=[0, *range(2, 2 + rank), 1, 2 + rank])
        call = TracedCall(
            op_type=name,
            layer=pattern.output_node.name.removeprefix(CALL_SCOPE).rpartition("/")[0],
            layer_id=0,
            score=DOT_PRODUCT,
            shapes={key: shape for key, (_, shape) in inputs.items()},
            dtypes={key: "bool" if key == "mask" else "float32" for key in inputs},
            constants={},
            options={"scale": pattern.scale},
            heads=Heads(self._num_heads, self._num_kv_heads) if self._heads else None,
            band=BandMask(),
            normalizer=SOFTMAX,
            returns_weights=False,
            may_leak_nan=True,
            full_masks=self._find_full_size_inputs(),
        )
        results = {output: pattern.output_node.output[0]}
        return call, nodes_in_graph(self._nodes.graph, self._tensors, results, name, pattern.output_node.name)

    def _pack_queries(self) -> tuple[Value, StaticShape]:
        packed_size = self._num_heads * (self._size or 0)
        value = self._pack_heads(self._pattern.queries, packed_size, is_transposed=self._pattern.is_swapped)
        return value, (self._batch, self._num_queries, packed_size)

    def _pack_keys(self) -> tuple[Value, StaticShape]:
        packed_size = self._num_kv_heads * (self._size or 0)
        value = self._pack_heads(self._pattern.keys, packed_size, is_transposed=not self._pattern.is_swapped)
        return value, (self._batch, self._num_keys, packed_size)

    def _pack_values(self) -> tuple[Value, StaticShape]:
        packed_size = self._num_kv_heads * (self._value_size or 0)
        return self._pack_heads(self._pattern.values, packed_size), (self._batch, self._num_keys, packed_size)

    def _build_masks(self) -> dict[str, tuple[Value, StaticShape]]:
        """Return mask and bias of the call; a mask of scores without zeroed weights becomes a bias."""
        pattern = self._pattern
        mask = self._align_with_scores(pattern.mask) if pattern.mask else None
        bias = self._align_with_scores(pattern.bias) if pattern.bias else None
        if bias is not None and pattern.bias_scale != 1:
            bias = bias[0] * pattern.bias_scale, bias[1]
        if mask is not None and not pattern.zeroes_weights:
            return {"bias": self._convert_mask_to_bias(mask, bias)}
        return {name: value for name, value in (("mask", mask), ("bias", bias)) if value is not None}

    def _convert_mask_to_bias(
        self, mask: tuple[Value, StaticShape], bias: tuple[Value, StaticShape] | None
    ) -> tuple[Value, StaticShape]:
        """Return the bias with LOW_BIAS for masked pairs, and its shape."""
        value, sizes = bias or (0.0, mask[1])
        dims = zip(mask[1], sizes, strict=True)
        shape = tuple(bias_dim if mask_dim == 1 else mask_dim for mask_dim, bias_dim in dims)
        return op.Where(mask[0], value, LOW_BIAS), shape

    def _find_full_size_inputs(self) -> frozenset[str]:
        """Return the names among mask and bias of the call that have the shape (..., Tq, Tk) by symbolic shapes."""
        names = {name for name in ("mask", "bias") if self._has_full_size(getattr(self._pattern, name))}
        return frozenset({"bias"} if names and self._pattern.mask and not self._pattern.zeroes_weights else names)

    def _has_full_size(self, name: str) -> bool:
        queries, values, mask = (self._axes.get(key) for key in (self._pattern.queries, self._pattern.values, name))
        if queries is None or values is None or mask is None or len(mask) < 2:
            return False
        sizes = queries[-1 if self._pattern.is_swapped else -2], values[-2]
        return None not in sizes and mask[-2:] == sizes

    def _pack_heads(self, name: str, packed_size: int, *, is_transposed: bool = False) -> Value:
        """Return (B, T, H * D) for a tensor (B, H, T, D) or (B, T, D); `is_transposed`: (B, H, D, T) or (B, D, T)."""
        rank = len(self._nodes.get_shape(name) or ())
        order = [0, rank - 2, *range(1, rank - 2), rank - 1]
        if is_transposed:
            swap = {rank - 1: rank - 2, rank - 2: rank - 1}
            order = [swap.get(axis, axis) for axis in order]
        transpose = self._nodes.get_producer(name, "Transpose")
        if transpose is not None:
            perm = _read_permutation(transpose, rank)
            name = transpose.input[0]
            order = [perm[axis] for axis in order]
        value = self._read_tensor(name)
        if order != sorted(order):
            value = op.Transpose(value, perm=order)
        return value if rank == 3 else op.Reshape(value, np.array([0, 0, packed_size]))

    def _align_with_scores(self, name: str) -> tuple[Value, StaticShape]:
        """Return a mask or a bias as (B, H, Tq, Tk), or (B, Tq, Tk) without heads, and its shape; dims may be 1."""
        value = self._read_tensor(name)
        sizes = self._nodes.get_shape(name) or ()
        if len(sizes) > 4:  # groups, and heads of a group
            return op.Squeeze(value, np.array([1])), (sizes[0], *sizes[2:])
        num_new_axes = min(len(self._heads) + 3, 4) - len(sizes)
        expanded = op.Unsqueeze(value, np.arange(num_new_axes)) if num_new_axes else value
        return expanded, (*[1] * num_new_axes, *sizes)

    def _read_tensor(self, name: str) -> Value:
        """Return a lazy value for a tensor of the graph."""
        value = Value()
        self._tensors[value] = name
        return value
