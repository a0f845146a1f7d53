"""Intercept attention in built-in layers of Keras and keras_hub while a model is traced.

Their methods are replaced for as long as a context lasts, and do what they did but in the thread that set it. What a
subclass computes is its own business, so classes are known one by one.
"""

from __future__ import annotations

import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import keras
from keras import ops

from keras_attn._pooling.composite import DROPS

WITH_HEADS = (keras.layers.MultiHeadAttention, keras.layers.GroupQueryAttention)
WITHOUT_HEADS = (keras.layers.Attention, keras.layers.AdditiveAttention)
MEAN, ZEROS, AS_COMPUTED = "mean", "zeros", "as computed"
_REPEATING = {"Reshape", "Tile", "ExpandDims", "Identity"}  # the ops of TensorFlow's `repeat`


@dataclass(frozen=True)
class StockAttention:
    """One call of a layer's attention, after its projections.

    Attributes:
        layer: The layer.
        queries: `(B, Tq, D)`, or `(B, Tq, H, D)` where there are heads.
        keys: `(B, Tk, D)`, or `(B, Tk, G, D)`.
        values: `(B, Tk, Dv)`, or `(B, Tk, G, Dv)`.
        w_v: `(D, 1)` of additive scores, or None where scores are dot products.
        scale: Factor of the dot products.
        queries_mask: Booleans `(B, Tq)`, or None: a query that is masked is without keys.
        keys_mask: Booleans `(B, Tk)`, or None.
        mask: Booleans that broadcast to `(B, H, Tq, Tk)`, four axes, or None.
        all_masks: Those that broadcast likewise and say the same as all masks and the order together, or None.
        causal: Whether a query sees no key after its own position.
        reach: How many keys on either side of its own position a query sees, or None for all.
        without_keys: What a query without keys gets: the `MEAN` of all values, `ZEROS` for output and weights, or,
            `AS_COMPUTED`, what rounding makes of its scores.
        returns_weights: Whether the weights are wanted.
        compute: What the layer itself does: gives output and weights, or None for them.
    """

    layer: Any
    queries: Any
    keys: Any
    values: Any
    w_v: Any
    scale: float
    queries_mask: Any
    keys_mask: Any
    mask: Any
    all_masks: Any
    causal: bool
    reach: int | None
    without_keys: str
    returns_weights: bool
    compute: Callable[[], tuple[Any, Any]] = field(repr=False)


Evaluate = Callable[[StockAttention], "tuple[Any, Any] | None"]


class _Parts(NamedTuple):
    """What the mask of a layer with heads was made of."""

    queries: Any = None
    keys: Any = None
    pairs: Any = None
    causal: bool = False
    reach: int | None = None


class _Hold(NamedTuple):
    """Who computes, and the parts of each mask by its identity, beside the mask, which keeps that identity its own."""

    evaluate: Evaluate
    parts: dict[int, tuple[Any, _Parts]]
    reasons: dict[int, str]


_HOLD: ContextVar[_Hold | None] = ContextVar("keras_attn_stock_attention", default=None)
_LOCK = threading.Lock()
_ORIGINALS: dict[tuple[Any, str], Any] = {}  # while some thread is in the context
_HOLDERS: list[_Hold] = []


def is_stock_attention(layer: Any) -> bool:
    """Tell whether a layer is one of Keras's or keras_hub's attention layers, and of no class derived from them."""
    return _has_heads(layer) or type(layer) in WITHOUT_HEADS


@contextmanager
def through_stock_attention(evaluate: Evaluate, reasons: dict[int, str] | None = None) -> Iterator[None]:
    """Let `evaluate` compute, within the context and in this thread, the attention of such layers in float32.

    It gives output and weights, shaped as the layer does, or None for what the layer itself would compute. `reasons`
    gets, by the identity of a layer, why a call of it is of another kind.
    """
    hold = _Hold(evaluate, {}, {} if reasons is None else reasons)
    token = _HOLD.set(hold)
    try:
        _replace_methods(hold)
        yield
    finally:
        _restore_methods(hold)
        _HOLD.reset(token)


def _replace_methods(hold: _Hold) -> None:
    with _LOCK:
        if not _HOLDERS:
            for owner, name, replacement in _replacements():
                _ORIGINALS[owner, name] = getattr(owner, name)
                setattr(owner, name, replacement(_ORIGINALS[owner, name]))
        _HOLDERS.append(hold)


def _restore_methods(hold: _Hold) -> None:
    with _LOCK:
        _HOLDERS[:] = [each for each in _HOLDERS if each is not hold]
        if not _HOLDERS:
            for (owner, name), original in _ORIGINALS.items():
                setattr(owner, name, original)
            _ORIGINALS.clear()


