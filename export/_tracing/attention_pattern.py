"""Match attention made of plain ONNX operators, and replace each match by an attention call.

It becomes a call like those of layers, with the meaning that it had for rows without keys: where its weights are set to
zero it is the mask of the call, which gives zeros there too; where they are not, a bias so low that all scores of such
a row are the same, as the large negative number made them.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from keras_attn._maths.normalizers import SOFTMAX
from keras_attn._pooling.scoring import DOT_PRODUCT
from keras_attn._types import Heads, Pairs

from .._onnx.graph_edits import drop_unread, refill
from .._onnx.graph_index import Nodes, Sizes, attribute, inferred, views
from .._onnx.symbolic_shapes import Axes, infer_facts
from .._onnx.traced_model import DOMAIN, Traced
from .._onnx.traversal import names_used
from .attention_calls import Call

_LOG = logging.getLogger(__name__)
TRACED = "StatefulPartitionedCall/"  # what TensorFlow puts before the names of a function that is called
LARGE = -1e8  # a number to replace scores from which on no score comes near
LOW = float(np.finfo(np.float32).min / 2)  # beside which a score is nothing, and a sum with one is finite


class _Written(NamedTuple):
    """Names of what attention is made of.

    Attributes:
        end: The product of weights and values.
        queries: (B, H, Tq, D), or (B, Tq, D), or of groups of heads that share keys, (B, G, H / G, Tq, D).
        keys: With the last axes the other way round, (B, H, D, Tk) or (B, D, Tk), or (B, G, 1, D, Tk).
        values: (B, H, Tk, Dv), or (B, Tk, Dv), or (B, G, 1, Tk, Dv).
        scale: Factor of the products.
        bias: What is added to the scaled products, or empty.
        bias_scale: A factor of that.
        mask: Where a score is kept, or empty.
        zeroed: Whether weights are zero where it is not.
        turned: Whether the product is that of keys and queries: then these have their last axes the other way round.
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
    turned: bool = False


def with_written_attention(traced: Traced, first: int, inputs: Mapping[str, Axes]) -> tuple[Traced, list[Call]]:
    """Return a model whose hand-written attention is calls, and these.

    Args:
        traced: As it was traced; it stays as it is.
        first: The number of the first call.
        inputs: The axes of the inputs, by name: those of one name have one size.
    """
    model, calls = deepcopy(traced.model), list[Call]()
    axes: Mapping[str, Axes] = {}
    for nodes in reversed([*views(model.graph, inferred(model, traced.weights))]):  # bodies before what is around them
        reads = Counter(names_used(nodes.graph))
        found = {node.output[0]: each for node in nodes.graph.node if (each := _written(node, nodes, reads))}
        if not found:
            continue
        axes = axes or infer_facts(traced.model, inputs).axes
        rows = []
        for node in nodes.graph.node:
            if (each := found.get(node.output[0] if node.output else "")) is None:
                rows.append(node)
                continue
            call, made = _as_call(each, f"{DOT_PRODUCT}_{first + len(calls)}", nodes, axes)
            calls.append(call)
            rows += made
            shape = nodes.sizes(node.output[0])  # which onnx does not infer any more
            nodes.graph.value_info.append(helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, shape))
        refill(nodes.graph.node, rows)
    if not calls:
        return traced, []
    drop_unread(model.graph)
    if DOMAIN not in {each.domain for each in model.opset_import}:
        model.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return replace(traced, model=model), calls


def _written(node: onnx.NodeProto, nodes: Nodes, reads: Mapping[str, int]) -> _Written | None:
    """Return the attention that a node ends, or None."""
    if node.op_type != "MatMul" or node.domain:
        return None
    weights, kept = node.input[0], ""
    selected = nodes.maker(weights, "Where")
    if selected is not None:
        weights, kept = selected.input[1], selected.input[0]
        if nodes.number(selected.input[2]) != 0 or reads[node.input[0]] != 1:
            return None
    softmax = nodes.maker(weights, "Softmax")
    sizes = None if softmax is None else nodes.sizes(softmax.output[0])
    if softmax is None or sizes is None or len(sizes) not in (3, 4, 5) or reads[weights] != 1:
        return None
    if attribute(softmax, "axis", -1) not in (-1, len(sizes) - 1) or nodes.kind(weights) != TensorProto.FLOAT:
        return None
    scored = _scored(_Written(node, "", "", node.input[1], mask=kept, zeroed=bool(kept)), softmax.input[0], nodes)
    if scored is not None and _fits(scored, sizes, nodes):
        return scored
    reason = "its scores are not scaled products with a bias and a mask" if scored is None else "its shapes do not fit"
    _LOG.debug("Attention at node %s stays as it is: %s", node.name, reason)
    return None