def _replacements() -> list[tuple[Any, str, Callable[[Any], Any]]]:
    return [
        *((owner, "_compute_attention_mask", _noting_parts) for owner in WITH_HEADS),
        *((owner, "_compute_attention", functools.partial(_through, _of_heads)) for owner in WITH_HEADS),
        (keras.layers.Attention, "call", _through_call),
    ]


def _has_heads(layer: Any) -> bool:
    known: list[Any] = [*WITH_HEADS]
    hub = sys.modules.get("keras_hub")  # a model of it has imported it
    if hub is not None:
        known.append(hub.layers.CachedMultiHeadAttention)
    return type(layer) in known


def _noting_parts(original: Any) -> Any:
    @functools.wraps(original)
    def compute_mask(layer: Any, *args: Any, **kwargs: Any) -> Any:
        mask = original(layer, *args, **kwargs)
        hold = _HOLD.get()
        if hold is not None and mask is not None and _has_heads(layer):
            given = _arguments(original, layer, args, kwargs)
            keys = [given[name] for name in ("value_mask", "key_mask") if given[name] is not None]
            parts = _Parts(
                queries=_as_booleans(given["query_mask"]),
                keys=functools.reduce(ops.logical_and, map(_as_booleans, keys)) if keys else None,
                causal=given["use_causal_mask"],
                reach=_reach(layer),
            )
            is_alone = all(part is None or part is False for part in parts)
            pairs = mask if is_alone else _as_booleans(given["attention_mask"])
            hold.parts[id(mask)] = mask, parts._replace(pairs=pairs)
        return mask

    return compute_mask


def _through(describe: Callable[..., StockAttention | str], original: Any) -> Any:
    @functools.wraps(original)
    def compute(layer: Any, *args: Any, **kwargs: Any) -> Any:
        hold = _HOLD.get()
        if hold is not None and is_stock_attention(layer):
            own = functools.partial(original, layer, *args, **kwargs)
            attention = describe(hold, layer, own, _arguments(original, layer, args, kwargs))
            if isinstance(attention, str):
                hold.reasons[id(layer)] = attention
            elif (found := hold.evaluate(attention)) is not None:
                return found
        return original(layer, *args, **kwargs)

    return compute


def _through_call(original: Any) -> Any:
    def with_weights(layer: Any, *args: Any, **kwargs: Any) -> Any:
        """Call the layer as one with heads computes its attention: the weights are there, or None."""
        found = original(layer, *args, **kwargs)
        return found if isinstance(found, tuple) else (found, None)

    compute = _through(_of_one, functools.wraps(original)(with_weights))

    @functools.wraps(original)
    def call(layer: Any, *args: Any, **kwargs: Any) -> Any:
        output, weights = compute(layer, *args, **kwargs)
        return output if weights is None else (output, weights)

    return call


def _of_heads(hold: _Hold, layer: Any, compute: Any, given: dict[str, Any]) -> StockAttention | str:
    """Describe a call of `_compute_attention`, or return why it is of another kind."""
    queries, keys, values = (given[name] for name in ("query", "key", "value"))
    grouped = isinstance(layer, keras.layers.GroupQueryAttention)
    weights = layer._return_attention_scores if grouped else given["return_attention_scores"]
    by_softmax = layer.dropout > 0 or weights
    softmax, axes = type(layer._softmax), (1,) if grouped else layer._attention_axes
    if reason := _first_reason(
        (not _are_float32(queries, keys, values), f"it computes in {layer.compute_dtype}"),
        (layer.dropout > 0 and given["training"], DROPS),
        (softmax is not keras.layers.Softmax, f"its softmax is a layer of class {softmax.__name__}"),
        (layer._flash_attention, "it has `flash_attention=True`"),
        (axes != (1,), f"it attends along the axes {axes}"),
        (not _have_axes(4, queries, keys, values), f"its queries have {len(queries.shape) - 1} axes"),
    ):
        return reason
    mask, causal = given["attention_mask"], given.get("use_causal_mask", False)
    noted, parts = hold.parts.get(id(mask), (None, None))
    if parts is None or noted is not mask:
        parts = _Parts(pairs=mask)
    if causal:  # the layer has left it to this method
        if mask is not None:
            return "it has a mask beside a causal one"
        parts = _Parts(causal=True)
    if not _fits(parts):
        return f"its `attention_mask` has {len(parts.pairs.shape)} axes"
    if grouped:
        keys, values = (_before_repeating(each, layer.num_key_value_heads) for each in (keys, values))
    return StockAttention(
        layer=layer,
        queries=queries,
        keys=keys,
        values=values,
        w_v=None,
        scale=layer._inverse_sqrt_head_dim if grouped else layer._inverse_sqrt_key_dim,
        queries_mask=parts.queries,
        keys_mask=parts.keys,
        mask=_with_four_axes(parts.pairs, by_softmax),
        all_masks=_with_four_axes(mask, by_softmax),
        causal=parts.causal,
        reach=parts.reach,
        without_keys=ZEROS if by_softmax else MEAN,
        returns_weights=bool(weights),
        compute=compute,
    )