def _scored(written: _Written, scores: str, nodes: Nodes) -> _Written | None:
    """Return the attention with what its scores are made of, or None where they are made otherwise."""
    selected = nodes.maker(scores, "Where")
    if selected is not None:
        mask, scores, instead = selected.input
        number = nodes.number(instead)
        if number is None or not -math.inf < number <= LARGE or written.mask not in ("", mask):
            return None
        written = written._replace(mask=mask)
    elif written.mask:  # of weights alone
        return None
    name, outer = _unscaled(scores, nodes)
    for products, bias in nodes.both_orders(nodes.maker(name, "Add")):
        if (found := _products(written, products, outer, nodes)) is not None:
            return found._replace(bias=bias, bias_scale=outer)
    return _products(written, scores, 1.0, nodes)


def _products(written: _Written, name: str, scale: float, nodes: Nodes) -> _Written | None:
    """Return the attention with queries, keys and the scale of their products, of which some may be known."""
    name, inner = _unscaled(name, nodes)
    scale, transposed = scale * inner, nodes.maker(name, "Transpose")
    if transposed is not None:
        rank = len(nodes.sizes(name) or ())
        if _order(transposed, rank) != [*range(rank - 2), rank - 1, rank - 2]:
            return None
        name, inner = _unscaled(transposed.input[0], nodes)
        scale *= inner
    product = nodes.maker(name, "MatMul")
    if product is None or not 0 < np.float32(scale) < math.inf:
        return None
    turned = transposed is not None
    queries, keys = reversed(product.input) if turned else product.input
    return written._replace(queries=queries, keys=keys, scale=scale, turned=turned)


def _unscaled(name: str, nodes: Nodes) -> tuple[str, float]:
    """Return what a tensor is a multiple of, and the factor."""
    scale = 1.0
    while (node := nodes.maker(name, "Mul", "Div")) is not None:
        orders = [*nodes.both_orders(node)][: 1 if node.op_type == "Div" else 2]
        known = [(each, number) for each, other in orders if (number := nodes.number(other)) is not None]
        if not known or not known[0][1]:
            break
        name, number = known[0]
        scale = scale / number if node.op_type == "Div" else scale * number
    return name, scale


def _order(transpose: onnx.NodeProto, rank: int) -> list[int]:
    perm = next((list(each.ints) for each in transpose.attribute if each.name == "perm"), None)
    return [*range(rank)][::-1] if perm is None else perm


def _fits(written: _Written, scores: Sequence[int | None], nodes: Nodes) -> bool:
    """Tell whether all have an axis for each of the scores', of known heads and of sizes that are not repeated."""
    queries, keys, values = (nodes.sizes(name) for name in (written.queries, written.keys, written.values))
    rank = len(scores)
    if queries is None or keys is None or values is None or {len(queries), len(keys), len(values)} != {rank}:
        return False
    if written.turned:
        queries = (*queries[:-2], queries[-1], queries[-2])
    heads, shared = queries[1:-2], values[1:-2]
    if None in (*heads, queries[-1], values[-1]) or keys[:-2] != values[:-2] or queries[0] != values[0]:
        return False
    if shared not in (heads, (*heads[:-1], 1)):
        return False
    return all(_spreads(name, scores, nodes) for name in (written.bias, written.mask) if name)


def _spreads(name: str, scores: Sequence[int | None], nodes: Nodes) -> bool:
    """Tell whether a bias or a mask is repeated to the scores, over heads that are known."""
    sizes = nodes.sizes(name)
    if sizes is None or len(sizes) > len(scores) or nodes.kind(name) not in (TensorProto.FLOAT, TensorProto.BOOL):
        return False
    whole = (*[1] * (len(scores) - len(sizes)), *sizes)
    if len(whole) > 4 and whole[1:-2] != (1, 1):
        return False
    return all(size in (1, of_all) for size, of_all in zip(whole[1:-2], scores[1:-2], strict=True))