def _first_reason(*reasons: tuple[Any, str]) -> str:
    """Return the first reason whose condition is true, or an empty text."""
    return next((reason for is_true, reason in reasons if is_true), "")


def _fits(parts: _Parts) -> bool:
    """Tell whether a mask of pairs has an axis for each of what it masks.

    One with an axis of heads, together with masks of sequences, meets their batch axis there.
    """
    if parts.pairs is None or len(parts.pairs.shape) in (2, 3):
        return True
    alone = parts.queries is None and parts.keys is None
    return len(parts.pairs.shape) == 4 and parts.pairs.shape[1] is not None and alone


def _of_one(hold: _Hold, layer: Any, compute: Any, given: dict[str, Any]) -> StockAttention | str:
    """Describe a call of an attention layer without heads, or return why it is of another kind."""
    queries, values, *others = given["inputs"]
    keys = others[0] if others else values
    queries_mask, keys_mask = (*(given["mask"] or ()), None, None)[:2]
    masks = [mask for mask in (queries_mask, keys_mask) if mask is not None]
    sizes = {queries.shape[-1], keys.shape[-1]}
    if reason := _first_reason(
        (not _are_float32(queries, keys, values), f"it computes in {layer.compute_dtype}"),
        (not _have_axes(3, queries, keys, values), f"its queries have {len(queries.shape)} axes"),
        (not _have_axes(2, *masks), "its mask has a value for each pair of query and key"),
        (layer.dropout > 0 and given["training"], DROPS),
        (None in sizes or len(sizes) > 1, "the feature sizes of queries and keys are unknown or differ"),
    ):
        return reason
    queries, keys, w_v = _scored(layer, queries, keys)
    return StockAttention(
        layer=layer,
        queries=queries,
        keys=keys,
        values=ops.convert_to_tensor(values),
        w_v=w_v,
        scale=1.0,
        queries_mask=_as_booleans(queries_mask),
        keys_mask=_as_booleans(keys_mask),
        mask=None,
        all_masks=None,
        causal=bool(given["use_causal_mask"]),
        reach=None,
        without_keys=AS_COMPUTED,
        returns_weights=bool(given["return_attention_scores"]),
        compute=compute,
    )


def _scored(layer: Any, queries: Any, keys: Any) -> tuple[Any, Any, Any]:
    """Return queries, keys and `w_v`, `(D, 1)` or None for dot products, whose scores are those of the layer."""
    queries, keys = ops.convert_to_tensor(queries), ops.convert_to_tensor(keys)
    units = ops.ones((queries.shape[-1], 1), "float32")
    if type(layer) is keras.layers.AdditiveAttention:
        return queries, keys, units if layer.scale is None else ops.expand_dims(layer.scale, -1)
    scale = 1.0 if layer.scale is None else ops.convert_to_tensor(layer.scale)
    if layer.score_mode == "dot":
        return queries * scale, keys, None
    return queries * scale, keys * scale, units * layer.concat_score_weight


def _arguments(function: Any, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(function).bind(layer, *args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _reach(layer: Any) -> int | None:
    grouped = isinstance(layer, keras.layers.GroupQueryAttention)
    window = layer.sliding_window if grouped else layer._sliding_window
    return None if window is None else window - 1


def _are_float32(*tensors: Any) -> bool:
    return all(keras.backend.standardize_dtype(tensor.dtype) == "float32" for tensor in tensors)


def _have_axes(rank: int, *tensors: Any) -> bool:
    return all(len(tensor.shape) == rank for tensor in tensors)


def _as_booleans(mask: Any) -> Any:
    return None if mask is None else ops.cast(mask, "bool")


def _with_four_axes(mask: Any, by_softmax: bool) -> Any:
    """A mask of pairs with all axes of the weights, as the layer reads it."""
    if mask is None:
        return None
    mask = ops.convert_to_tensor(mask)
    if by_softmax and keras.backend.standardize_dtype(mask.dtype) != "bool":
        mask = ops.greater(mask, ops.cast(0.5, mask.dtype))  # as `keras.layers.Softmax` does
    while len(mask.shape) < 4:
        mask = ops.expand_dims(mask, 0 if len(mask.shape) == 2 else 1)
    return _as_booleans(mask)


def _before_repeating(tensor: Any, heads: int) -> Any:
    """The keys or values whose heads the layer has repeated; those repeated where TensorFlow did it in another way."""
    source = tensor
    while source.shape.rank != 4 or source.shape[2] != heads:
        op = getattr(source, "op", None)  # only tensors of a graph tell
        if op is None or op.type not in _REPEATING:
            return tensor
        source = op.inputs[0]
    return source