def _as_call(written: _Written, op: str, nodes: Nodes, axes: Mapping[str, Axes]) -> tuple[Call, list[onnx.NodeProto]]:
    """Return the call of hand-written attention, and the nodes that stand in the place of its last one."""
    whole = {name for name in ("mask", "bias") if _is_whole(getattr(written, name), written, axes)}
    write = _Writer(op, written.end, nodes.graph)
    queries, values = nodes.sizes(written.queries) or (), nodes.sizes(written.values) or ()
    num_queries, last = (queries[-1], queries[-2]) if written.turned else (queries[-2], queries[-1])
    batch, of_heads, size, value_size = queries[0], queries[1:-2], last or 0, values[-1] or 0
    heads, shared = (math.prod(each or 0 for each in axes) for axes in (of_heads, values[1:-2]))
    given: dict[str, tuple[str, Sizes]] = {
        "queries": (
            _joined(written.queries, heads * size, nodes, write, turned=written.turned),
            (batch, num_queries, heads * size),
        ),
        "keys": (
            _joined(written.keys, shared * size, nodes, write, turned=not written.turned),
            (batch, values[-2], shared * size),
        ),
        "values": (
            _joined(written.values, shared * value_size, nodes, write),
            (batch, values[-2], shared * value_size),
        ),
    }
    mask, bias = (
        _pairwise(name, len(queries), nodes, write) if name else None for name in (written.mask, written.bias)
    )
    if bias is not None and written.bias_scale != 1:
        bias = write("Mul", bias[0], written.bias_scale), bias[1]
    if written.zeroed and mask is not None:
        given["mask"] = mask
    elif mask is not None:
        bias = _low_where_masked(mask, bias, write)
        whole = {"bias"} if whole else whole
    if bias is not None:
        given["bias"] = bias
    call = Call(
        op=op,
        layer=written.end.name.removeprefix(TRACED).rpartition("/")[0],
        owner=0,
        name=DOT_PRODUCT,
        shapes={name: shape for name, (_, shape) in given.items()},
        dtypes={name: "bool" if name == "mask" else "float32" for name in given},
        constants={},
        options={"scale": written.scale},
        heads=Heads(heads, shared) if of_heads else None,
        pairs=Pairs(),
        normalizer=SOFTMAX,
        returns_weights=False,
        leaks=True,
        whole=frozenset(whole),
    )
    end = written.end.output[0]
    output = write(op, *(name for name, _ in given.values()), output="" if of_heads else end, domain=DOMAIN)
    if of_heads:
        apart = write("Reshape", output, np.array([0, 0, *of_heads, value_size]))
        write("Transpose", apart, output=end, perm=[0, *range(2, 2 + len(of_heads)), 1, 2 + len(of_heads)])
    return call, write.nodes


def _is_whole(name: str, written: _Written, axes: Mapping[str, Axes]) -> bool:
    """Tell whether a mask or a bias is known to have axes as long as the queries and the keys."""
    queries, values, own = (axes.get(each) for each in (written.queries, written.values, name))
    if queries is None or values is None or own is None or len(own) < 2:
        return False
    pairs = queries[-1 if written.turned else -2], values[-2]
    return None not in pairs and own[-2:] == pairs


def _low_where_masked(mask: tuple[str, Sizes], bias: tuple[str, Sizes] | None, write: _Writer) -> tuple[str, Sizes]:
    """Return a bias that is the same low number where a mask leaves a pair out, with its sizes."""
    added, sizes = bias or (0.0, mask[1])
    both = zip(mask[1], sizes, strict=True)
    return write("Where", mask[0], added, LOW), tuple(of_bias if of_mask == 1 else of_mask for of_mask, of_bias in both)


def _joined(name: str, size_of_all: int, nodes: Nodes, write: _Writer, *, turned: bool = False) -> str:
    """Return (B, T, H D) of (B, H, T, D), or of (B, T, D); `turned` if the last two axes are the other way round."""
    rank = len(nodes.sizes(name) or ())
    axes = [0, rank - 2, *range(1, rank - 2), rank - 1]
    if turned:
        axes = [rank - 1 if axis == rank - 2 else rank - 2 if axis == rank - 1 else axis for axis in axes]
    before = nodes.maker(name, "Transpose")
    if before is not None:
        perm = _order(before, rank)
        name, axes = before.input[0], [perm[axis] for axis in axes]
    if axes != sorted(axes):
        name = write("Transpose", name, perm=axes)
    return name if rank == 3 else write("Reshape", name, np.array([0, 0, size_of_all]))


def _pairwise(name: str, rank: int, nodes: Nodes, write: _Writer) -> tuple[str, Sizes]:
    """Return a mask or a bias with the axes of the scores, one for heads if any, and its sizes."""
    sizes = nodes.sizes(name) or ()
    if len(sizes) > 4:  # groups of heads and those in them
        return write("Squeeze", name, np.array([1])), (sizes[0], *sizes[2:])
    missing = min(rank, 4) - len(sizes)
    whole = write("Unsqueeze", name, np.arange(missing)) if missing else name
    return whole, (*[1] * missing, *sizes)


class _Writer:
    """Writes nodes in the place of one, and the constants that they read."""

    def __init__(self, op: str, place: onnx.NodeProto, graph: onnx.GraphProto) -> None:
        self._op, self._place, self._graph = op, place.name, graph
        self.nodes: list[onnx.NodeProto] = []

    def __call__(self, op_type: str, *inputs: str | float | np.ndarray, output: str = "", **options: Any) -> str:
        name = f"{op_type}_{len(self.nodes)}"
        read = [each if isinstance(each, str) else self._constant(each, f"{name}/{k}") for k, each in enumerate(inputs)]
        output = output or f"{self._op}/{name}"
        self.nodes.append(helper.make_node(op_type, read, [output], name=f"{self._place}/{name}", **options))
        return output

    def _constant(self, number: float | np.ndarray, name: str) -> str:
        array = np.asarray(number, None if isinstance(number, np.ndarray) else np.float32)
        self._graph.initializer.append(numpy_helper.from_array(array, f"{self._op}/{name}"))
        return f"{self._op}/{name}"
